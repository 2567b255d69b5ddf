"""Training images on the device, so that a step transfers only indices."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.utils.data import Dataset

from lws_lightning.batches import FeatureBatch, StepBatch, TaskBatch
from lws_lightning.data.sampler import Phase, StepBatches, StepLoader
from lws_lightning.data.streaming import Images, read_images

__all__ = ["DeviceImages", "IndexedBatch", "IndexedLoader", "IndexedSteps", "OnDevice", "device_for", "fits_on"]

OnDevice = Literal["auto"] | bool
"""The option `images_on_device` of `MultiTaskDataModule`."""

_SHARE_OF_FREE_MEMORY = 0.25


class IndexedBatch(NamedTuple):
    """A `TaskBatch` without its images.

    Attributes:
        indices: `(T, B)` int64 in `[0, sum_t N_t)`: indices into the concatenated images of all tasks.
        labels: `(T, B)` int64.
        layer: As in `FeatureBatch`; 0 for images.
    """

    indices: Tensor
    labels: Tensor
    layer: int = 0


class IndexedSteps(Dataset[tuple[IndexedBatch | TaskBatch | FeatureBatch, ...]]):
    """The steps of a `StepBatches` as an NES and an SGD batch of indices; augmented SGD batches contain images."""

    def __init__(self, steps: StepBatches) -> None:
        self._steps = steps
        sizes = [len(task.images) for task in steps.tasks]
        self._starts = torch.tensor([0, *sizes[:-1]]).cumsum(0).unsqueeze(1)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, step: int) -> tuple[IndexedBatch | TaskBatch | FeatureBatch, ...]:
        augmented = self._steps.augment is not None
        return self._indexed("nes", step), self._steps.batch("sgd", step) if augmented else self._indexed("sgd", step)

    def _indexed(self, phase: Phase, step: int) -> IndexedBatch:
        indices = self._steps.indices(phase, step)
        rows = self._steps.rows(phase, step, indices)
        return IndexedBatch(rows + self._starts, self._steps.labels(indices), self._steps.layer)


class DeviceImages:
    """The training images of all tasks, copied to a device for the first batch.

    Args:
        images: For each task `(N_t, C, H, W)` uint8, one shape (C, H, W) for all; or features of images.
    """

    def __init__(self, images: Sequence[Images]) -> None:
        self._images = list(images)
        self._copies: dict[torch.device, Tensor] = {}

    def take(self, batch: IndexedBatch | TaskBatch | FeatureBatch, device: torch.device) -> TaskBatch | FeatureBatch:
        """Returns a batch of images on the device."""
        inputs, labels = (tensor.to(device, non_blocking=True) for tensor in batch[:2])
        if not isinstance(batch, IndexedBatch):
            return batch._replace(images=inputs, labels=labels)
        if inputs.device not in self._copies:
            self._copies[inputs.device] = torch.cat(list(map(read_images, self._images))).to(inputs.device)
        images = self._copies[inputs.device].index_select(0, inputs.flatten())
        images = images.view(*inputs.shape, *images.shape[1:])
        return FeatureBatch(images, labels, batch.layer) if batch.layer else TaskBatch(images, labels)

    def free(self) -> None:
        """Frees the copies; the next batch creates a new one."""
        self._copies.clear()


class IndexedLoader(StepLoader):
    """A loader whose processes return indices of images, and whose steps are on the device.

    Args:
        *args: See `DataLoader`; the data set is an `IndexedSteps`.
        images: The images.
        device: The Trainer's device.
        **kwargs: See `DataLoader`.
    """

    def __init__(self, *args: Any, images: DeviceImages, device: torch.device, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.images, self.device = images, device

    def __iter__(self) -> Iterator[StepBatch]:  # type: ignore[override]
        for batches in super().__iter__():
            yield StepBatch(*(self.images.take(batch, self.device) for batch in batches))


def device_for(
    trainer: Trainer | None, images: Sequence[Images], images_on_device: OnDevice, dataset: str
) -> torch.device | None:
    """Returns the device that keeps the training images; None if batches contain images, as without a running fit.

    Raises:
        ValueError: If `images_on_device` is True and the images stream from disk.
    """
    if trainer is None or not (trainer.state.fn == "fit" and trainer.state.status == "running"):
        return None
    if images_on_device is True and not all(isinstance(of_task, Tensor) for of_task in images):
        raise ValueError(
            f"{dataset}: images_on_device: true needs the images in memory, but they stream from disk. Use auto, or "
            "in_memory: true."
        )
    device = trainer.strategy.root_device
    keep = fits_on(device, images) if images_on_device == "auto" else images_on_device
    return device if keep else None


def fits_on(device: torch.device, images: Sequence[Images]) -> bool:
    """Returns whether a GPU should keep images: they are in memory and take at most a quarter of its free memory."""
    if device.type != "cuda" or not all(isinstance(task_images, Tensor) for task_images in images):
        return False
    free, _ = torch.cuda.mem_get_info(device)
    size = sum(task_images.shape.numel() * task_images.dtype.itemsize for task_images in images)
    return size <= _SHARE_OF_FREE_MEMORY * free
