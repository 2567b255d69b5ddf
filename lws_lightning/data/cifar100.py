"""CIFAR-100 as twenty tasks, one a coarse label (the paper, section "CIFAR-100")."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.datasets import CIFAR100

from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.checks import require_at_least
from lws_lightning.data.download import DataFiles, require_files
from lws_lightning.data.plain_pickle import load_plain_pickle
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
    """Twenty tasks of 32x32 colour images: to tell the five fine classes of one coarse label apart.

    | | tasks | classes a task | training images a task | test images a task |
    | --- | --- | --- | --- | --- |
    | CIFAR-100 | 20 | 5 | 2,500 | 500 |

    The tasks bear the names of the coarse labels, in CIFAR-100's order: "aquatic_mammals" ... "vehicles_2".
    A task's label 0..4 is the place of the fine label among the sorted fine labels of the coarse one, the
    same in training and test. (Some programs take `fine % 5`, which gives several classes one label, since
    the fine labels of a coarse one are not consecutive.)

    The split into training and test images is CIFAR-100's own. All training images are used, as in the
    paper, unless `train_images_per_task` says otherwise.

    The files lie under `root` as torchvision unpacks them: `cifar-100-python/{train,test,meta}`, pickles that
    are read without running any code in them. `meta` gives the names of the fine classes and may be missing.
    Files with a part of the images do as well. Complete files are never written to, so `root` may be
    read-only.

    The images come without a licence.
    Krizhevsky: Learning multiple layers of features from tiny images. Technical report, 2009.
    Rosenbaum, Klinger and Riemer: Routing networks. ICLR 2018 (the tasks).

    Args:
        root: Folder that holds `cifar-100-python`.
        train_images_per_task: Size of each task's training subset, drawn with the shares of the classes by
            `split_seed`; `validation: unused` draws from the rest. None: all.
        download: Fetch missing files (169 MB, about four times that while they are being unpacked).
        **options: Those of `MultiTaskDataModule`.

    Raises:
        ValueError: An option is out of range; in `setup`, the labels in the files contradict each other.
        FileNotFoundError: In `setup`, if a file is missing or damaged; names each.
        RuntimeError: In `prepare_data`, if the download fails.
    """

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
                "train_images_per_task, or take validation: split."
            )
        self.train_images_per_task = train_images_per_task
        self.download = download

    @property
    def _root(self) -> Path:
        return Path(self.root).expanduser()

    def _files(self, *names: str) -> DataFiles:
        return DataFiles(
            "CIFAR100", CIFAR100.url, self._root, [f"{_FOLDER}/{name}" for name in names], _problem, _fetch
        )

    def prepare_data(self) -> None:
        """Downloads missing files where `download` says so. Lightning calls this in one process only."""
        if self.download:
            self._files("train", "test", "meta").download()

    def load_tasks(self) -> list[TaskData]:
        """Reads the chosen tasks.

        Raises:
            FileNotFoundError: A file is missing or damaged.
            ValueError: The labels in the files do not make the tasks, or a task has fewer training images
                than `train_images_per_task`.
        """
        folder = self._root / _FOLDER
        has_names = (folder / "meta").exists()
        require_files(self.dataset_name, [self._files("train", "test", *["meta"] * has_names)])
        train, test = (_read(folder / split) for split in ("train", "test"))
        fine_labels = self._fine_labels(train, test)
        class_names = _read_names(folder / "meta") if has_names else None
        return [self._load_task(name, fine_labels[name], train, test, class_names) for name in self.task_names]

    def _load_task(
        self, name: str, classes: list[int], train: _File, test: _File, names: tuple[str, ...] | None
    ) -> TaskData:
        size, seed = self.train_images_per_task, self.split_seed
        chosen, unused = training_subset(self.dataset_name, name, _select(train, classes), size, seed)
        class_names = None if names is None else tuple(names[label] for label in classes)
        return TaskData(name, chosen, _select(test, classes), unused, class_names)

    def _fine_labels(self, train: _File, test: _File) -> dict[str, list[int]]:
        """Returns the sorted fine labels of each chosen task, from the labels of all images."""
        where = f"{self.dataset_name}: the labels in {(self._root / _FOLDER).resolve()} do not fit together:"
        coarse_of: dict[int, int] = {}
        for file in (train, test):
            for fine, coarse in np.unique(np.stack([file.fine, file.coarse]), axis=1).T.tolist():
                if coarse_of.setdefault(fine, coarse) != coarse:
                    raise ValueError(
                        f"{where} fine label {fine} has the coarse label {coarse_of[fine]} and, in other images, "
                        f"{coarse}."
                    )
        trained = set(train.fine.tolist())
        found = {}
        for name in self.task_names:
            coarse = _COARSE_NAMES.index(name)
            found[name] = sorted(fine for fine, own in coarse_of.items() if own == coarse)
            if len(found[name]) != _CLASSES_PER_TASK or not trained.issuperset(found[name]):
                raise ValueError(
                    f"{where} task {name!r} (coarse label {coarse}) needs training images of {_CLASSES_PER_TASK} fine "
                    f"labels; there are training images of {sorted(trained.intersection(found[name]))}, "
                    f"test images of {sorted(set(test.fine.tolist()).intersection(found[name]))}."
                )
        return found


def _select(file: _File, classes: list[int]) -> Examples:
    """Returns the images of the fine labels `classes`, and the places of their labels in `classes`."""
    members = np.flatnonzero(np.isin(file.fine, classes))
    labels = np.searchsorted(classes, file.fine[members])
    return Examples(torch.from_numpy(file.images[members]), torch.from_numpy(labels))


def _read(path: Path) -> _File:
    entry = load_plain_pickle(path)
    if not isinstance(entry, dict) or not {"data", "fine_labels", "coarse_labels"} <= entry.keys():
        raise ValueError("without data, fine_labels and coarse_labels")
    images = np.asarray(entry["data"])
    fine, coarse = (_labels(entry, kind) for kind in ("fine_labels", "coarse_labels"))
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3 * 32 * 32:
        raise ValueError(f"data is {images.dtype} {images.shape} instead of uint8 (N, 3072)")
    if not len(images) == len(fine) == len(coarse):
        raise ValueError(f"{len(images)} images, {len(fine)} fine labels and {len(coarse)} coarse labels")
    for kind, labels, classes in (("fine", fine, _FINE_CLASSES), ("coarse", coarse, len(_COARSE_NAMES))):
        if not np.isin(labels, np.arange(classes)).all():
            raise ValueError(f"{kind} labels outside 0..{classes - 1}")
    return _File(images.reshape(-1, 3, 32, 32), fine, coarse)


def _labels(entry: dict[str, Any], kind: str) -> np.ndarray:
    labels = np.asarray(entry[kind])
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{kind} is not a list of whole numbers")
    return labels.astype(np.int64)


def _read_names(path: Path) -> tuple[str, ...]:
    entry = load_plain_pickle(path)
    names, coarse = (
        (entry.get(f"{kind}_label_names") for kind in ("fine", "coarse")) if isinstance(entry, dict) else (0, 0)
    )
    if not isinstance(names, list) or len(names) != _FINE_CLASSES or coarse != list(_COARSE_NAMES):
        raise ValueError("not CIFAR-100's fine and coarse names")
    return tuple(map(str, names))


def _problem(path: Path) -> str | None:
    """Says what is wrong with one of the three files, by reading it; None: nothing."""
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


def _fetch(folder: Path) -> None:
    CIFAR100(folder, download=True)
