"""DKL-MNIST: digits, letters and kuzushiji with few training images (the paper, section "DKL-MNIST")."""

import math
import string
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.datasets import EMNIST, KMNIST

from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.checks import require_at_least
from lws_lightning.data.download import DataFiles, require_files
from lws_lightning.data.splits import training_subset
from lws_lightning.data.tasks import Examples, TaskData

__all__ = ["DKLMNIST"]

_SPLITS = ("train", "test")
_KINDS = ("images-idx3", "labels-idx1")
_CLASS_NAMES = {
    "digits": tuple(string.digits),
    "letters": tuple(string.ascii_lowercase),
    "kuzushiji": tuple(KMNIST.classes),
}


class DKLMNIST(MultiTaskDataModule):
    """Three tasks of 28x28 grey images with 500 training images each and complete test sets.

    | task | source | classes | training images | test images |
    | --- | --- | --- | --- | --- |
    | digits | EMNIST "digits" | 10 | 500 of 240,000 | 40,000 |
    | letters | EMNIST "letters" | 26, both cases merged | 500 of 124,800 | 20,800 |
    | kuzushiji | KMNIST | 10 | 500 of 60,000 | 10,000 |

    The 500 are a stratified subset drawn by `split_seed`; the paper does not say how it drew them.
    `validation: unused` draws from the rest of the training files. Labels of the letters are 0..25; the files
    have 1..26.

    The files are located under `root` as torchvision unpacks them:
    `EMNIST/raw/emnist-{digits,letters}-{train,test}-...` and `KMNIST/raw/{train,t10k}-...`. Only those of the
    chosen tasks are needed. Complete files are never written to, so `root` may be read-only.

    Cohen, Afshar, Tapson and van Schaik: EMNIST: extending MNIST to handwritten letters. IJCNN 2017.
    Clanuwat et al.: Deep learning for classical Japanese literature. arXiv 1812.01718, 2018.

    Args:
        root: Folder that holds `EMNIST` and `KMNIST`.
        upright: EMNIST's files, and so torchvision's images, are transposed; True turns them upright, both in
            training and test. KMNIST's are upright already.
        train_images_per_task: Size of each task's training subset.
        download: Download missing files (EMNIST is one archive of half a gigabyte, about four times that
            during unpacking).
        **options: Those of `MultiTaskDataModule`.

    Raises:
        ValueError: An option is out of range.
        FileNotFoundError: In `setup`, if a file is missing or damaged; names each.
        RuntimeError: In `prepare_data`, if the download fails.
    """

    neutral_options = MultiTaskDataModule.neutral_options | {"download"}
    class_counts: Mapping[str, int] = {"digits": 10, "letters": 26, "kuzushiji": 10}
    image_size = (1, 28, 28)

    def __init__(
        self,
        root: str = "data",
        upright: bool = True,
        train_images_per_task: int = 500,
        download: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(root=root, **options)
        require_at_least(self.dataset_name, "train_images_per_task", train_images_per_task, 1)
        self.upright = upright
        self.train_images_per_task = train_images_per_task
        self.download = download

    def prepare_data(self) -> None:
        """Downloads missing files if `download` is set. Lightning calls this in one process only."""
        if self.download:
            for files in self._files():
                files.download()

    def load_tasks(self) -> list[TaskData]:
        """Reads the chosen tasks.

        Raises:
            FileNotFoundError: A file is missing or damaged.
            ValueError: A task has fewer training images than `train_images_per_task`.
        """
        require_files(self.dataset_name, self._files())
        return [self._load_task(name) for name in self.task_names]

    def _load_task(self, name: str) -> TaskData:
        size, seed = self.train_images_per_task, self.split_seed
        train, unused = training_subset(self.dataset_name, name, self._read(name, train=True), size, seed)
        return TaskData(name, train, self._read(name, train=False), unused, _CLASS_NAMES[name])

    def _read(self, name: str, train: bool) -> Examples:
        source = (
            KMNIST(self.root_path, train=train)
            if name == "kuzushiji"
            else EMNIST(self.root_path, split=name, train=train)
        )
        images: Tensor = source.data.unsqueeze(1)
        labels: Tensor = source.targets.to(torch.int64)
        if name != "kuzushiji" and self.upright:
            images = images.transpose(2, 3).contiguous()
        return Examples(images, labels - 1 if name == "letters" else labels)

    def _files(self) -> list[DataFiles]:
        """Returns the files that the chosen tasks need."""
        emnist = [f"emnist-{name}-{split}" for name in self.task_names if name != "kuzushiji" for split in _SPLITS]
        kmnist = ["train", "t10k"] if "kuzushiji" in self.task_names else []
        fetch_emnist = partial(EMNIST, split="digits", download=True)  # a single archive contains every split
        sources = (
            ("EMNIST", EMNIST.url, emnist, fetch_emnist),
            ("KMNIST", KMNIST.mirrors[0], kmnist, partial(KMNIST, download=True)),
        )
        files = []
        for dataset, url, prefixes, fetch in sources:
            names = [f"{dataset}/raw/{prefix}-{kind}-ubyte" for prefix in prefixes for kind in _KINDS]
            if names:
                files.append(DataFiles(dataset, url, self.root_path, names, _idx_problem, fetch))
        return files


def _idx_problem(path: Path) -> str | None:
    """Returns what is wrong with a file in IDX format, by its header and size, or None."""
    if not path.is_file():
        return "missing"
    with path.open("rb") as file:
        header = file.read(4)
        dimensions = 3 if "idx3" in path.name else 1
        if header != bytes((0, 0, 8, dimensions)):  # 8: unsigned bytes
            return "damaged (not an IDX file)"
        shape = [int.from_bytes(file.read(4), "big") for _ in range(dimensions)]
    expected, size = 4 + 4 * dimensions + math.prod(shape), path.stat().st_size
    return None if size == expected else f"damaged ({size:,} bytes instead of {expected:,})"
