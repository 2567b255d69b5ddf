import sys

import pytest
import torch

from lws_lightning.data import Digits
from lws_lightning.data.digits import _scrambled_order, load_digit_images

NAMES = ["upright_digit", "upright_parity", "scrambled_digit", "scrambled_parity"]


def test_facts():
    assert Digits().task_info == {
        "task_names": NAMES,
        "num_classes": [10, 2, 10, 2],
        "image_shape": [1, 8, 8],
        "validation_prefix": "test_curve",
    }


def test_sizes_classes_and_range():
    datamodule = Digits()
    train, test = datamodule.examples("train"), datamodule.examples("test")
    assert [len(labels) for _, labels in train] == [100] * 4
    assert [len(labels) for _, labels in test] == [354, 351, 347, 345]
    for classes, (images, labels) in zip((10, 2, 10, 2), train, strict=True):
        assert images.shape == (100, 1, 8, 8)
        assert images.dtype == torch.uint8
        assert images.max() == 255
        counts = torch.bincount(labels)
        assert len(counts) == classes
        assert counts.max() - counts.min() <= 2
    assert datamodule.class_names[1] == ("even", "odd")


def test_each_image_serves_once():
    """All images of all tasks, unscrambled, are load_digits's own."""
    datamodule = Digits()
    back = _scrambled_order().argsort()
    found = []
    for task, name in enumerate(NAMES):
        for split in ("train", "test"):
            images = datamodule.examples(split)[task][0].flatten(1)
            found.append(images[:, back] if name.startswith("scrambled") else images)
    everything = torch.cat(found)
    originals, _ = load_digit_images()
    assert len(everything) == 1797
    assert sorted(everything.tolist()) == sorted(originals.flatten(1).tolist())


def test_construction_as_documented():
    images, digits = load_digit_images()
    threes = images[digits == 3][2::4].flatten(1)  # scrambled_digit is the third task
    datamodule = Digits()
    parts = [datamodule.examples(split)[2] for split in ("train", "test")]
    found = torch.cat([x[y == 3] for x, y in parts]).flatten(1)
    assert sorted(found.tolist()) == sorted(threes[:, _scrambled_order()].tolist())
    order = _scrambled_order()
    assert order.sort().values.equal(torch.arange(64))
    assert order[:4].tolist() == [59, 63, 20, 11]


def test_parity_is_that_of_the_digit():
    images, digits = load_digit_images()
    parity = {tuple(x): int(d) % 2 for x, d in zip(images.flatten(1).tolist(), digits, strict=True)}
    found, labels = Digits().examples("test")[1]
    assert [parity[tuple(x)] for x in found.flatten(1).tolist()] == labels.tolist()


def test_split_seed_decides_and_a_task_does_not_depend_on_others():
    def train(**options):
        return Digits(**options).examples("train")[-1][0]

    assert train().equal(train(tasks=["scrambled_parity"], seed=4))
    assert not train().equal(train(split_seed=1))


@pytest.mark.parametrize(("size", "message"), [(0, "at least 1, got 0"), (445, "less than its 445 images, got 445")])
def test_bad_training_size(size, message):
    with pytest.raises(ValueError, match=f"Digits.*train_images_per_task must be {message}"):
        Digits(train_images_per_task=size, tasks=["scrambled_parity"]).setup()


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    datamodule = Digits()
    with pytest.raises(ImportError, match=r"pip install 'lws-lightning\[digits\]'"):
        datamodule.setup()
