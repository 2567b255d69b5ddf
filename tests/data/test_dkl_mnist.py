import gzip
import multiprocessing
import os
import shutil
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from fakes import EMNIST_RAW, KMNIST_RAW, write_dkl_mnist, write_idx, write_pair

from lws_lightning.data import DKLMNIST

EMNIST_URL = torchvision.datasets.EMNIST.url
KMNIST_URL = torchvision.datasets.KMNIST.mirrors[0]
FACTS = {
    "task_names": ["digits", "letters", "kuzushiji"],
    "num_classes": [10, 26, 10],
    "image_shape": [1, 28, 28],
    "validation_prefix": "test_curve",
}


@pytest.fixture
def root(tmp_path):
    return write_dkl_mnist(tmp_path / "data", train_per_class=6, test_per_class=2)


def small(root, **options):
    return DKLMNIST(str(root), **{"train_images_per_task": 52} | options)


def listing(folder):
    return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_facts_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert DKLMNIST(download=True).task_info == FACTS
    assert list(tmp_path.iterdir()) == []


def test_tasks(root):
    datamodule = small(root)
    datamodule.prepare_data()
    train, test = datamodule.examples("train"), datamodule.examples("test")
    for (images, labels), (test_images, test_labels), classes in zip(train, test, (10, 26, 10), strict=True):
        assert images.shape == (52, 1, 28, 28)
        assert test_images.shape == (2 * classes, 1, 28, 28)
        assert images.dtype == test_images.dtype == torch.uint8
        assert labels.dtype == torch.int64
        counts = torch.bincount(labels, minlength=classes)
        assert counts.max() - counts.min() <= 1
        assert len(counts) == classes
        assert test_labels.unique().equal(torch.arange(classes))
    names = datamodule.class_names
    assert [len(n) for n in names] == [10, 26, 10]
    assert names[1][0] == "a"
    batch = next(iter(datamodule.train_dataloader()))
    assert batch.nes.images.shape == (3, 16, 1, 28, 28)


def test_subset_is_decided_by_split_seed_alone(root):
    def subset(**options):
        return small(root, **options).examples("train")[-1][0]

    assert subset().equal(subset(seed=3, tasks=["kuzushiji"]))
    assert not subset().equal(subset(split_seed=1))


def test_unused_images_are_the_rest(root):
    datamodule = small(root, validation="unused")
    sizes = [len(labels) for _, labels in datamodule.examples("validation")]
    assert sizes == [60 - 52, 156 - 52, 60 - 52]
    for (train, _), (validation, _) in zip(
        datamodule.examples("train"), datamodule.examples("validation"), strict=True
    ):
        both = torch.cat([train, validation]).flatten(1)
        assert len(both.unique(dim=0)) == len(both)


def test_nothing_unused(root):
    with pytest.raises(ValueError, match="DKLMNIST, task 'digits': validation: unused needs"):
        small(root, validation="unused", train_images_per_task=60, tasks=["digits"]).setup()


@pytest.mark.parametrize("size", [0, -3])
def test_bad_subset_size(size):
    with pytest.raises(ValueError, match=f"DKLMNIST: train_images_per_task must be at least 1, got {size}"):
        DKLMNIST(train_images_per_task=size)


def test_subset_larger_than_the_files(root):
    with pytest.raises(ValueError, match="task 'digits': train_images_per_task is 500, but there are only 60"):
        DKLMNIST(str(root)).setup()


@pytest.mark.parametrize(("upright", "place"), [(True, (20, 2)), (False, (2, 20))])
def test_orientation(tmp_path, upright, place):
    """Files with one bright pixel at row 2, column 20: EMNIST's are transposed, KMNIST's never touched."""
    for folder, prefixes in (
        (EMNIST_RAW, [f"emnist-{n}-{s}" for n in ("digits", "letters") for s in ("train", "test")]),
        (KMNIST_RAW, ["train", "t10k"]),
    ):
        for prefix in prefixes:
            images = np.zeros((3, 28, 28))
            images[:, 2, 20] = 255
            write_pair(tmp_path / folder, prefix, images, np.array([1, 2, 3]))
    datamodule = DKLMNIST(str(tmp_path), upright=upright, train_images_per_task=2, validation="unused")
    for split in ("train", "validation", "test"):
        for name, (images, _) in zip(datamodule.task_names, datamodule.examples(split), strict=True):
            expected = torch.zeros(1, 28, 28, dtype=torch.uint8)
            expected[(0, *(place if name != "kuzushiji" else (2, 20)))] = 255
            assert len(images) > 0
            assert all(image.equal(expected) for image in images)


