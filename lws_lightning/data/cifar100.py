"""CIFAR-100 as twenty tasks, one for each coarse label (the paper, section "CIFAR-100")."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.datasets import CIFAR100

from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.checks import require_at_least
from lws_lightning.data.data_pickle import load_data_pickle
from lws_lightning.data.download import DataFiles, require_files
from lws_lightning.data.splits import training_subset
from lws_lightning.data.tasks import Examples, TaskData

__all__ = ["CIFAR100CoarseLabel"]

_FOLDER = "cifar-100-python"
_FINE_CLASSES = 100
_CLASSES_PER_TASK = 5
# In the order of CIFAR-100's coarse labels 0..19.
_COARSE_NAMES = (
    "aquatic_mammals",
    "fish",
    "flowers",
    "food_containers",
    "fruit_and_vegetables",
    "household_electrical_devices",
    "household_furniture",
    "insects",
    "large_carnivores",
    "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes",
    "large_omnivores_and_herbivores",
    "medium_mammals",
    "non-insect_invertebrates",
    "people",
    "reptiles",
    "small_mammals",
    "trees",
    "vehicles_1",
    "vehicles_2",
)


@dataclass(frozen=True, eq=False)
class _File:
    """The file `train` or `test`: `(N, 3, 32, 32)` uint8 images, `(N,)` int64 fine and coarse labels."""

    images: np.ndarray
    fine: np.ndarray
    coarse: np.ndarray


class CIFAR100CoarseLabel(MultiTaskDataModule):
    """Twenty tasks of 32x32 colour images: classify the five fine classes of one coarse label.

    | | tasks | classes a task | training images a task | test images a task |
    | --- | --- | --- | --- | --- |
    | CIFAR-100 | 20 | 5 | 2,500 | 500 |

    The tasks are named after the coarse labels, in CIFAR-100's order: "aquatic_mammals" ... "vehicles_2". A task's
    label 0..4 is the rank of the fine label among the fine labels of the coarse one, the same in training and test.
    (Some programs use `fine % 5`, which maps different classes to the same label, since the fine labels of a coarse one
    are not consecutive.)

    The split into training and test images is CIFAR-100's own. As in the paper, all training images are used by
    default.

    The files are located under `root` as torchvision unpacks them: `cifar-100-python/{train,test,meta}`, pickles that
    are read without executing code in them. `meta` contains the names of the fine classes and may be missing. Files
    with fewer images are accepted. Complete files are never written to, so `root` may be read-only.

    The images have no licence.
    Krizhevsky: Learning multiple layers of features from tiny images. Technical report, 2009.
    Rosenbaum, Klinger and Riemer: Routing networks. ICLR 2018 (the tasks).

    Args:
        root: Folder that holds `cifar-100-python`.
        train_images_per_task: Size of each task's training subset, stratified by class and drawn by `split_seed`;
            `validation: unused` draws from the rest. None: all.
        download: Download missing files (169 MB, about four times that during unpacking).
        **options: Those of `MultiTaskDataModule`.

    Raises:
        ValueError: An option is out of range; in `setup`, the labels in the files are inconsistent.
        FileNotFoundError: In `setup`, if a file is missing or damaged; names each.
        RuntimeError: In `prepare_data`, if the download fails.
    """

    neutral_options = MultiTaskDataModule.neutral_options | {"download"}
    class_counts: Mapping[str, int] = dict.fromkeys(_COARSE_NAMES, _CLASSES_PER_TASK)
    image_size = (3, 32, 32)

    def __init__(
        self,
        root: str = "data",
        train_images_per_task: int | None = None,
        download: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(root=root, **options)
        if train_images_per_task is not None:
            require_at_least(self.dataset_name, "train_images_per_task", train_images_per_task, 1)
        elif self.validation == "unused":
            raise ValueError(
                f"{self.dataset_name}: validation: unused needs training images that are not used; set "
                "train_images_per_task, or use validation: split."
            )
        self.train_images_per_task = train_images_per_task
        self.download = download

    def _files(self, *names: str) -> DataFiles:
        paths = [f"{_FOLDER}/{name}" for name in names]
        return DataFiles("CIFAR100", CIFAR100.url, self.root_path, paths, _problem, partial(CIFAR100, download=True))

    def prepare_data(self) -> None:
        """Downloads missing files if `download` is set. Lightning calls this in one process only."""
        if self.download:
            self._files("train", "test", "meta").download()

    def load_tasks(self) -> list[TaskData]:
        """Reads the chosen tasks.

        Raises:
            FileNotFoundError: A file is missing or damaged.
            ValueError: The labels in the files are inconsistent, or a task has fewer training images than
                `train_images_per_task`.
        """
        folder = self.root_path / _FOLDER
        has_names = (folder / "meta").exists()
        require_files(self.dataset_name, [self._files("train", "test", *["meta"] * has_names)])
        train, test = (_read(folder / split) for split in ("train", "test"))
        class_names = _read_names(folder / "meta") if has_names else None
        return [self._load_task(name, train, test, class_names) for name in self.task_names]

    def _load_task(self, name: str, train: _File, test: _File, names: tuple[str, ...] | None) -> TaskData:
        coarse = _COARSE_NAMES.index(name)
        classes = np.unique(train.fine[train.coarse == coarse])
        consistent = (np.array_equal(np.isin(file.fine, classes), file.coarse == coarse) for file in (train, test))
        if len(classes) != _CLASSES_PER_TASK or not all(consistent):
            raise ValueError(
                f"{self.dataset_name}: the labels in {(self.root_path / _FOLDER).resolve()} are inconsistent: task "
                f"{name!r} (coarse label {coarse}) needs training images of {_CLASSES_PER_TASK} fine labels that no "
                f"other task has; there are training images of {classes.tolist()}, "
                f"test images of {np.unique(test.fine[test.coarse == coarse]).tolist()}."
            )
        examples, test_examples = (_select(file, coarse, classes) for file in (train, test))
        size, seed = self.train_images_per_task, self.split_seed
        chosen, unused = training_subset(self.dataset_name, name, examples, size, seed)
        class_names = None if names is None else tuple(names[label] for label in classes)
        return TaskData(name, chosen, test_examples, unused, class_names)


def _select(file: _File, coarse: int, classes: np.ndarray) -> Examples:
    """Returns the images of a coarse label; their labels are the indices of the fine labels in `classes`."""
    members = np.flatnonzero(file.coarse == coarse)
    labels = np.searchsorted(classes, file.fine[members])
    return Examples(torch.from_numpy(file.images[members]), torch.from_numpy(labels))


def _read(path: Path) -> _File:
    """Reads `train` or `test`; raises a ValueError if it is damaged."""
    entry = _read_entries(path, "data", "fine_labels", "coarse_labels")
    images = np.asarray(entry["data"])
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3 * 32 * 32:
        raise ValueError(f"data is {images.dtype} {images.shape} instead of uint8 (N, 3072)")
    labels = {}
    for level, classes in (("fine", _FINE_CLASSES), ("coarse", len(_COARSE_NAMES))):
        labels[level] = np.asarray(entry[f"{level}_labels"])
        if labels[level].shape != (len(images),):
            raise ValueError(f"{len(images)} images, but {level}_labels of shape {labels[level].shape}")
        if not np.isin(labels[level], np.arange(classes)).all():
            raise ValueError(f"{level} labels outside 0..{classes - 1}")
    return _File(images.reshape(-1, 3, 32, 32), labels["fine"].astype(np.int64), labels["coarse"].astype(np.int64))


def _read_names(path: Path) -> tuple[str, ...]:
    """Reads the names of the fine classes from `meta`."""
    entry = _read_entries(path, "fine_label_names", "coarse_label_names")
    names = entry["fine_label_names"]
    if not isinstance(names, list) or len(names) != _FINE_CLASSES or entry["coarse_label_names"] != list(_COARSE_NAMES):
        raise ValueError("not CIFAR-100's fine and coarse names")
    return tuple(map(str, names))


def _read_entries(path: Path, *names: str) -> dict[str, Any]:
    entries = load_data_pickle(path)
    if not isinstance(entries, dict) or not entries.keys() >= set(names):
        raise ValueError(f"without {', '.join(names)}")
    return entries


def _problem(path: Path) -> str | None:
    """Returns what is wrong with one of the three files, by reading it, or None."""
    try:
        if path.name == "meta":
            _read_names(path)
        else:
            _read(path)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"unreadable ({error.strerror})"
    except ValueError as error:
        return f"damaged ({error})"
    return None
