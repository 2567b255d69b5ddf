"""The images and labels of a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lws_lightning.data.streaming import Images

__all__ = ["Examples", "TaskData", "choose_tasks"]


class Examples(NamedTuple):
    """Images of one task and their labels.

    Attributes:
        images: `(N, C, H, W)` uint8 in [0, 255]: a tensor, or a `StreamedImages` if they do not fit in memory.
        labels: `(N,)` int64.
    """

    images: Images
    labels: Tensor

    def select(self, index: Tensor | slice) -> "Examples":
        """Returns the examples at `index`, `(n,)` int64 or a slice; streamed images are not read."""
        return Examples(self.images[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class TaskData:
    """The images and labels of one task.

    Attributes:
        name: Name of the task, as in the option `tasks`.
        train: Training images, at least one.
        test: Test images. Without any, the task is omitted from evaluations.
        unused: Training images that are not in the data set's training subset; `validation: unused` draws from them.
            None: there are none.
        class_names: A name for each class, or None.
    """

    name: str
    train: Examples
    test: Examples
    unused: Examples | None = None
    class_names: tuple[str, ...] | None = None

    def check(self, dataset: str, num_classes: int, image_shape: Sequence[int]) -> None:
        """Checks the data, because a wrong label on a GPU causes only a device-side assert.

        Args:
            dataset: Name of the data set, for the message.
            num_classes: Declared number of classes; labels are in `[0, num_classes)`.
            image_shape: Declared `[C, H, W]`.

        Raises:
            ValueError: A dtype, shape or number is wrong, a label is outside `[0, num_classes)`, or there are no
                training images. The message names the data set and the task.
        """
        where = f"{dataset}, task {self.name!r}"
        for split, examples in (("training", self.train), ("test", self.test), ("unused", self.unused)):
            if examples is None:
                continue
            images, labels = examples
            if images.dtype != torch.uint8 or images.ndim != 4:
                raise ValueError(
                    f"{where}: {split} images must be a (N, C, H, W) uint8 tensor, "
                    f"got {tuple(images.shape)} {images.dtype}."
                )
            if labels.dtype != torch.int64 or labels.ndim != 1:
                raise ValueError(
                    f"{where}: {split} labels must be a (N,) int64 tensor, got {tuple(labels.shape)} {labels.dtype}."
                )
            if len(images) != len(labels):
                raise ValueError(f"{where}: {len(images)} {split} images but {len(labels)} labels.")
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
                raise ValueError(
                    f"{where}: {split} labels must lie in 0..{num_classes - 1}, "
                    f"found {int(labels.min())}..{int(labels.max())}."
                )
            if list(images.shape[1:]) != list(image_shape):
                raise ValueError(
                    f"{where}: {split} images of shape {list(image_shape)} declared, {list(images.shape[1:])} loaded."
                )
        if len(self.train.labels) == 0:
            raise ValueError(f"{where}: there are no training images.")
        if self.class_names is not None and len(self.class_names) != num_classes:
            raise ValueError(f"{where}: {len(self.class_names)} class names for {num_classes} classes.")


def choose_tasks(dataset: str, available: Sequence[str], tasks: Sequence[str] | None) -> list[str]:
    """Returns the names of the chosen tasks, in their order; with None all.

    Raises:
        ValueError: If a task does not exist or is named twice, or none is chosen.
    """
    if tasks is None:
        return list(available)
    unknown = [name for name in tasks if name not in available]
    if unknown:
        raise ValueError(
            f"{dataset}: no task named {', '.join(map(repr, unknown))} (option tasks); "
            f"there are: {', '.join(available)}."
        )
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(f"{dataset}: tasks must name each task once, at least one; got {tasks}.")
    return list(tasks)
