"""What a data module loads, and its split into training, validation and test images."""

from dataclasses import replace

import pytest
import torch
from fakes import Tiny

from lws_lightning.data import Digits, Examples


def test_setup_loads_once():
    datamodule = Tiny()
    datamodule.setup("fit")
    datamodule.setup("test")
    datamodule.train_dataloader()
    datamodule.val_dataloader()
    datamodule.test_dataloader()
    assert datamodule.class_names == [None, None, None]
    assert datamodule.loads == 1


def altered(**changes):
    class Altered(Tiny):
        def task(self, name):
            task = super().task(name)
            return replace(task, **{key: change(task) for key, change in changes.items()}) if name == "b" else task

    return Altered()


def test_setup_checks_the_tasks():
    with pytest.raises(ValueError, match="Altered, task 'b': training labels must lie in"):
        altered(train=lambda task: Examples(task.train.images, task.train.labels + 1)).setup()
    with pytest.raises(ValueError, match="Altered, task 'b': load_tasks did not return it, only a, z, c"):
        altered(name=lambda task: "z").setup()


def test_task_without_test_images_is_said_and_skipped():
    datamodule = altered(test=lambda task: task.test.select(slice(0)))
    with pytest.warns(UserWarning, match="Altered: no test images in b; not included"):
        datamodule.setup()
    assert {batch.task for batch in datamodule.test_dataloader()} == {0, 2}


def test_no_test_images_at_all():
    class Untested(Tiny):
        sizes = {"a": (4, 0, 0), "b": (4, 0, 0), "c": (5, 0, 0)}  # noqa: RUF012

    with (
        pytest.raises(ValueError, match="Untested: none of the tasks has test images"),
        pytest.warns(UserWarning, match="no test images in a, b, c"),
    ):
        Untested().setup()


def numbers(examples):
    return [set(images[:, 0, 0, 0].tolist()) for images, _ in examples]


def test_no_validation_uses_the_test_images():
    datamodule = Tiny()
    assert datamodule.validation_prefix == "test_curve"
    assert [len(images) for images, _ in datamodule.examples("validation")] == [0, 0, 0]
    assert {int(n) for batch in datamodule.val_dataloader() for n in batch.images[:, 0, 0, 0]} == set(range(100, 111))


def test_validation_split_is_stratified_and_disjoint():
    datamodule = Tiny(validation="split", validation_fraction=0.25)
    assert datamodule.validation_prefix == "val"
    train, validation = datamodule.examples("train"), datamodule.examples("validation")
    assert [len(labels) for _, labels in validation] == [10, 16, 3]
    assert torch.bincount(validation[1][1]).tolist() == [4, 4, 4, 4]
    for kept, held_out, size in zip(numbers(train), numbers(validation), (40, 64, 12), strict=True):
        assert not kept & held_out
        assert kept | held_out == set(range(size))
    assert sum(len(batch.labels) for batch in datamodule.val_dataloader()) == 29
    assert sum(len(batch.labels) for batch in datamodule.test_dataloader()) == 21


def test_split_seed_alone_decides_the_split():
    def held_out(**options):
        return numbers(Tiny(validation="split", **options).examples("validation"))

    assert held_out() == held_out(seed=5, batch_size=3)
    assert held_out() != held_out(split_seed=1)


def test_validation_split_must_leave_every_class_an_image():
    datamodule = Tiny(validation="split", validation_fraction=0.9)
    with pytest.raises(ValueError, match=r"task 'c': .*validation_fraction 0.9 leaves no training image in class"):
        datamodule.setup()


def test_validation_unused():
    datamodule = Tiny(validation="unused")
    assert datamodule.validation_prefix == "val"
    assert numbers(datamodule.examples("validation")) == [set(range(200, 210))] * 3
    assert numbers(datamodule.examples("train"))[0] == set(range(40))
    capped = Tiny(validation="unused", validation_images=5).examples("validation")
    assert [len(labels) for _, labels in capped] == [5, 5, 5]
    assert torch.bincount(capped[2][1]).tolist() == [1] * 5


def test_validation_unused_with_nothing_unused():
    with pytest.raises(ValueError, match="Digits, task 'upright_digit': validation: unused needs"):
        Digits(validation="unused").setup()
