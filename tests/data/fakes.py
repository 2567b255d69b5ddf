"""Tiny data sets laid out on disk as the real ones are, and a tiny one in memory."""

import io
import pickle
import struct
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from lws_lightning.data import CIFAR100CoarseLabel, Examples, MultiTaskDataModule, Omniglot, TaskData

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


class Python2Pickler(pickle._Pickler):
    """Writes text, bytes and arrays as Python 2 with NumPy 1 does, in which CIFAR-100's files were made."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def save_string(self, value):
        data = value.encode("latin1") if isinstance(value, str) else value
        self.write(b"T" + struct.pack("<i", len(data)) + data)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string


def python2_pickle(value):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


def cifar100_hierarchy(seed=0):
    """Returns the coarse label of each of the 100 fine labels, five of each, in disorder."""
    return np.random.default_rng(seed).permutation(np.arange(20).repeat(5))


def write_cifar100(root, train_per_class=4, test_per_class=2, absent_in_test=(), dumps=python2_pickle):
    """Writes CIFAR-100's three files under `root`; an image's first value is its fine label, the rest its number.

    The classes `absent_in_test` have no test images. Returns `root`.
    """
    folder = Path(root) / "cifar-100-python"
    folder.mkdir(parents=True, exist_ok=True)
    coarse_of = cifar100_hierarchy()
    for seed, split, per_class in ((1, "train", train_per_class), (2, "test", test_per_class)):
        fine = np.random.default_rng(seed).permutation(np.arange(100).repeat(per_class))
        if split == "test":
            fine = fine[~np.isin(fine, absent_in_test)]
        data = np.repeat(np.arange(len(fine))[:, None] % 256, 3072, axis=1).astype(np.uint8)
        data[:, 0] = fine
        entry = {"data": data, "fine_labels": fine.tolist(), "coarse_labels": coarse_of[fine].tolist()}
        (folder / split).write_bytes(dumps(entry))
    names = {
        "fine_label_names": [f"fine {label}" for label in range(100)],
        "coarse_label_names": list(CIFAR100CoarseLabel.class_counts),
    }
    (folder / "meta").write_bytes(dumps(names))
    return Path(root)


def omniglot_folder(root, alphabet):
    part = "background" if list(Omniglot.class_counts).index(alphabet) < 30 else "evaluation"
    return Path(root) / "omniglot-py" / f"images_{part}" / alphabet


def write_omniglot(root, alphabets):
    """Writes the drawings of `alphabets` under `root`. Returns `root`.

    An image's row 0 has ink in the character's column (0, 1, ...), row 1 in the drawer's. Below is a
    character's pattern, learnable.
    """
    for alphabet in alphabets:
        patterns = np.random.default_rng(0).integers(0, 2, (Omniglot.class_counts[alphabet], 10, 10))
        for character, pattern in enumerate(patterns.repeat(10, axis=1).repeat(10, axis=2)):
            folder = omniglot_folder(root, alphabet) / f"character{character + 1:02d}"
            folder.mkdir(parents=True)
            for drawer in range(20):
                ink = np.zeros((105, 105), bool)
                ink[0, character] = ink[1, drawer] = True
                ink[5:, 5:] = pattern
                Image.fromarray(~ink).save(folder / f"{character + 1:04d}_{drawer + 1:02d}.png", compress_level=1)
    return Path(root)


def write_folders(root, tasks, size=(12, 10), mode="RGB", suffix="png", seed=0):
    """Writes `root/<task>/<class>/<number>.png`; `tasks` says how many images, as `{task: {class: number}}`.

    A task may hold parts as `{task: {"train": {class: number}, "test": ...}}`. The images of a class are alike, so that
    it can be learned, and no two are equal. Returns `root`.
    """
    generator = np.random.default_rng(seed)
    for task, classes in tasks.items():
        parts = classes if all(isinstance(each, dict) for each in classes.values()) else {"": classes}
        for part, counts in parts.items():
            for name, count in counts.items():
                folder = Path(root) / task / part / name
                folder.mkdir(parents=True)
                pattern = np.random.default_rng(list(name.encode())).integers(0, 2, (*size, 3)) * 150
                for number in range(count):
                    pixels = (pattern + generator.integers(0, 100, pattern.shape)).astype(np.uint8)
                    Image.fromarray(pixels).convert(mode).save(folder / f"{number}.{suffix}")
    return Path(root)


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
            images = numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
            parts.append(Examples(images, numbers % self.class_counts[name]))
        return TaskData(name, *parts)
