import os
import pickle
import shutil
import socket
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from fakes import cifar100_hierarchy, python2_pickle, write_cifar100
from read_only import left_alone

from lws_lightning.data import CIFAR100CoarseLabel
from lws_lightning.data.data_pickle import load_data_pickle

URL = torchvision.datasets.CIFAR100.url
FOLDER = "cifar-100-python"


@pytest.fixture
def root(tmp_path):
    return write_cifar100(tmp_path / "data")


def change(root, split, **entries):
    path = root / FOLDER / split
    path.write_bytes(python2_pickle(load_data_pickle(path) | entries))


def entry(root, split, name):
    return load_data_pickle(root / FOLDER / split)[name]


def test_facts_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    datamodule = CIFAR100CoarseLabel(download=True)
    assert datamodule.num_classes == [5] * 20
    assert datamodule.image_shape == [3, 32, 32]
    assert datamodule.task_names[:2] == ["aquatic_mammals", "fish"]
    assert datamodule.task_names[-1] == "vehicles_2"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "dumps", [python2_pickle, *(partial(pickle.dumps, protocol=p) for p in (2, 4, 5))], ids=["python2", "2", "4", "5"]
)
def test_tasks(tmp_path, dumps):
    datamodule = CIFAR100CoarseLabel(str(write_cifar100(tmp_path, dumps=dumps)))
    coarse_of = cifar100_hierarchy()
    names = datamodule.class_names
    for split, per_class in (("train", 4), ("test", 2)):
        for coarse, (images, labels) in enumerate(datamodule.examples(split)):
            assert images.shape == (5 * per_class, 3, 32, 32)
            assert images.dtype == torch.uint8
            assert torch.bincount(labels).tolist() == [per_class] * 5
            fine = images[:, 0, 0, 0].long()
            assert np.flatnonzero(coarse_of == coarse)[labels].tolist() == fine.tolist()
            assert [names[coarse][label] for label in labels] == [f"fine {number}" for number in fine]
    batch = next(iter(datamodule.train_dataloader()))
    assert batch.sgd.images.shape == (20, 16, 3, 32, 32)


def test_planes_are_red_green_and_blue(root):
    data = entry(root, "train", "data").copy()
    data[:] = np.arange(3072) // 1024 * 100  # the files hold 1,024 red values, then green, then blue
    data[:, 1:3] = 7, 8  # the top row, left to right
    change(root, "train", data=data)
    image = CIFAR100CoarseLabel(str(root)).examples("train")[0][0][0]
    assert image.flatten(1)[:, 3:].unique(dim=1).tolist() == [[0], [100], [200]]
    assert image[0, 0, 1:3].tolist() == [7, 8]


def test_a_class_without_test_images_moves_no_label(tmp_path):
    classes = np.flatnonzero(cifar100_hierarchy() == 3)
    datamodule = CIFAR100CoarseLabel(str(write_cifar100(tmp_path, absent_in_test=classes[:2])))
    images, labels = datamodule.examples("test")[3]
    assert labels.unique().tolist() == [2, 3, 4]
    assert classes[labels].tolist() == images[:, 0, 0, 0].tolist()


def test_chosen_tasks(root):
    datamodule = CIFAR100CoarseLabel(str(root), tasks=["trees", "fish"])
    whole = CIFAR100CoarseLabel(str(root))
    for own, place in zip(datamodule.examples("train"), (17, 1), strict=True):
        assert own[0].equal(whole.examples("train")[place][0])


def test_names_are_optional(root):
    (root / FOLDER / "meta").unlink()
    assert CIFAR100CoarseLabel(str(root)).class_names == [None] * 20


# Subset and validation


def test_subset(root):
    def subset(**options):
        return CIFAR100CoarseLabel(str(root), train_images_per_task=10, **options).examples("train")[-1][0]

    assert subset().equal(subset(seed=3, tasks=["vehicles_2"]))
    assert not subset().equal(subset(split_seed=1))
    datamodule = CIFAR100CoarseLabel(str(root), train_images_per_task=10, validation="unused")
    for split in ("train", "validation"):
        assert all(torch.bincount(labels).tolist() == [2] * 5 for _, labels in datamodule.examples(split))
    everything = CIFAR100CoarseLabel(str(root)).examples("train")
    for (images, _), *parts in zip(
        everything, datamodule.examples("train"), datamodule.examples("validation"), strict=True
    ):
        both = torch.cat([part for part, _ in parts]).flatten(1).tolist()
        assert sorted(both) == sorted(images.flatten(1).tolist())


