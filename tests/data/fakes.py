"""Tiny data sets laid out on disk as the real ones are, and a tiny one in memory."""

import struct
from pathlib import Path

import numpy as np
import torch

from lws_lightning.data import MultiTaskDataModule, TaskData

EMNIST_RAW = Path("EMNIST/raw")
KMNIST_RAW = Path("KMNIST/raw")


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + np.ascontiguousarray(array, np.uint8).tobytes())


def write_pair(root, prefix, images, labels):
    write_idx(root / f"{prefix}-images-idx3-ubyte", images)
    write_idx(root / f"{prefix}-labels-idx1-ubyte", labels)


def write_dkl_mnist(root, train_per_class=20, test_per_class=4, seed=0):
    """Writes EMNIST digits and letters and KMNIST under `root`; classes are blurred blobs, learnable.

    Letters carry labels 1..26 and EMNIST images lie transposed, as in the real files. Returns `root`.
    """
    root = Path(root)
    generator = np.random.default_rng(seed)
    for folder, train, test, classes, first in (
        (EMNIST_RAW, "emnist-digits-train", "emnist-digits-test", 10, 0),
        (EMNIST_RAW, "emnist-letters-train", "emnist-letters-test", 26, 1),
        (KMNIST_RAW, "train", "t10k", 10, 0),
    ):
        patterns = generator.integers(0, 2, (classes, 7, 7)).repeat(4, axis=1).repeat(4, axis=2) * 160
        for prefix, per_class in ((train, train_per_class), (test, test_per_class)):
            labels = generator.permutation(np.arange(classes).repeat(per_class))
            images = patterns[labels] + generator.integers(0, 96, (len(labels), 28, 28))
            if folder == EMNIST_RAW:
                images = images.transpose(0, 2, 1)
            write_pair(root / folder, prefix, images, labels + first)
    return root


class Tiny(MultiTaskDataModule):
    """Three tasks with 40, 64 and 12 training and 11, 9 and 1 test images; every image tells its number."""

    class_counts = {"a": 3, "b": 4, "c": 5}  # noqa: RUF012
    image_size = (1, 8, 8)
    sizes = {"a": (40, 11, 10), "b": (64, 9, 10), "c": (12, 1, 10)}  # noqa: RUF012
    loads = 0

    def load_tasks(self):
        self.loads += 1
        return [self.task(name) for name in self.class_counts]

    def task(self, name):
        train, test, unused = self.sizes[name]
        parts = []
        for first, size in ((0, train), (100, test), (200, unused)):
            numbers = torch.arange(first, first + size)
            parts.append(numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous())
            parts.append(numbers % self.class_counts[name])
        return TaskData(name, self.class_counts[name], *parts)
