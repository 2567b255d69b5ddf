import hashlib
import multiprocessing
import os
import shutil
import socket
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from fakes import omniglot_folder, write_omniglot
from PIL import Image

from lws_lightning.data import Omniglot
from lws_lightning.data.cache import ArrayCache

OJIBWE = "Ojibwe_(Canadian_Aboriginal_Syllabics)"  # 14 characters
BLACKFOOT = "Blackfoot_(Canadian_Aboriginal_Syllabics)"  # 14
ANGELIC = "Angelic"  # 20, in the evaluation part
ALPHABETS = [BLACKFOOT, OJIBWE, ANGELIC]
URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_{}.zip"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Drawings that no test changes."""
    return write_omniglot(tmp_path_factory.mktemp("data"), ALPHABETS)


@pytest.fixture
def own(root, tmp_path):
    """A copy of one alphabet."""
    shutil.copytree(omniglot_folder(root, OJIBWE), omniglot_folder(tmp_path / "own", OJIBWE))
    return tmp_path / "own"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "lws_lightning" / "Omniglot"


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


def one(root, **options):
    return Omniglot(str(root), **{"tasks": [OJIBWE]} | options)


def character_and_drawer(images):
    """Reads what `write_omniglot` wrote into the first two rows."""
    return images[:, 0, 0].argmin(1), images[:, 0, 1].argmin(1)


def test_facts_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    datamodule = Omniglot(download=True)
    assert len(datamodule.task_names) == 50
    assert datamodule.task_names[0] == "Alphabet_of_the_Magi"
    assert datamodule.task_names[30] == ANGELIC
    assert sum(datamodule.num_classes[:30]) == 964
    assert sum(datamodule.num_classes) == 1623
    assert datamodule.image_shape == [1, 105, 105]
    assert list(tmp_path.iterdir()) == []


def test_tasks(root):
    datamodule = Omniglot(str(root), tasks=ALPHABETS)
    for place, characters in enumerate((14, 14, 20)):
        drawers = []
        for split, size in (("train", 16), ("test", 4)):
            images, labels = datamodule.examples(split)[place]
            assert images.shape == (size * characters, 1, 105, 105)
            assert images.dtype == torch.uint8
            assert torch.bincount(labels).tolist() == [size] * characters
            character, drawer = character_and_drawer(images)
            assert character.equal(labels)
            drawers.append(drawer.view(characters, size))
        assert torch.cat(drawers, 1).sort(1).values.equal(torch.arange(20).expand(characters, 20))
        assert len(drawers[1].sort(1).values.unique(dim=0)) > 1  # not the same drawers for every character
    assert datamodule.class_names[0][0] == "character01"
    assert datamodule.class_names[2][19] == "character20"
    batch = next(iter(datamodule.train_dataloader()))
    assert batch.nes.images.shape == (3, 16, 1, 105, 105)


def test_images_are_as_torchvision_gives_them(root):
    images, labels = one(root).examples("train")[0]
    assert images.unique().tolist() == [0, 255]
    for index in (0, 100, 223):
        drawer = character_and_drawer(images)[1][index]
        name = f"character{labels[index] + 1:02d}/{labels[index] + 1:04d}_{drawer + 1:02d}.png"
        with Image.open(omniglot_folder(root, OJIBWE) / name) as image:
            assert images[index, 0].numpy().tolist() == np.asarray(image.convert("L")).tolist()


def test_the_split_depends_on_split_seed_alone(root):
    def drawers(place=0, split="test", **options):
        return character_and_drawer(one(root, **options).examples(split)[place][0])[1].view(14, -1)

    assert drawers().equal(drawers(seed=3, tasks=[ANGELIC, OJIBWE], place=1))
    assert not drawers().equal(drawers(split_seed=1))
    assert not drawers().equal(drawers(tasks=[BLACKFOOT]))
    assert drawers(train_drawings=15)[:, 1:].equal(drawers())


def test_the_split_does_not_depend_on_the_order_in_the_folder(root, tmp_path, monkeypatch):
    usual = one(root).examples("train")[0][0]
    genuine = Path.glob
    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", lambda self, pattern: reversed(list(genuine(self, pattern))))
        assert one(root, cache_dir=str(tmp_path / "other")).examples("train")[0][0].equal(usual)


