"""The base class of all data sets: options, splits, loaders and the state in checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from lws_lightning.batches import Distribute, EvaluationBatch, FrozenPrefix, StepBatch
from lws_lightning.data.augmentation import Augmentation
from lws_lightning.data.checkpoint import compare_with_checkpoint
from lws_lightning.data.checks import require_at_least, require_fraction, require_one_of
from lws_lightning.data.digest import images_digest
from lws_lightning.data.features import reason_against_features, training_features
from lws_lightning.data.on_device import DeviceImages, IndexedLoader, IndexedSteps, OnDevice, device_for
from lws_lightning.data.sampler import Augment, EvaluationBatches, StepBatches, StepLoader, StepSampler
from lws_lightning.data.splits import Validation, split_training_images
from lws_lightning.data.streaming import read_images
from lws_lightning.data.tasks import Examples, TaskData, choose_tasks
from lws_lightning.randomness import resolve_seed
from lws_lightning.records import options_to_json

__all__ = ["MultiTaskDataModule", "Split", "Validation"]

Split = Literal["train", "validation", "test"]


class MultiTaskDataModule(LightningDataModule, ABC):
    """Image classification tasks, with a batch of each in every training step.

    A new data set sets the two class attributes and implements `load_tasks`. If the attributes depend on options, its
    constructor sets them on `self` before it calls this one.

    Without validation images (`validation: none`, the paper's protocol) the validation loop runs over the test images
    and logs under `test_curve/`, which must not be used for selection.

    Args:
        root: Folder of the data files, if the data set needs any.
        tasks: Names of the tasks to use, in this order. None: all.
        batch_size: B, images of each task in each of a step's two batches.
        evaluation_batch_size: Largest number of images evaluated at once.
        validation: "none"; "split" holds out a fraction of each task's training images; "unused" uses training images
            that are not in the data set's training subset. Both are stratified by class.
        validation_fraction: Fraction of each task's training images that "split" holds out, in (0, 1).
        validation_images: Largest number of validation images of a task with "unused". None: all available.
        split_seed: Seed of all splits. A task's images do not depend on which other tasks are chosen.
        distribute: How the processes (`trainer.devices`, `num_nodes`) share a step: "examples": each draws its own
            `batch_size` images of every task, as in one larger batch. "tasks": each computes some tasks of one batch,
            so that the run equals that of a single process (docs/distributed.md).
        num_workers: Loader processes. The batches do not depend on it; 0 is best for images in memory.
        seed: Seed of the batches. None: the one given to `seed_everything`, else 0.
        images_on_device: Whether the Trainer's device keeps a copy of the training images, so that each step transfers
            only indices. `auto`: on a GPU, if they take at most a quarter of its free memory. Batches do not depend on
            it. Augmented images are always transferred.
        augmentation: Names of `torchvision.transforms.v2`, those with arguments as
            `{name: RandomCrop, size: 32, padding: 4}`. They apply to the SGD batch, to each image independently; the
            NES batch ranks assignments in evaluation mode, on images as in a test.
        augmentation_views: Number of ways in which each image is augmented; it takes its turns with one after the
            other. Frozen layers then compute each of them once (`feature_cache` of a method). None: another one at
            every turn.

    Attributes:
        class_counts: Name of each task of the data set -> its number of classes, in the default order.
        image_size: (C, H, W) of every image.
        task_names: Names of the chosen tasks; this and the next three are known before any data are read.
        num_classes: Number of classes of each chosen task.
        image_shape: `[C, H, W]`.
        validation_prefix: "test_curve" if the validation loop uses test images, otherwise "val".

    Raises:
        ValueError: An option is out of range or names an unknown task.
    """

    class_counts: Mapping[str, int]
    image_size: tuple[int, int, int]
    neutral_options: ClassVar[frozenset[str]] = frozenset(
        {"root", "num_workers", "evaluation_batch_size", "images_on_device"}
    )
    """Options that neither batches nor scores depend on; not in `identity`."""
    batch_options: ClassVar[frozenset[str]] = frozenset({"seed", "batch_size", "distribute"})
    """Options of the training batches; evaluations do not depend on them."""

    def __init__(
        self,
        root: str = "data",
        tasks: list[str] | None = None,
        batch_size: int = 16,
        evaluation_batch_size: int = 128,
        validation: Validation = "none",
        validation_fraction: float = 0.2,
        validation_images: int | None = None,
        split_seed: int = 0,
        num_workers: int = 0,
        seed: int | None = None,
        distribute: Distribute = "examples",
        images_on_device: OnDevice = "auto",
        augmentation: list[str | dict[str, Any]] | None = None,
        augmentation_views: int | None = None,
    ) -> None:
        super().__init__()
        # Not to the logger: Lightning refuses options with the same name as one of the method (`seed`).
        self.save_hyperparameters(logger=False)
        self.dataset_name = type(self).__name__
        self.task_names = choose_tasks(self.dataset_name, list(self.class_counts), tasks)
        self.num_classes = [int(self.class_counts[name]) for name in self.task_names]
        self.image_shape = [int(size) for size in self.image_size]
        self.validation_prefix = "test_curve" if validation == "none" else "val"
        for option, value, minimum in (
            ("batch_size", batch_size, 1),
            ("evaluation_batch_size", evaluation_batch_size, 1),
            ("num_workers", num_workers, 0),
        ):
            require_at_least(self.dataset_name, option, value, minimum)
        require_one_of(self.dataset_name, "validation", validation, get_args(Validation))
        require_one_of(self.dataset_name, "distribute", distribute, get_args(Distribute))
        require_one_of(self.dataset_name, "images_on_device", images_on_device, ("auto", True, False))
        require_fraction(self.dataset_name, "validation_fraction", validation_fraction)
        if validation_images is not None:
            require_at_least(self.dataset_name, "validation_images", validation_images, 1)
            if validation != "unused":
                raise ValueError(
                    f"{self.dataset_name}: validation_images only applies to validation: unused, "
                    f"but validation is {validation!r}."
                )
        if augmentation_views is not None:
            require_at_least(self.dataset_name, "augmentation_views", augmentation_views, 1)
        self.augmentation_views = augmentation_views
        self.root = root
        self.batch_size = batch_size
        self.evaluation_batch_size = evaluation_batch_size
        self.validation = validation
        self.validation_fraction = validation_fraction
        self.validation_images = validation_images
        self.split_seed = split_seed
        self.num_workers = num_workers
        self.distribute = distribute
        self.images_on_device = images_on_device
        self.seed = resolve_seed(seed)
        self._augmentation = (
            Augmentation(self.dataset_name, augmentation, self.seed, self.image_shape) if augmentation else None
        )
        self._splits: dict[Split, list[Examples]] = {}
        self._class_names: list[tuple[str, ...] | None] = []
        self._device_images: DeviceImages | None = None
        self._features: tuple[list[Tensor], int] | None = None
        self._digest: str | None = None

    @abstractmethod
    def load_tasks(self) -> Sequence[TaskData]:
        """Reads at least the tasks in `task_names` and returns them in any order; others are ignored."""

    def augmentation(self) -> Augment | None:
        """Returns the augmentation of SGD batches, or None."""
        return self._augmentation

    @property
    def root_path(self) -> Path:
        """The folder `root`, with `~` expanded."""
        return Path(self.root).expanduser()

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How to convert an image to the network's input outside of training, as numbers, strings and lists.

        The image is converted to `size` `[H, W]` and `channels`; then each value v in 0..255 of a channel becomes
        `(v * scale - mean) / std`. A data set that resizes images adds how.
        """
        channels, height, width = self.image_shape
        return {
            "size": [height, width],
            "channels": channels,
            "scale": 1 / 255,
            "mean": [0.0] * channels,
            "std": [1.0] * channels,
        }

    @property
    def task_info(self) -> dict[str, Any]:
        """The arguments of a method that come from the data: `LearnedWeightSharing(..., **datamodule.task_info)`."""
        return {
            "task_names": list(self.task_names),
            "num_classes": list(self.num_classes),
            "image_shape": list(self.image_shape),
            "validation_prefix": self.validation_prefix,
        }

    @property
    def identity(self) -> dict[str, Any]:
        """The options that batches or scores depend on, as JSON values: all except `neutral_options`.

        A subclass adds options that do not affect results to `neutral_options`. The record of a run, reports, sweeps
        and checkpoints compare identities.
        """
        options = {**self.hparams, "seed": self.seed, "tasks": self.task_names}
        return options_to_json(options, without=self.neutral_options)

    @property
    def class_names(self) -> list[tuple[str, ...] | None]:
        """The class names of each task, or None if its classes have no names. Reads the data."""
        self.setup()
        return list(self._class_names)

    @property
    def digest(self) -> str:
        """Fingerprint of training and test images (`images_digest`). Reads the data."""
        if self._digest is None:
            self._digest = images_digest(self._sources(split) for split in ("train", "test"))
        return self._digest

    def setup(self, stage: str | None = None) -> None:
        """Reads, checks and splits the data, once.

        Raises:
            ValueError: The data do not match the declared tasks, or do not allow the `validation`.
        """
        if self._splits:
            return
        loaded = {task.name: task for task in self.load_tasks()}
        tasks = [self._checked(loaded, name) for name in self.task_names]
        empty = [task.name for task in tasks if len(task.test.labels) == 0]
        if empty:
            rank_zero_warn(f"{self.dataset_name}: no test images in {', '.join(empty)}; not included in any error.")
        if len(empty) == len(tasks):
            raise ValueError(f"{self.dataset_name}: none of the tasks has test images.")
        options = (self.validation, self.validation_fraction, self.validation_images, self.split_seed)
        pairs = [split_training_images(task, self.dataset_name, *options) for task in tasks]
        train, validation = (list(examples) for examples in zip(*pairs, strict=True))
        self._class_names = [task.class_names for task in tasks]
        self._splits = {"train": train, "validation": validation, "test": [task.test for task in tasks]}

    def examples(self, split: Split) -> list[tuple[Tensor, Tensor]]:
        """Returns each task's `(N, C, H, W)` uint8 images and `(N,)` int64 labels; reads all of them.

        With `validation: none`, "validation" has no images.
        """
        return [(read_images(images), labels) for images, labels in self._sources(split)]

    def image_counts(self, split: Split) -> list[int]:
        """Returns each task's number of images; reads none of them a second time."""
        return [len(labels) for _, labels in self._sources(split)]

    def train_dataloader(self) -> DataLoader[StepBatch]:
        """Returns the loader of the training steps, which continues at the trainer's `global_step`."""
        ranks = self._ranks() if self.distribute == "examples" else (0, 1)
        tasks, layer = self.training_inputs()
        augmentation = None if layer else self.augmentation()
        views = self.augmentation_views
        steps = StepBatches(tasks, self.batch_size, self.seed, augmentation, *ranks, views=views, layer=layer)
        trainer = self.trainer  # a callback may start another Trainer during this run and change `self.trainer`
        sampler = StepSampler(lambda: 0 if trainer is None else int(trainer.global_step), len(steps))
        images = [task.images for task in tasks]
        device = device_for(trainer, images, self.images_on_device, self.dataset_name)
        if device is None:
            return StepLoader(steps, sampler=sampler, **self._loader_options())
        device_images = self._device_images = self._device_images or DeviceImages(images)
        indexed: Any = IndexedSteps(steps)
        return IndexedLoader(indexed, sampler=sampler, images=device_images, device=device, **self._loader_options())

    def use_features(self, prefix: FrozenPrefix | None) -> None:
        """Lets training batches contain features in place of images, computed by a network's frozen first layers.

        Evaluations still use images. Without `augmentation_views` augmented images are never the same, and cannot be
        computed in advance; a warning says so. A method calls this at the start of a fit.

        Args:
            prefix: The layers; None: batches contain images.
        """
        self._features = self._device_images = None
        if prefix is None:
            return
        augmentation, views = self.augmentation(), self.augmentation_views
        prepare = partial(self.on_after_batch_transfer, dataloader_idx=0)
        if reason := reason_against_features(augmentation, views, prepare, self.image_shape, prefix.layers):
            rank_zero_warn(f"{self.dataset_name}: {reason}")
            return
        number = 0 if augmentation is None else views or 0
        variant = str(options_to_json({**self.hparams, "seed": self.seed}, without=frozenset())) if number else ""
        features = training_features(self._sources("train"), prefix, self.dataset_name, augmentation, number, variant)
        self._features = None if features is None else (features, prefix.layers)

    def training_inputs(self) -> tuple[list[Examples], int]:
        """Returns each task's training examples, and the layer that takes their images (see `use_features`).

        Features are those of the images, and after them those of their augmented views.
        """
        tasks = self._sources("train")
        if self._features is None:
            return tasks, 0
        features, layer = self._features
        return [Examples(images, task.labels) for images, task in zip(features, tasks, strict=True)], layer

    def teardown(self, stage: str) -> None:
        """Frees the copy of the images on the device, and the features."""
        self._features = None
        if self._device_images is not None:
            self._device_images.free()

    def val_dataloader(self) -> DataLoader[EvaluationBatch]:
        """Returns the loader of the validation images, or of the test images with `validation: none`."""
        return self._evaluation_loader("test" if self.validation == "none" else "validation")

    def test_dataloader(self) -> DataLoader[EvaluationBatch]:
        """Returns the loader of the test images."""
        return self._evaluation_loader("test")

    def state_dict(self) -> dict[str, Any]:
        """Returns what batches and scores depend on: identity, images and number of processes."""
        images = {"images_digest": self.digest} if self._splits else {}
        return {**self.identity, **images, "processes": self._ranks()[1] if self.distribute == "examples" else 1}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Compares a checkpoint's options with this run's, which are used.

        Raises:
            ValueError: The tasks differ, or in training the seed, so that the run cannot be continued.
        """
        fitting = self.trainer is None or self.trainer.state.fn == "fit"
        ignored = frozenset() if fitting else self.batch_options | {"processes"}
        compare_with_checkpoint(self.dataset_name, state_dict, self.state_dict(), ignored)

    def _checked(self, loaded: Mapping[str, TaskData], name: str) -> TaskData:
        if name not in loaded:
            raise ValueError(
                f"{self.dataset_name}, task {name!r}: load_tasks did not return it, only {', '.join(loaded)}."
            )
        loaded[name].check(self.dataset_name, self.class_counts[name], self.image_shape)
        return loaded[name]

    def _sources(self, split: Split) -> list[Examples]:
        self.setup()
        return self._splits[split]

    def _ranks(self) -> tuple[int, int]:
        """Returns the rank of this process and the number of processes."""
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _loader_options(self) -> dict[str, Any]:
        return {
            "batch_size": None,  # items are batches
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            "pin_memory": torch.cuda.is_available(),
        }

    def _evaluation_loader(self, split: Split) -> DataLoader[EvaluationBatch]:
        dataset = EvaluationBatches(self._sources(split), self.evaluation_batch_size, *self._ranks())
        # Lightning does not replace a DistributedSampler; the batches are distributed over the processes already.
        sampler: DistributedSampler[int] = DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=False)
        return DataLoader(dataset, sampler=sampler, **self._loader_options())
