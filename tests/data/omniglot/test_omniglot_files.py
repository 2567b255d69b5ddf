"""Omniglot's files: missing, damaged, complete, downloaded."""

import hashlib
import shutil
import socket
import zipfile
from pathlib import Path

import pytest
import torchvision
from drawings import ALPHABETS, ANGELIC, OJIBWE, URL, one
from fakes import omniglot_folder
from PIL import Image
from read_only import left_alone

from lws_lightning.data import Omniglot

# Missing and damaged files


def test_missing_and_incomplete_alphabets_are_all_named(own):
    folder = omniglot_folder(own, OJIBWE)
    shutil.rmtree(folder / "character03")
    (folder / "character14" / "0014_20.png").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        Omniglot(str(own), tasks=[OJIBWE, ANGELIC, "Tengwar", "Greek"]).setup()
    message = str(caught.value)
    assert message.startswith("Omniglot: ")
    for part in (
        f"{OJIBWE}: incomplete (of 20 drawings character03 has 0, character14 has 19)",
        "missing: Angelic, Tengwar\n",
        "missing: Greek\n",
        str(folder.parent),
        str(own / "omniglot-py/images_evaluation"),
        URL.format("background"),
        URL.format("evaluation"),
        "--data.download true",
    ):
        assert part in message


def test_a_character_too_many(own):
    folder = omniglot_folder(own, OJIBWE)
    shutil.copytree(folder / "character14", folder / "character15")
    with pytest.raises(FileNotFoundError, match=r"not Omniglot's \(with character15\)"):
        one(own).setup()


def test_damaged_image(own):
    path = omniglot_folder(own, OJIBWE) / "character02" / "0002_05.png"
    whole = path.read_bytes()
    for contents in (b"", b"<html>", whole[: len(whole) // 2], whole[:50] + b"\0" * 30 + whole[80:]):
        path.write_bytes(contents)
        with pytest.raises(FileNotFoundError, match=r"Omniglot: .*\n.*character02.0002_05.png: damaged"):
            one(own).setup()
    Image.new("1", (28, 28)).save(path)
    with pytest.raises(FileNotFoundError, match=r"0002_05.png: damaged \(\(28, 28\) instead of \(105, 105\) pixels"):
        one(own).setup()


@pytest.mark.parametrize("download", [True, False])
def test_complete_data_needs_no_network_and_nothing_is_written(own, download, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    with left_alone(own):
        datamodule = one(own, download=download)
        datamodule.prepare_data()
        datamodule.setup()


# Download


@pytest.fixture
def served(root, tmp_path, monkeypatch):
    """Serves the drawings of `root` as zip files; returns the list of requests."""
    requests, sums = [], {}
    archives = tmp_path / "archives"
    archives.mkdir()
    for part in ("images_background", "images_evaluation"):
        with zipfile.ZipFile(archives / f"{part}.zip", "w") as archive:
            for file in (root / "omniglot-py" / part).rglob("*.png"):
                archive.write(file, file.relative_to(root / "omniglot-py"))
        sums[part] = hashlib.md5((archives / f"{part}.zip").read_bytes()).hexdigest()

    def retrieve(url, filename, *_, **__):
        requests.append(url)
        shutil.copy(archives / Path(url).name, filename)

    monkeypatch.setattr(torchvision.datasets.utils, "_get_redirect_url", lambda url, **_: url)
    monkeypatch.setattr(torchvision.datasets.utils, "_urlretrieve", retrieve)
    monkeypatch.setattr(torchvision.datasets.Omniglot, "zips_md5", sums)
    return requests


def test_download(root, tmp_path, served):
    new = tmp_path / "new"
    one(new).prepare_data()  # download is off
    assert not new.exists()
    for _ in range(2):
        one(new, download=True).prepare_data()
        assert served == [URL.format("background")]
    assert [path.name for path in new.glob("omniglot-py/*/*")] == [OJIBWE]
    datamodule = Omniglot(str(new), tasks=ALPHABETS, download=True)
    datamodule.prepare_data()
    assert served[1:] == [URL.format("background"), URL.format("evaluation")]
    assert not list(new.rglob("*.zip")) + list(new.rglob("*.download"))
    for ours, theirs in zip(
        datamodule.examples("train"), Omniglot(str(root), tasks=ALPHABETS).examples("train"), strict=True
    ):
        assert ours[0].equal(theirs[0])


def test_incomplete_alphabet_is_replaced(own, served):
    folder = omniglot_folder(own, OJIBWE)
    shutil.rmtree(folder / "character03")
    one(own, download=True).prepare_data()
    one(own).setup()
    assert len(list(folder.iterdir())) == 14
    assert not list(own.rglob("*.download"))


@pytest.mark.parametrize("contents", [b"<html>moved</html>", None])
def test_archive_that_is_not_omniglot(own, served, tmp_path, monkeypatch, contents):
    """A web page in place of the archive, or an archive without the alphabet: nothing is touched."""
    folder = omniglot_folder(own, OJIBWE)
    (folder / "character01" / "0001_01.png").unlink()
    before = sorted(own.rglob("*.png"))
    archive = tmp_path / "archives" / "images_background.zip"
    if contents is None:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("images_background/Greek/character01/0001_01.png", b"")
        md5 = hashlib.md5(archive.read_bytes()).hexdigest()
        monkeypatch.setitem(torchvision.datasets.Omniglot.zips_md5, "images_background", md5)
    else:
        archive.write_bytes(contents)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"Omniglot: the download from {URL.format('background')} .*manually"):
            one(own, download=True).prepare_data()
        assert sorted(own.rglob("*.png")) == before
        assert not list(own.rglob("*.download"))
