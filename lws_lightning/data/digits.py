"""Four small tasks from scikit-learn's digits, without files: for experiments, tests and the quickstart."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.checks import require_at_least
from lws_lightning.data.splits import training_subset
from lws_lightning.data.tasks import Examples, TaskData

__all__ = ["Digits", "load_digit_images"]

_CLASS_NAMES = {"digit": tuple("0123456789"), "parity": ("even", "odd")}


class Digits(MultiTaskDataModule):
    """Two families of two tasks: sharing helps within a family, but hardly between families.

    | task | image | label | classes |
    | --- | --- | --- | --- |
    | upright_digit | unchanged | the digit | 10 |
    | upright_parity | unchanged | 0 even, 1 odd | 2 |
    | scrambled_digit | pixels permuted | the digit | 10 |
    | scrambled_parity | pixels permuted | 0 even, 1 odd | 2 |

    Source: the 1,797 8x8 images of `sklearn.datasets.load_digits` (13 writers; the test part of Alpaydin and
    Kaynak: Optical recognition of handwritten digits, UCI Machine Learning Repository, 1998, CC BY 4.0), grey
    levels 0..16 scaled to 0..255 and rounded. Training and test images may be by the same writer.

    Construction: the j-th image of each digit, counted from 0 in the order of `load_digits`, belongs to task
    `j mod 4` in the order of the table. No image is in two tasks, and the tasks have 454, 451, 447 and 445
    images with nearly the same number of every digit. Of a task's images, a stratified subset of
    `train_images_per_task` is drawn for training by `split_seed`; all others are test images. None are
    unused, so `validation: split` is possible and `validation: unused` is not.

    All images of the scrambled family have the same fixed permutation: the pixel at position p (row by row,
    from 0) comes from position `order[p]`, where `order` is 0..63 sorted by the SHA-256 of
    `b"scrambled pixel 0"`, `b"scrambled pixel 1"`, ... It keeps all information but no neighbourhoods, so
    that convolutions learned from upright images are of little use.

    Args:
        train_images_per_task: Size of each task's training set.
        **options: Those of `MultiTaskDataModule`; `root` is not used.

    Raises:
        ImportError: In `setup`, if scikit-learn is not installed.
        ValueError: An option is out of range.
    """

    class_counts: Mapping[str, int] = {
        "upright_digit": 10,
        "upright_parity": 2,
        "scrambled_digit": 10,
        "scrambled_parity": 2,
    }
    image_size = (1, 8, 8)

    def __init__(self, train_images_per_task: int = 100, **options: Any) -> None:
        super().__init__(**options)
        require_at_least(self.dataset_name, "train_images_per_task", train_images_per_task, 1)
        self.train_images_per_task = train_images_per_task

    def load_tasks(self) -> list[TaskData]:
        """Creates all four tasks.

        Raises:
            ImportError: scikit-learn is not installed.
            ValueError: `train_images_per_task` leaves a task no test image.
        """
        images, digits = load_digit_images()
        owner = torch.empty_like(digits)
        for digit in range(10):
            members = (digits == digit).nonzero().squeeze(1)
            owner[members] = torch.arange(len(members)) % len(self.class_counts)
        return [
            self._make_task(name, images[owner == number], digits[owner == number])
            for number, name in enumerate(self.class_counts)
        ]

    def _make_task(self, name: str, images: Tensor, digits: Tensor) -> TaskData:
        family, question = name.split("_")
        if family == "scrambled":
            images = images.flatten(1)[:, _scrambled_order()].view_as(images)
        labels = digits % 2 if question == "parity" else digits
        if self.train_images_per_task >= len(labels):
            raise ValueError(
                f"{self.dataset_name}, task {name!r}: train_images_per_task must be less than its "
                f"{len(labels)} images, got {self.train_images_per_task}."
            )
        everything, size = Examples(images, labels), self.train_images_per_task
        train, test = training_subset(self.dataset_name, name, everything, size, self.split_seed)
        return TaskData(name, train, test, class_names=_CLASS_NAMES[question])


def load_digit_images() -> tuple[Tensor, Tensor]:
    """Returns `(1797, 1, 8, 8)` uint8 images and `(1797,)` int64 labels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("these images need scikit-learn: pip install 'lws-lightning[digits]'") from error
    data = load_digits()
    images = torch.from_numpy(data.images).mul(255 / 16).round().to(torch.uint8).unsqueeze(1)
    return images, torch.from_numpy(data.target).to(torch.int64)


def _scrambled_order() -> Tensor:
    """Returns a fixed permutation, `(64,)` int64, that does not depend on a library's random numbers."""
    keys = [hashlib.sha256(b"scrambled pixel %d" % position).digest() for position in range(64)]
    return torch.tensor(sorted(range(64), key=keys.__getitem__))