def test_wrong_labels_are_named(root):
    write_idx(root / EMNIST_RAW / "emnist-letters-test-labels-idx1-ubyte", np.zeros(52))
    with pytest.raises(ValueError, match=r"DKLMNIST, task 'letters': test labels must lie in 0..25, found -1"):
        small(root).setup()


# Missing and damaged files


def test_missing_and_damaged_files_are_all_named(root):
    (root / KMNIST_RAW / "t10k-labels-idx1-ubyte").unlink()
    (root / KMNIST_RAW / "train-labels-idx1-ubyte").write_bytes(b"<html>")
    half = root / EMNIST_RAW / "emnist-letters-train-images-idx3-ubyte"
    half.write_bytes(half.read_bytes()[:5000])
    (root / EMNIST_RAW / "emnist-digits-test-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0")
    with pytest.raises(FileNotFoundError) as caught:
        small(root).setup()
    message = str(caught.value)
    assert message.startswith("DKLMNIST: ")
    for part in (
        "t10k-labels-idx1-ubyte: missing",
        "train-labels-idx1-ubyte: damaged (not an IDX file)",
        "emnist-letters-train-images-idx3-ubyte: damaged (5,000 bytes instead of 122,320)",
        "emnist-digits-test-labels-idx1-ubyte: damaged",
        str(root / EMNIST_RAW),
        str(root / KMNIST_RAW),
        EMNIST_URL,
        KMNIST_URL,
        "--data.download true",
    ):
        assert part in message
    assert "emnist-digits-train" not in message
    assert message.count("missing\n") == 1


def test_only_the_chosen_tasks_are_needed(root):
    shutil.rmtree(root / "KMNIST")
    for path in (root / EMNIST_RAW).glob("*digits*"):
        path.unlink()
    assert small(root, tasks=["letters"]).examples("train")[0][0].shape == (52, 1, 28, 28)
    with pytest.raises(FileNotFoundError, match="t10k-images-idx3-ubyte: missing"):
        small(root, tasks=["letters", "kuzushiji"]).setup()


@pytest.mark.parametrize("download", [True, False])
def test_complete_data_needs_no_network_and_nothing_is_written(root, download, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    monkeypatch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", None)
    before = listing(root)
    for path in [root, *root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        datamodule = small(root, download=download)
        datamodule.prepare_data()
        datamodule.setup()
        next(iter(datamodule.train_dataloader()))
        assert listing(root) == before
    finally:
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755)


# Download


class Server:
    """Stands in for torchvision's download_and_extract_archive."""

    def __init__(self, source, log, seconds=0.0):
        self.source = source
        self.log = log
        self.seconds = seconds

    def __call__(self, url, download_root, filename=None, md5=None, **_):
        with self.log.open("a") as log:
            log.write(f"{url}\n")
        time.sleep(self.seconds)
        if url == EMNIST_URL:
            folder = Path(download_root) / "gzip"
            folder.mkdir()
            for path in (self.source / EMNIST_RAW).iterdir():
                (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
        else:
            name = Path(url).stem
            shutil.copy(self.source / KMNIST_RAW / name, Path(download_root) / name)


@pytest.fixture
def served(root, tmp_path, monkeypatch):
    """Serves the files of `root`; returns an empty data folder and the log of requests."""
    log = tmp_path / "requests"
    log.touch()
    monkeypatch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", Server(root, log))
    return tmp_path / "new", log


def names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_download(root, served):
    new, log = served
    small(new).prepare_data()  # download is off
    assert not new.exists()
    datamodule = small(new, download=True)
    datamodule.prepare_data()
    assert names(new) == names(root)
    assert not list(new.glob("*.download"))
    assert len(log.read_text().splitlines()) == 1 + 4
    for a, b in zip(datamodule.examples("train"), small(root).examples("train"), strict=True):
        assert a[0].equal(b[0])
    small(new, download=True).prepare_data()
    assert len(log.read_text().splitlines()) == 1 + 4


def test_only_what_is_missing_is_downloaded(root, served):
    new, log = served
    small(new, tasks=["kuzushiji"], download=True).prepare_data()
    assert names(new) == names(root / "KMNIST")
    before = listing(new / "KMNIST")
    (new / EMNIST_RAW).mkdir(parents=True)
    kept = new / EMNIST_RAW / "emnist-digits-test-labels-idx1-ubyte"
    shutil.copy2(root / EMNIST_RAW / kept.name, kept)
    stamp = kept.stat().st_mtime_ns
    small(new, download=True).prepare_data()
    assert listing(new / "KMNIST") == before
    assert kept.stat().st_mtime_ns == stamp
    assert log.read_text().count(EMNIST_URL) == 1


def test_damaged_file_is_replaced(root, served):
    new, _ = served
    small(new, download=True).prepare_data()
    path = new / KMNIST_RAW / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:100])
    small(new, download=True).prepare_data()
    assert path.read_bytes() == (root / KMNIST_RAW / path.name).read_bytes()


