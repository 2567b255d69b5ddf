"""Folders are gone through along links, and never in a circle."""

import pytest

from lws_lightning.walking import walk


@pytest.fixture
def tree(tmp_path):
    for name in ("a/1", "a/deep/2", "b/3", "skipped/4", "outside/5"):
        path = tmp_path / "root" / name if name[0] != "o" else tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path / "root"


def found(root, **options):
    return [f"{place}/{name}".removeprefix(f"{root}/") for place, names in walk(root, **options) for name in names]


def test_every_folder_in_order(tree):
    assert found(tree, skip=lambda name: name == "skipped") == ["a/1", "a/deep/2", "b/3"]


def test_links_are_followed(tree):
    (tree / "link").symlink_to("../outside")
    (tree / "b/again").symlink_to("../a/deep")
    assert found(tree) == ["a/1", "a/deep/2", "b/3", "b/again/2", "link/5", "skipped/4"]


def test_circles_end(tree):
    (tree / "a/self").symlink_to(".")
    (tree / "a/deep/up").symlink_to("../..")
    (tree / "b/other").symlink_to("../a")
    (tree / "a/other").symlink_to("../b")
    files = found(tree)
    assert len(files) == len(set(files)) < 20
    assert {"a/1", "a/deep/2", "b/3", "b/other/1", "a/other/3", "skipped/4"} <= set(files)


def test_a_folder_that_cannot_be_read_is_not_passed_over_in_silence(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(walk(tmp_path / "gone"))
    errors = []
    assert list(walk(tmp_path / "gone", on_error=errors.append)) == []
    assert len(errors) == 1