def test_other_files_do_not_matter(own):
    usual = one(own).examples("train")[0][0]
    for name in ("Thumbs.db", "._0001_01.png", "notes.txt"):
        (omniglot_folder(own, OJIBWE) / "character01" / name).touch()
    assert one(own).examples("train")[0][0].equal(usual)


def test_validation_split(root):
    datamodule = one(root, validation="split", validation_fraction=0.25)
    assert torch.bincount(datamodule.examples("train")[0][1]).tolist() == [12] * 14
    assert torch.bincount(datamodule.examples("validation")[0][1]).tolist() == [4] * 14


def test_nothing_unused():
    with pytest.raises(ValueError, match=r"Omniglot: validation: unused .* take validation: split"):
        Omniglot(validation="unused")


@pytest.mark.parametrize("drawings", [0, 20])
def test_bad_train_drawings(drawings):
    with pytest.raises(ValueError, match=f"Omniglot: train_drawings must lie between 1 and 19, got {drawings}"):
        Omniglot(train_drawings=drawings)


def test_checkpoints_do_not_hold_the_cache_folder():
    state = Omniglot(cache_dir="here", train_drawings=12).state_dict()
    assert "cache_dir" not in state
    assert state["train_drawings"] == 12


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


# Cache


def test_cache(own, cache, opened):
    first = one(own).examples("train")[0][0]
    assert len(opened) == 280
    assert [path.suffix for path in cache.iterdir()] == [".npz"]
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
    assert len(list(cache.iterdir())) == 1


def test_two_folders_have_a_cache_each(own, root, cache, opened):
    for _ in range(2):
        one(own).setup()
        one(root).setup()
    assert len(opened) == 2 * 280


@pytest.mark.parametrize("damage", ["empty", "html", "half", "flipped", "shape", "pickle", "no array"])
def test_damaged_cache_is_made_anew(own, cache, opened, damage):
    first = one(own).examples("train")[0][0]
    path = next(cache.iterdir())
    whole = path.read_bytes()
    with np.load(path) as file:
        mark = file["fingerprint"]
    if damage == "shape":
        np.savez_compressed(path, fingerprint=mark, array=np.zeros((2, 20, 105, 105), np.uint8))
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
    with pytest.warns(UserWarning, match=r"Omniglot: cannot keep .*--data.cache_dir") as caught:
        Omniglot(str(root), tasks=[OJIBWE, ANGELIC], cache_dir=str(tmp_path / "file/cache")).setup()
    assert len([warning for warning in caught if "cannot keep" in str(warning.message)]) == 1


def test_no_home_folder(root, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.warns(UserWarning, match="Omniglot: cannot keep the decoded images in ~"):
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


@pytest.mark.parametrize("download", [True, False])
def test_complete_data_needs_no_network_and_nothing_is_written(own, download, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    everything = [own, *own.rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in everything}
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        datamodule = one(own, download=download)
        datamodule.prepare_data()
        datamodule.setup()
        assert {path: path.stat().st_mtime_ns for path in [own, *own.rglob("*")]} == before
    finally:
        for path in everything:
            path.chmod(0o755)


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
        with pytest.raises(RuntimeError, match=f"Omniglot: the download from {URL.format('background')} .*by hand"):
            one(own, download=True).prepare_data()
        assert sorted(own.rglob("*.png")) == before
        assert not list(own.rglob("*.download"))


@pytest.mark.real_data
@pytest.mark.skipif("LWS_DATA_ROOT" not in os.environ, reason="LWS_DATA_ROOT is not set")
def test_real_data():
    datamodule = Omniglot(os.environ["LWS_DATA_ROOT"])
    for split, drawings, total in (("train", 16, 25_968), ("test", 4, 6_492)):
        examples = datamodule.examples(split)
        assert sum(len(labels) for _, labels in examples) == total
        for classes, (images, labels) in zip(datamodule.num_classes, examples, strict=True):
            assert torch.bincount(labels).tolist() == [drawings] * classes
            assert images[0].unique().tolist() == [0, 255]
            assert images.float().mean() > 127  # black on white
