"""Folders of images as tasks: a folder for each task, and in it a folder for each class."""

import hashlib
import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torchvision.transforms.v2.functional import normalize

from lws_lightning.batches import EvaluationBatch, StepBatch
from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.cache import ArrayCache
from lws_lightning.data.checks import require_fraction, require_one_of
from lws_lightning.data.image_decoding import Decoder, ResizeMode, check_size
from lws_lightning.data.image_reading import ReadImages, read_folders, usable_memory
from lws_lightning.data.image_scan import TaskFolder, scan_tasks
from lws_lightning.data.normalization import read_normalization
from lws_lightning.data.splits import hold_out
from lws_lightning.data.streaming import Images, StreamedImages
from lws_lightning.data.tasks import Examples, TaskData
from lws_lightning.randomness import generator_for

__all__ = ["ImageFolders"]

BrokenImages = Literal["refuse", "skip"]
_MAX_LISTED = 10  # entries of a list of files
_SHARE_OF_MEMORY = 3  # splitting copies the images once, and the run needs memory, too


class ImageFolders(MultiTaskDataModule):
    """Tasks from folders of images: `ROOT/<task>/<class>/*.png`.

    The tasks are the folders in `root`, sorted by name, and the classes of a task are the folders in it. A task may
    have separate test images, as `ROOT/<task>/train/<class>/*.png` and `ROOT/<task>/test/<class>/*.png`; otherwise
    `test_fraction` of each class is held out, drawn by `split_seed` and the task's name. A third folder `val` (or
    `validation`) contains validation images for `validation: unused`. `Decoder` describes how an image is read.

    The constructor reads only the names of folders and files; `setup` decodes the images. If they fit, they are kept in
    memory and, decoded, in `cache_dir`, until a file changes. Otherwise loader processes decode them for each batch;
    the batches are the same bit for bit. Nothing is written to `root`.

    Args:
        root: Folder of the tasks.
        image_size: Side in pixels, or `[height, width]`, to which every image is resized.
        channels: 3, or 1 for grey. Other images are converted.
        resize: `crop` scales an image to cover the size and crops it; `pad` scales it to fit and pads it with
            `background`; `stretch` changes its aspect ratio.
        background: Grey value 0..255 behind transparent images and around padded ones.
        normalization: `none` (the network sees values from 0 to 1), `imagenet`, or `{mean: [...], std: [...]}` with a
            value for each channel on that scale.
        test_fraction: Fraction of each class that is held out if a task has no test folder, in (0, 1). A class always
            keeps a training image.
        broken_images: Files that cannot be read as images: `refuse` raises an error, `skip` warns and continues without
            them; both name the files.
        in_memory: Whether decoded images are kept in memory; `auto`: if they fit.
        memory_limit_gb: Limit of `auto`, in 10^9 bytes. None: a third of the free memory.
        cache: Whether to cache decoded images, and which files can be read, for later runs.
        cache_dir: Folder of the cache. None: `$XDG_CACHE_HOME/lws_lightning`, or `~/.cache/lws_lightning`.
        num_workers: Loader processes. None: none for images in memory, else up to four.
        **options: Those of `MultiTaskDataModule`.

    Raises:
        FileNotFoundError: There is no folder `root`.
        ValueError: An option is out of range, or the folders cannot be used; the message names them. In `setup`:
            images cannot be read, or leave a class empty.
    """

    neutral_options = MultiTaskDataModule.neutral_options | {"in_memory", "memory_limit_gb", "cache", "cache_dir"}

    def __init__(
        self,
        root: str = "data",
        image_size: int | list[int] = 64,
        channels: Literal[1, 3] = 3,
        resize: ResizeMode = "crop",
        background: int = 255,
        normalization: Literal["none", "imagenet"] | dict[str, list[float]] = "none",
        test_fraction: float = 0.2,
        broken_images: BrokenImages = "refuse",
        in_memory: Literal["auto"] | bool = "auto",
        memory_limit_gb: float | None = None,
        cache: bool = True,
        cache_dir: str | None = None,
        num_workers: int | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        for option, value, allowed in (
            ("channels", channels, (1, 3)),
            ("resize", resize, get_args(ResizeMode)),
            ("broken_images", broken_images, get_args(BrokenImages)),
            ("in_memory", in_memory, ("auto", True, False)),
        ):
            require_one_of(name, option, value, allowed)
        if not 0 <= background <= 255:
            raise ValueError(f"{name}: background must lie between 0 and 255, got {background}.")
        require_fraction(name, "test_fraction", test_fraction)
        if memory_limit_gb is not None and not memory_limit_gb >= 0:
            raise ValueError(f"{name}: memory_limit_gb must not be negative, got {memory_limit_gb}.")
        self._decoder = Decoder(check_size(name, image_size), channels, resize, int(background))
        self._mean, self._std = read_normalization(name, normalization, channels)
        folders = {folder.name: folder for folder in scan_tasks(Path(root).expanduser(), "--data.root")}
        self.class_counts: Mapping[str, int] = {task: len(folder.class_names) for task, folder in folders.items()}
        self.image_size = self._decoder.image_shape
        super().__init__(root=root, num_workers=num_workers or 0, **options)
        self.test_fraction = test_fraction
        self.broken_images = broken_images
        self.in_memory = in_memory
        self.memory_limit_gb = memory_limit_gb
        self.cache = cache
        self.cache_dir = cache_dir
        self._workers_given = num_workers is not None
        self._folders = [folders[task] for task in self.task_names]
        self._check_folders()

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How to convert an image file to the network's input, as numbers, strings and lists.

        Transparent areas are filled with `background`; the image is converted to `channels` and resized to `size`
        `[H, W]` by `mode`; then each value v in 0..255 of a channel becomes `(v * scale - mean) / std`.
        """
        return super().preprocessing | self._decoder.describe() | {"mean": list(self._mean), "std": list(self._std)}

    @property
    def class_names(self) -> list[tuple[str, ...] | None]:
        """The class names of each task. Known before any image is read."""
        return [folder.class_names for folder in self._folders]

    def normalize(self, images: Tensor) -> Tensor:
        """Normalises `(..., C, H, W)` uint8 images to float32; returns them unchanged with `normalization: none`."""
        if not any(self._mean) and set(self._std) == {1.0}:
            return images
        normalized: Tensor = normalize(images / 255, self._mean, self._std)
        return normalized

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Normalises the images of a batch, on the device."""
        if isinstance(batch, StepBatch):
            return StepBatch(*(of_phase if of_phase.layer else self._normalized(of_phase) for of_phase in batch))
        if isinstance(batch, EvaluationBatch):
            return self._normalized(batch)
        return batch

    def _normalized(self, batch: Any) -> Any:
        return batch._replace(images=self.normalize(batch.images))

    def load_tasks(self) -> list[TaskData]:
        """Reads the images of the chosen tasks, or only checks them if they stream from disk.

        Raises:
            ValueError: Images cannot be read, or leave a class empty.
        """
        in_memory = self._fits() if self.in_memory == "auto" else bool(self.in_memory)
        if not in_memory and not self._workers_given:
            self.num_workers = min(4, os.cpu_count() or 1)
        cache = ArrayCache(self.cache_dir, self.dataset_name, compressed=False) if self.cache else None
        files = {folder.folder: folder.files for folder in self._folders}
        shape, variant = self._decoder.image_shape, self._decoder.variant
        read = deque(read_folders(self.dataset_name, files, self._decoder, shape, variant, in_memory, cache))
        self._report_broken(read)
        # popleft, so that only one task at a time has its images in memory twice
        return [self._make_task(folder, read.popleft(), in_memory) for folder in self._folders]

    def state_dict(self) -> dict[str, Any]:
        """Adds the classes, and a hash of the file names."""
        digest = hashlib.blake2b("".join(folder.digest() for folder in self._folders).encode(), digest_size=8)
        count = sum(len(folder.images) for folder in self._folders)
        return super().state_dict() | {
            "images": f"{count} files, {digest.hexdigest()}",
            "class_names": {folder.name: list(folder.class_names) for folder in self._folders},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Compares a checkpoint's options and classes with this run's.

        Raises:
            ValueError: Tasks or classes differ, or in training the seed.
        """
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "class_names"})
        saved = state_dict.get("class_names", {})
        for folder in self._folders:
            before = saved.get(folder.name)
            if before is not None and list(before) != list(folder.class_names):
                raise ValueError(
                    f"{self.dataset_name}, task {folder.name!r}: the checkpoint was made with the classes "
                    f"{', '.join(before)}, but in {folder.folder} there are {', '.join(folder.class_names)}. Restore "
                    "the folders, or start a new run without the checkpoint."
                )

    def _check_folders(self) -> None:
        problems = [problem for folder in self._folders for problem in folder.problems]
        if problems:
            raise ValueError(
                f"{self.dataset_name}: the folders cannot be used as they are.\n{_format_list(problems, 'problems')}"
            )
        others = [file for folder in self._folders for file in folder.other_files]
        if others:
            rank_zero_warn(
                f"{self.dataset_name}: ignored, because they are not images by name ({len(others)}):\n"
                f"{_format_list(others, 'files')}"
            )
        with_validation = [
            folder.name for folder in self._folders if any(image.split == "validation" for image in folder.images)
        ]
        without = [name for name in self.task_names if name not in with_validation]
        if self.validation == "unused" and without:
            raise ValueError(
                f"{self.dataset_name}: validation: unused uses the images of folders ROOT/<task>/val, and there are "
                f"none of {', '.join(without)}; add them, or use validation: split."
            )
        if self.validation != "unused" and with_validation:
            rank_zero_warn(
                f"{self.dataset_name}: the validation images of {', '.join(with_validation)} are not used; "
                "set --data.validation unused to use them."
            )

    def _fits(self) -> bool:
        size = sum(len(folder.images) for folder in self._folders) * math.prod(self.image_shape)
        if self.memory_limit_gb is not None:
            return size <= self.memory_limit_gb * 1e9
        free = usable_memory()
        return free is None or size <= free // _SHARE_OF_MEMORY

    def _report_broken(self, read: Sequence[ReadImages]) -> None:
        broken = []
        for folder, images in zip(self._folders, read, strict=True):
            files = folder.files
            broken += [f"{files[index]}: {reason}" for index, reason in images.broken.items()]
        if not broken:
            return
        summary = f"{len(broken):,} file{'s' * (len(broken) != 1)} cannot be read as images"
        if self.broken_images == "refuse":
            raise ValueError(
                f"{self.dataset_name}: {summary}.\n{_format_list(broken, 'files')}\nRepair or remove them, or skip "
                "them with --data.broken_images skip."
            )
        rank_zero_warn(f"{self.dataset_name}: {summary} and are skipped.\n{_format_list(broken, 'files')}")

    def _make_task(self, folder: TaskFolder, read: ReadImages, in_memory: bool) -> TaskData:
        class_names = folder.class_names
        images: Images = read.pixels if in_memory else StreamedImages(folder.files, self._decoder, self.image_shape)
        everything = Examples(images, torch.tensor([image.label for image in folder.images]))
        readable = [(index, image.split) for index, image in enumerate(folder.images) if index not in read.broken]
        train, test, unused = (
            torch.tensor([index for index, image_split in readable if image_split == split], dtype=torch.int64)
            for split in ("train", "test", "validation")
        )
        empty = set(range(len(class_names))) - set(everything.labels[train].tolist())
        if empty:
            names = ", ".join(class_names[label] for label in sorted(empty))
            raise ValueError(
                f"{self.dataset_name}: none of the training images of class {names} in {folder.folder} can be read; "
                "repair them, or remove the class."
            )
        if "test" not in folder.splits:
            train, test = self._hold_out(folder.name, train, everything.labels[train])
        return TaskData(
            name=folder.name,
            train=everything.select(train),
            test=everything.select(test),
            unused=everything.select(unused),
            class_names=class_names,
        )

    def _hold_out(self, name: str, indices: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Splits indices into those of training and of test images; a class always keeps a training image."""
        test, train = hold_out(labels, self.test_fraction, generator_for(self.split_seed, "test", name))
        held_out = torch.zeros(len(labels), dtype=torch.bool)
        held_out[test] = True
        for label in set(labels.tolist()) - set(labels[train].tolist()):
            held_out[(labels == label).nonzero()[0]] = False
        return indices[~held_out], indices[held_out]


def _format_list(entries: Sequence[str], noun: str) -> str:
    lines = [f"  {entry}" for entry in entries[:_MAX_LISTED]]
    if len(entries) > _MAX_LISTED:
        lines.append(f"  and {len(entries) - _MAX_LISTED:,} more {noun}")
    return "\n".join(lines)