@pytest.mark.parametrize("task", ["letters", "kuzushiji"])
def test_html_instead_of_the_archive(tmp_path, monkeypatch, task):
    def write_html(url, filename, *_, **__):
        Path(filename).write_bytes(b"<html>moved</html>" * 60)

    monkeypatch.setattr(torchvision.datasets.utils, "_get_redirect_url", lambda url, **_: url)
    monkeypatch.setattr(torchvision.datasets.utils, "_urlretrieve", write_html)
    dataset, url = ("KMNIST", KMNIST_URL) if task == "kuzushiji" else ("EMNIST", EMNIST_URL)
    for _ in range(2):  # nothing is left that the second try takes for complete
        with pytest.raises(RuntimeError, match=f"^{dataset}: the download from {url} into .* failed") as caught:
            small(tmp_path, tasks=[task], download=True).prepare_data()
        assert str(tmp_path) in str(caught.value)
        assert "by hand" in str(caught.value)
        assert names(tmp_path) == []
        assert not list(tmp_path.glob("*.download"))


def test_archive_with_half_a_file(root, served):
    new, _ = served
    half = root / KMNIST_RAW / "t10k-images-idx3-ubyte"
    half.write_bytes(half.read_bytes()[:-1])
    with pytest.raises(RuntimeError, match=r"KMNIST: the download .* t10k-images-idx3-ubyte is damaged"):
        small(new, tasks=["kuzushiji"], download=True).prepare_data()
    assert names(new) == []


def test_no_network(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("network is unreachable")

    monkeypatch.setattr(torchvision.datasets.utils, "_get_redirect_url", refuse)
    with pytest.raises(RuntimeError, match=f"EMNIST: the download from {EMNIST_URL} .*network is unreachable"):
        small(tmp_path, download=True).prepare_data()


def test_leftovers_of_an_interrupted_download_are_removed(root, served, monkeypatch):
    new, _ = served
    leftover = new / ".KMNIST.download/KMNIST/raw/train-images-idx3-ubyte"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half")
    small(new, download=True).prepare_data()
    assert names(new) == names(root)
    assert not leftover.exists()


def test_interruption_while_downloading(served, monkeypatch):
    new, _ = served

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            small(new, download=True).prepare_data()
    assert names(new) == []
    small(new, download=True).prepare_data()
    small(new).setup()


@pytest.mark.parametrize("kind", [threading.Thread, multiprocessing.get_context("fork").Process])
def test_two_runs_download_once(root, served, monkeypatch, kind):
    new, log = served
    monkeypatch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", Server(root, log, 0.1))
    runs = [kind(target=small(new, download=True).prepare_data) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(log.read_text().splitlines()) == 1 + 4
    assert names(new) == names(root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_download_into_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(RuntimeError, match="EMNIST: cannot write to"):
        small(tmp_path, download=True).prepare_data()


def test_root_that_is_a_file(tmp_path):
    (tmp_path / "data").touch()
    with pytest.raises(RuntimeError, match=r"EMNIST: cannot write to .*by hand"):
        small(tmp_path / "data", download=True).prepare_data()


@pytest.mark.real_data
@pytest.mark.skipif("LWS_DATA_ROOT" not in os.environ, reason="LWS_DATA_ROOT is not set")
def test_real_data():
    datamodule = DKLMNIST(os.environ["LWS_DATA_ROOT"])
    assert [len(labels) for _, labels in datamodule.examples("train")] == [500, 500, 500]
    test_sizes = [len(labels) for _, labels in datamodule.examples("test")]
    # The paper's sizes, or those of the stand-in that development uses.
    assert test_sizes in ([40_000, 20_800, 10_000], [10_000, 5_070, 9_000])
    digits, labels = datamodule.examples("test")[0]
    ones = digits[labels == 1].float().mean(0)[0]
    assert ones.amax(1).gt(40).sum() > ones.amax(0).gt(40).sum()  # an upright 1 is taller than wide
