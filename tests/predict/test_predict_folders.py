"""Which files of a folder `lws predict` takes."""

import shutil

import numpy as np
import pytest
from PIL import Image
from test_predict_command import QUIET, rows_of, write_images

from lws_lightning.predict import find_images


def test_links_are_followed_and_circles_end(tmp_path, monkeypatch):
    write_images(tmp_path / "elsewhere", ["1.png", "deep/2.png"])
    write_images(tmp_path / "photos", ["a/0.png"])
    (tmp_path / "photos/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/deep/round").symlink_to(tmp_path / "photos")
    (tmp_path / "photos/self").symlink_to(".")
    monkeypatch.chdir(tmp_path)
    wanted = ["photos/a/0.png", "photos/linked/1.png", "photos/linked/deep/2.png"]
    for given in ("photos", "photos/**/*.png", "photos/**", "ph*/**/*.png"):
        assert find_images([given]) == (wanted, [])
    assert find_images(["photos/*"]) == (wanted, [])
    monkeypatch.chdir(tmp_path / "photos")
    assert find_images(["**/*.png"])[0] == [path.removeprefix("photos/") for path in wanted]
    assert find_images([f"{tmp_path}/photos/**/2.png"])[0] == [f"{tmp_path}/photos/linked/deep/2.png"]


def test_a_folder_of_thumbnails_is_passed_over(tmp_path, monkeypatch):
    others = ["@eaDir/a.png/SYNO_THUMB.jpg", "#recycle/b.png", ".thumbnails/c.png", "sub/lost+found/d.png"]
    write_images(tmp_path / "photos", ["a.png", "sub/b.png", *others])
    (tmp_path / "photos/Thumbs.db").write_text("")
    monkeypatch.chdir(tmp_path)
    for given in ("photos", "photos/**/*.[pj][np]g", "photos/*"):
        assert find_images([given]) == (["photos/a.png", "photos/sub/b.png"], [])
    with pytest.raises(FileNotFoundError, match="there is no"):
        find_images(["photos/*/a.png/*.jpg"])
    named = ["photos/@eaDir", "photos/.thumbnails/*.png", "photos/#recycle/b.png"]  # who names them means them
    assert find_images(named)[0] == [f"photos/{others[0]}", f"photos/{others[2]}", f"photos/{others[1]}"]


def test_files_that_are_not_read_are_said(trained, lws, tmp_path, capsys):
    write_images(tmp_path / "photos", ["a.png"])
    for name in ("b.HEIC", "c.heic", "notes.txt"):
        (tmp_path / "photos" / name).write_text("")
    lws("predict", "--ckpt_path", trained[0], "--images", "photos", *QUIET)
    note = next(line for line in capsys.readouterr().err.splitlines() if "not read" in line)
    assert note.startswith("note: 3 files are not read: 2 .heic, 1 .txt (")
    assert note.endswith("such as photos/b.HEIC")
    assert {row["file"] for row in rows_of(tmp_path / "predictions.csv")} == {"photos/a.png"}
    (tmp_path / "photos/a.png").unlink()
    with pytest.raises(SystemExit, match=r"there are no images in photos .*3 files are not read: 2 \.heic, 1 \.txt"):
        lws("predict", "--ckpt_path", trained[0], "--images", "photos", *QUIET)


def test_large_images_and_broken_exif_are_read_as_in_training(trained, lws, tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    pixels = write_images(tmp_path / "photos", ["a.png"])
    exif = Image.Exif()
    exif[0x0112] = 1
    block = exif.tobytes().replace(b"MM\x00*", b"MM\x00\x00")
    image = Image.fromarray(np.asarray(pixels[0].permute(1, 2, 0)))
    image.save(tmp_path / "photos/b.png", exif=block)
    lws("predict", "--ckpt_path", trained[0], "--images", "photos", *QUIET)
    rows = rows_of(tmp_path / "predictions.csv")
    assert [row["probability"] for row in rows[:3]] == [row["probability"] for row in rows[3:]]


def test_a_pattern_takes_files_and_folders(tmp_path, monkeypatch):
    write_images(tmp_path / "photos", ["a.png", "sub/b.png"])
    (tmp_path / "photos/empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_images(["photos/*"])[0] == ["photos/a.png", "photos/sub/b.png"]
    shutil.rmtree(tmp_path / "photos/sub")
    assert find_images(["photos/*"])[0] == ["photos/a.png"]
