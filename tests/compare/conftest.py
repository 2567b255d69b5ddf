"""Small folders of images, and comparisons that are over soon."""

import pytest
from fakes import write_folders

TASKS = {"birds": {"crow": 14, "owl": 12}, "cars": {"old": 15, "new": 13, "odd": 12}}


@pytest.fixture
def photos(tmp_path):
    return write_folders(tmp_path / "photos", TASKS, size=(20, 16), suffix="jpg")
