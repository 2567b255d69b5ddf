"""DKL-MNIST's files: missing, damaged, complete, downloaded."""

import gzip
import multiprocessing
import os
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest
import torchvision
from fakes import EMNIST_RAW, KMNIST_RAW
from read_only import left_alone
from small_dkl_mnist import small

EMNIST_URL = torchvision.datasets.EMNIST.url
KMNIST_URL = torchvision.datasets.KMNIST.mirrors[0]


def listing(folder):
    return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*"))


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
        "missing: t10k-labels-idx1-ubyte",
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
    assert message.count("missing:") == 1


def test_only_the_chosen_tasks_are_needed(root):
    shutil.rmtree(root / "KMNIST")
    for path in (root / EMNIST_RAW).glob("*digits*"):
        path.unlink()
    assert small(root, tasks=["letters"]).examples("train")[0][0].shape == (52, 1, 28, 28)
    with pytest.raises(FileNotFoundError, match=r"missing: .*t10k-images-idx3-ubyte"):
        small(root, tasks=["letters", "kuzushiji"]).setup()


@pytest.mark.parametrize("download", [True, False])
def test_complete_data_needs_no_network_and_nothing_is_written(root, download, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    monkeypatch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", None)
    with left_alone(root):
        datamodule = small(root, download=download)
        datamodule.prepare_data()
        datamodule.setup()
        next(iter(datamodule.train_dataloader()))


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
        with pytest.raises(RuntimeError, match=f"^{dataset}: the download from {url} to .* failed") as caught:
            small(tmp_path, tasks=[task], download=True).prepare_data()
        assert str(tmp_path) in str(caught.value)
        assert "manually" in str(caught.value)
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
    with pytest.raises(RuntimeError, match=r"EMNIST: cannot write to .*manually"):
        small(tmp_path / "data", download=True).prepare_data()
