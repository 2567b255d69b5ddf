import pytest
from fakes import write_folders

from lws_lightning import ImageFolders

TASKS = {
    "birds": {"crow": 12, "owl": 7},
    "cars": {"train": {"blue": 5, "green": 6, "red": 9}, "test": {"blue": 2, "green": 1, "red": 3}},
    "trees": {"elm": 20, "oak": 10},
}


@pytest.fixture
def root(tmp_path):
    """Folders of three tasks, the second with test images of its own."""
    return write_folders(tmp_path / "images", TASKS)


@pytest.fixture
def make(root, tmp_path):
    """Makes an `ImageFolders` whose cache lies in the test's folder."""

    def make(root=root, **options):
        defaults = {"image_size": 8, "batch_size": 4, "cache_dir": str(tmp_path / "cache")}
        return ImageFolders(str(root), **(defaults | options))

    return make