def test_validation_split(root):
    datamodule = CIFAR100CoarseLabel(str(root), validation="split", validation_fraction=0.25)
    assert [len(labels) for _, labels in datamodule.examples("train")] == [15] * 20
    assert [len(labels) for _, labels in datamodule.examples("validation")] == [5] * 20


def test_nothing_unused():
    with pytest.raises(ValueError, match=r"CIFAR100CoarseLabel: validation: unused needs .* set train_images_per_task"):
        CIFAR100CoarseLabel(validation="unused")


def test_bad_subset_sizes(root):
    with pytest.raises(ValueError, match="CIFAR100CoarseLabel: train_images_per_task must be at least 1, got 0"):
        CIFAR100CoarseLabel(train_images_per_task=0)
    with pytest.raises(ValueError, match="'aquatic_mammals': train_images_per_task is 21, but there are only 20"):
        CIFAR100CoarseLabel(str(root), train_images_per_task=21).setup()


# Labels that contradict each other


@pytest.mark.parametrize("split", ["train", "test"])
def test_fine_label_with_two_coarse_labels(root, split):
    fine, coarse = entry(root, split, "fine_labels"), entry(root, split, "coarse_labels")
    coarse[0] = (coarse[0] + 1) % 20
    change(root, split, coarse_labels=coarse)
    with pytest.raises(ValueError, match=r"CIFAR100CoarseLabel: .* fine labels that no other task has") as caught:
        CIFAR100CoarseLabel(str(root)).setup()
    assert str(fine[0]) in str(caught.value)
    assert str(root) in str(caught.value)


def test_class_without_training_images(root):
    fine = np.array(entry(root, "train", "fine_labels"))
    gone = int(np.flatnonzero(cifar100_hierarchy() == 6)[0])
    kept = fine != gone
    change(
        root,
        "train",
        data=entry(root, "train", "data")[kept],
        fine_labels=fine[kept].tolist(),
        coarse_labels=np.array(entry(root, "train", "coarse_labels"))[kept].tolist(),
    )
    with pytest.raises(ValueError, match=r"task 'household_furniture' .* needs training images of 5 fine"):
        CIFAR100CoarseLabel(str(root)).setup()
    CIFAR100CoarseLabel(str(root), tasks=["fish"]).setup()


# Missing and damaged files


def test_missing_and_damaged_files_are_all_named(root):
    path = root / FOLDER / "train"
    path.write_bytes(path.read_bytes()[:100_000])
    (root / FOLDER / "test").unlink()
    (root / FOLDER / "meta").write_bytes(b"<html>")
    with pytest.raises(FileNotFoundError) as caught:
        CIFAR100CoarseLabel(str(root)).setup()
    message = str(caught.value)
    assert message.startswith("CIFAR100CoarseLabel: ")
    for part in ("train: damaged", "missing: test", "meta: damaged", str(root / FOLDER), URL, "--data.download true"):
        assert part in message


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({"fine_labels": [1, 2]}, "200 images, but fine_labels of shape \\(2,\\)"),
        ({"fine_labels": [100] * 200}, r"fine labels outside 0..99"),
        ({"coarse_labels": [-1] * 200}, r"coarse labels outside 0..19"),
        ({"fine_labels": ["a"] * 200}, r"fine labels outside 0..99"),
        ({"data": np.zeros((200, 3071), np.uint8)}, r"data is uint8 \(200, 3071\)"),
        ({"data": np.zeros((200, 3072))}, "data is float64"),
    ],
)
def test_wrong_contents(root, entries, complaint):
    change(root, "test", **entries)
    with pytest.raises(FileNotFoundError, match=rf"test: damaged \({complaint}"):
        CIFAR100CoarseLabel(str(root)).setup()


@pytest.mark.parametrize("contents", [[1, 2], {"data": 1}])
def test_another_pickle(root, contents):
    for name in ("train", "meta"):
        (root / FOLDER / name).write_bytes(pickle.dumps(contents))
    with pytest.raises(FileNotFoundError, match=r"train: damaged .*\n  meta: damaged"):
        CIFAR100CoarseLabel(str(root)).setup()


def test_order_of_the_coarse_names_is_checked(root):
    change(root, "meta", coarse_label_names=sorted(CIFAR100CoarseLabel.class_counts)[::-1])
    with pytest.raises(FileNotFoundError, match="meta: damaged"):
        CIFAR100CoarseLabel(str(root)).setup()


