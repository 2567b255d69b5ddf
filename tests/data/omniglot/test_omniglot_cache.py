"""The cache of Omniglot's decoded images."""

import multiprocessing
import os
import warnings

import numpy as np
import pytest
import torch
from drawings import ANGELIC, OJIBWE, one
from fakes import omniglot_folder
from PIL import Image

from lws_lightning.data import Omniglot
from lws_lightning.data.cache import ArrayCache


@pytest.fixture
def opened(monkeypatch):
    """The images that were decoded."""
    files = []
    genuine = Image.open

    def log(file):
        files.append(file)
        return genuine(file)

    monkeypatch.setattr(Image, "open", log)
    return files


def test_cache(own, cache, opened):
    first = one(own).examples("train")[0][0]
    assert len(opened) == 280
    assert {path.suffix for path in cache.iterdir()} == {".npz"}
    assert one(own).examples("train")[0][0].equal(first)
    assert one(own, train_drawings=4, split_seed=3).examples("train")[0][0].shape[0] == 56
    assert len(opened) == 280


def test_cache_is_made_anew_when_the_files_change(own, cache, opened):
    one(own).setup()
    path = omniglot_folder(own, OJIBWE) / "character01" / "0001_01.png"
    Image.new("1", (105, 105)).save(path)
    images = torch.cat([one(own).examples(split)[0][0] for split in ("train", "test")])
    assert (images.flatten(1) == 0).all(1).sum() == 1
    assert len(opened) == 2 * 280
    os.utime(path, ns=(1, 1))
    one(own).setup()
    path.rename(path.with_name("0001_21.png"))
    one(own).setup()
    assert len(opened) == 4 * 280
    assert len(list(cache.glob("drawings-*"))) == 1


def test_two_folders_have_a_cache_each(own, root, cache, opened):
    for _ in range(2):
        one(own).setup()
        one(root).setup()
    assert len(opened) == 2 * 280


@pytest.mark.parametrize("damage", ["empty", "html", "half", "flipped", "shape", "pickle", "no array"])
def test_damaged_cache_is_made_anew(own, cache, opened, damage):
    first = one(own).examples("train")[0][0]
    path = next(cache.glob("drawings-*"))
    whole = path.read_bytes()
    with np.load(path) as file:
        mark = file["fingerprint"]
    if damage == "shape":
        np.savez_compressed(path, fingerprint=mark, array=np.zeros((2, 1, 105, 105), np.uint8))
    elif damage == "pickle":
        np.savez_compressed(path, fingerprint=mark, array=np.array([{}], object))
    elif damage == "no array":
        np.savez_compressed(path, fingerprint=mark)
    else:
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
        path.write_bytes({"empty": b"", "html": b"<html>", "half": whole[:middle], "flipped": flipped}[damage])
    for decoded in (560, 560):
        assert one(own).examples("train")[0][0].equal(first)
        assert len(opened) == decoded


def test_cache_folder_of_ones_own(root, tmp_path, cache):
    one(root, cache_dir=str(tmp_path / "mine")).setup()
    assert list((tmp_path / "mine").rglob("*.npz"))
    assert not cache.exists()


def test_default_cache_folder(root, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    one(root).setup()
    assert list((tmp_path / "home/.cache/lws_lightning/Omniglot").glob("*.npz"))


def test_cache_that_cannot_be_written_to_gives_one_warning(root, tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match=r"Omniglot: cannot cache .*--data.cache_dir") as caught:
        Omniglot(str(root), tasks=[OJIBWE, ANGELIC], cache_dir=str(tmp_path / "file/cache")).setup()
    assert len([warning for warning in caught if "cannot cache" in str(warning.message)]) == 1


def test_no_home_folder(root, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.warns(UserWarning, match="Omniglot: cannot cache the decoded images in ~"):
        one(root).setup()


def test_full_disk(root, tmp_path, monkeypatch):
    def write_half(file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", write_half)
    with pytest.warns(UserWarning, match="No space left"):
        one(root, cache_dir=str(tmp_path / "cache")).setup()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_two_processes_at_once(tmp_path):
    """Both save time and again; what is read meanwhile is always whole."""
    source, shape = tmp_path / "source", (50, 1000)

    def save(value):
        for _ in range(20):
            ArrayCache(str(tmp_path / "cache"), "x").save(source, "mark", np.full(shape, value, np.uint8))

    save(0)
    context = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside torch's threads
        runs = [context.Process(target=save, args=(value,)) for value in (1, 2)]
        for run in runs:
            run.start()
    while any(run.is_alive() for run in runs):
        array = ArrayCache(str(tmp_path / "cache"), "x").load(source, "mark", shape)
        assert array is not None
        assert len(np.unique(array)) == 1
    for run in runs:
        run.join()
        assert run.exitcode == 0
    assert len([path for path in (tmp_path / "cache").rglob("*") if path.is_file()]) == 1
