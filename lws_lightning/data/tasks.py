"""What a data set hands over: the images and labels of one task, and the choice of a subset of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lws_lightning.data.streaming import Images

__all__ = ["TaskData", "stratified_subset"]


@dataclass(frozen=True, eq=False)
class TaskData:
    """The images and labels of one task. Images are tensors, or a `StreamedImages` where memory does not hold them.

    Attributes:
        name: Name of the task, as in the option `tasks`.
        num_classes: Number of classes; labels lie in `[0, num_classes)`.
        train_images: `(N, C, H, W)` uint8 in [0, 255], N >= 1.
        train_labels: `(N,)` int64.
        test_images: `(M, C, H, W)` uint8; M may be 0, the task is then left out of every evaluation.
        test_labels: `(M,)` int64.
        unused_images: `(U, C, H, W)` uint8: training images that the data set's training subset left out;
            U may be 0. `validation: unused` draws from them.
        unused_labels: `(U,)` int64.
        class_names: A name for each class, or None.
    """

    name: str
    num_classes: int
    train_images: Images
    train_labels: Tensor
    test_images: Images
    test_labels: Tensor
    unused_images: Images
    unused_labels: Tensor
    class_names: tuple[str, ...] | None = None

    def check(self, dataset: str) -> None:
        """Checks the data, since a wrong label shows up on a GPU only as a device-side assert.

        Args:
            dataset: Name of the data set, for the message.

        Raises:
            ValueError: A dtype, shape or count does not fit, a label lies outside `[0, num_classes)`, or there
                are no training images. The message names the data set and the task.
        """
        where = f"{dataset}, task {self.name!r}"
        parts = {
            "training": (self.train_images, self.train_labels),
            "test": (self.test_images, self.test_labels),
            "unused": (self.unused_images, self.unused_labels),
        }
        for part, (images, labels) in parts.items():
            if images.dtype != torch.uint8 or images.ndim != 4:
                raise ValueError(
                    f"{where}: {part} images must be a (N, C, H, W) uint8 tensor, "
                    f"got {tuple(images.shape)} {images.dtype}."
                )
            if labels.dtype != torch.int64 or labels.ndim != 1:
                raise ValueError(
                    f"{where}: {part} labels must be a (N,) int64 tensor, got {tuple(labels.shape)} {labels.dtype}."
                )
            if len(images) != len(labels):
                raise ValueError(f"{where}: {len(images)} {part} images but {len(labels)} labels.")
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.num_classes:
                raise ValueError(
                    f"{where}: {part} labels must lie in 0..{self.num_classes - 1}, "
                    f"found {int(labels.min())}..{int(labels.max())}."
                )
            if len(images) and images.shape[1:] != self.train_images.shape[1:]:
                raise ValueError(
                    f"{where}: {part} images have shape {tuple(images.shape[1:])}, "
                    f"training images {tuple(self.train_images.shape[1:])}."
                )
        if len(self.train_images) == 0:
            raise ValueError(f"{where}: there are no training images.")
        if self.class_names is not None and len(self.class_names) != self.num_classes:
            raise ValueError(f"{where}: {len(self.class_names)} class names for {self.num_classes} classes.")


def stratified_subset(labels: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Chooses `size` examples so that the classes keep their shares.

    A class with n of N examples has the quota `size * n / N`. Each class gets its quota rounded down, the
    examples left over go to the largest remainders, ties in a random order. Where `size` suffices, a class
    that ended with none then gets one from the class that lies furthest above its quota.

    Args:
        labels: `(N,)` int64.
        size: Number of examples to choose, from 0 to N.
        generator: The only source of randomness.

    Returns:
        `(chosen, rest)`: `(size,)` and `(N - size,)` int64 indices into `labels`, disjoint, each ascending.

    Raises:
        ValueError: `size` is negative or larger than N.
    """
    total = len(labels)
    if not 0 <= size <= total:
        raise ValueError(f"cannot choose {size} of {total} examples.")
    classes, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    # Whole numbers throughout: a quota in floating point would make ties depend on rounding.
    quotas = [size * count for count in counts.tolist()]  # in units of 1 / total
    shares = [quota // total for quota in quotas] if total else []
    order = torch.randperm(len(classes), generator=generator).tolist()
    by_remainder = sorted(order, key=lambda c: -(quotas[c] % total))
    for c in by_remainder[: size - sum(shares)]:
        shares[c] += 1
    if size >= len(classes):
        for c in (c for c in order if shares[c] == 0):
            donor = max((d for d in order if shares[d] > 1), key=lambda d: shares[d] * total - quotas[d])
            shares[donor] -= 1
            shares[c] = 1
    chosen = torch.zeros(total, dtype=torch.bool)
    for c, share in enumerate(shares):
        members = (inverse == c).nonzero().squeeze(1)
        chosen[members[torch.randperm(len(members), generator=generator)[:share]]] = True
    return chosen.nonzero().squeeze(1), (~chosen).nonzero().squeeze(1)
