"""What lies between a user's images: thumbnails, links, images of other kinds, files that were exchanged."""

import os
import shutil

import numpy as np
import pytest
from fakes import write_folders
from PIL import Image

SYSTEMS = (
    "@eaDir", ".thumbnails", ".AppleDouble", "#recycle", "$RECYCLE.BIN", "System Volume Information", "lost+found",
    ".ipynb_checkpoints", "__MACOSX", "#snapshot", "@Recycle",
)  # fmt: skip


@pytest.mark.parametrize("place", ["", "birds", "birds/crow", "cars/train", "cars/test/red"])
def test_a_folder_of_thumbnails_is_passed_over(make, root, recwarn, place):
    clean = make().task_info
    for name in SYSTEMS:
        folder = root / place / name / "0.jpg"
        folder.mkdir(parents=True)
        shutil.copy(root / "birds/owl/0.png", folder / "SYNOPHOTO_THUMB_M.jpg")
        shutil.copy(root / "birds/owl/0.png", folder.parent / "x.png")
    for name in ("Thumbs.db", ".DS_Store", "ehthumbs.db", "desktop.ini"):
        (root / place / name).write_text("no image")
    data = make()
    assert data.task_info == clean
    assert data.examples("train")
    assert not [warning for warning in recwarn if "ignored, because" in str(warning.message)]


def test_a_class_of_images_that_are_not_read_says_what_lies_there(make, root):
    for file in (root / "birds/owl").iterdir():
        file.rename(file.with_suffix(".HEIC"))
    (root / "birds/owl/notes.txt").write_text("seen at dawn")
    with pytest.raises(
        ValueError, match=r"no images in the class folder 'owl'.*8 files are not read: 7 \.heic, 1 \.txt .*convert"
    ):
        make()


def test_links_to_folders_are_followed(make, root, tmp_path):
    plain = make()
    shutil.move(root / "birds", tmp_path / "elsewhere")
    (root / "birds").symlink_to(tmp_path / "elsewhere")
    shutil.move(root / "trees/oak", tmp_path / "oak")
    (root / "trees/oak").symlink_to(tmp_path / "oak")
    for (images, labels), (others, their_labels) in zip(
        make(cache=False).examples("train"), plain.examples("train"), strict=True
    ):
        assert images.equal(others)
        assert labels.equal(their_labels)


def write_equal_in_all_but_content(root, values):
    """Two classes of bmp files, all of one size and one time of modification."""
    for task in ("a", "b"):
        for name, value in values.items():
            folder = root / task / name
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(4):
                Image.new("L", (8, 8), value + number).save(folder / f"{number}.bmp")
                os.utime(folder / f"{number}.bmp", ns=(10**18, 10**18))


def by_label(data):
    images, labels = data.examples("train")[0]
    return {label: int(np.median(images[labels == label])) // 100 for label in (0, 1)}


@pytest.mark.parametrize("how", ["folders exchanged", "files exchanged", "written anew"])
def test_exchanged_images_are_not_taken_from_the_cache(make, tmp_path, how):
    root = tmp_path / "bmp"
    write_equal_in_all_but_content(root, {"dark": 0, "light": 200})
    assert by_label(make(root)) == {0: 0, 1: 2}
    dark, light = root / "a/dark", root / "a/light"
    if how == "written anew":
        write_equal_in_all_but_content(root, {"dark": 200, "light": 0})
    else:
        pairs = (
            [(dark, light)]
            if how == "folders exchanged"
            else [(dark / f"{n}.bmp", light / f"{n}.bmp") for n in range(4)]
        )
        for one, other in pairs:
            one.rename(root / "aside")
            other.rename(one)
            (root / "aside").rename(other)
    assert by_label(make(root)) == {0: 2, 1: 0}


def test_images_that_stay_are_taken_from_the_cache(make, tmp_path, monkeypatch):
    root = write_folders(tmp_path / "same", {"a": {"x": 3, "y": 3}})
    make(root).setup()
    monkeypatch.setattr("lws_lightning.data.image_reading.try_decoding", None)
    make(root).setup()