class Attack:
    def __reduce__(self):
        return os.mkdir, ("attacked",)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_file_cannot_run_code(root, protocol):
    (root / FOLDER / "train").write_bytes(pickle.dumps({"data": Attack()}, protocol=protocol))
    with pytest.raises(FileNotFoundError, match=r"refers to (posix|nt).mkdir"):
        CIFAR100CoarseLabel(str(root)).setup()
    assert not Path("attacked").exists()


@pytest.mark.parametrize(
    "raw", [b"c__builtin__\neval\n.", b"cbuiltins\ngetattr\n.", b"cnumpy\nload\n.", b"c_codecs\ndecode\n."]
)
def test_builtins_that_are_no_data(tmp_path, raw):
    (tmp_path / "file").write_bytes(raw)
    with pytest.raises(ValueError, match="is not data"):
        load_data_pickle(tmp_path / "file")


@pytest.mark.parametrize("download", [True, False])
def test_complete_data_needs_no_network_and_nothing_is_written(root, download, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    with left_alone(root):
        datamodule = CIFAR100CoarseLabel(str(root), download=download)
        datamodule.prepare_data()
        datamodule.setup()


# Download


@pytest.fixture
def served(root, monkeypatch):
    """Serves the files of `root` in place of torchvision's download; returns the list of requests."""
    requests = []

    def serve(url, download_root, filename, md5):
        requests.append(url)
        archive = Path(download_root) / filename
        with tarfile.open(archive, "w") as tar:
            tar.add(root / FOLDER, FOLDER)
        with tarfile.open(archive) as tar:
            tar.extractall(download_root, filter="data")

    def present(self):
        return (Path(self.root) / FOLDER / "train").exists()

    monkeypatch.setattr(torchvision.datasets.cifar, "download_and_extract_archive", serve)
    monkeypatch.setattr(torchvision.datasets.CIFAR100, "_check_integrity", present)
    monkeypatch.setattr(torchvision.datasets.CIFAR100, "_load_meta", lambda self: None)
    return requests


def test_download(root, tmp_path, served):
    new = tmp_path / "new"
    CIFAR100CoarseLabel(str(new)).prepare_data()  # download is off
    assert not new.exists()
    datamodule = CIFAR100CoarseLabel(str(new), download=True)
    for _ in range(2):
        datamodule.prepare_data()
        assert served == [URL]
    assert sorted(path.name for path in (new / FOLDER).iterdir()) == ["meta", "test", "train"]
    assert not list(new.glob("*.download")) + list(new.glob("*.tar.gz"))
    for ours, theirs in zip(datamodule.examples("test"), CIFAR100CoarseLabel(str(root)).examples("test"), strict=True):
        assert ours[0].equal(theirs[0])


def test_damaged_file_is_replaced(root, tmp_path, served):
    new = tmp_path / "new"
    shutil.copytree(root, new)
    path = new / FOLDER / "test"
    path.write_bytes(path.read_bytes()[:1000])
    CIFAR100CoarseLabel(str(new), download=True).prepare_data()
    assert path.read_bytes() == (root / FOLDER / "test").read_bytes()


def test_no_network(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("network is unreachable")

    monkeypatch.setattr(torchvision.datasets.utils, "_get_redirect_url", refuse)
    with pytest.raises(RuntimeError, match=f"CIFAR100: the download from {URL} .*network is unreachable"):
        CIFAR100CoarseLabel(str(tmp_path), download=True).prepare_data()
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.real_data
@pytest.mark.skipif("LWS_DATA_ROOT" not in os.environ, reason="LWS_DATA_ROOT is not set")
def test_real_data():
    datamodule = CIFAR100CoarseLabel(os.environ["LWS_DATA_ROOT"])
    sizes = [{len(labels) for _, labels in datamodule.examples(split)} for split in ("train", "test")]
    # CIFAR-100's own sizes, or those of the balanced part that development uses.
    assert sizes in ([{2500}, {500}], [{1000}, {250}])
    for split in ("train", "test"):
        for _, labels in datamodule.examples(split):
            counts = torch.bincount(labels)
            assert len(counts) == 5
            assert counts.unique().numel() == 1
    names = dict(zip(datamodule.task_names, datamodule.class_names, strict=True))
    assert names["trees"] == ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree")
