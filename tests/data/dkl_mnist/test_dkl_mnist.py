"""DKL-MNIST's tasks: facts, images, subsets, options."""

import os

import numpy as np
import pytest
import torch
from fakes import EMNIST_RAW, KMNIST_RAW, write_idx, write_pair
from small_dkl_mnist import small

from lws_lightning.data import DKLMNIST

FACTS = {
    "task_names": ["digits", "letters", "kuzushiji"],
    "num_classes": [10, 26, 10],
    "image_shape": [1, 28, 28],
    "validation_prefix": "test_curve",
}


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
