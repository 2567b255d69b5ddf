"""Training images that lie on the device already, so that a step only sends which of them it takes."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lws_lightning.batches import StepBatch, TaskBatch
from lws_lightning.data.sampler import Phase, StepBatches, StepLoader
from lws_lightning.data.streaming import Images

__all__ = ["DeviceImages", "IndexedLoader", "IndexedStep", "IndexedSteps", "LazyStep", "OnDevice", "fits_on"]

OnDevice = Literal["auto"] | bool
"""Whether the training images are kept on the device: see `MultiTaskDataModule`."""

_SHARE_OF_FREE_MEMORY = 0.25


class IndexedBatch(NamedTuple):
    """A `TaskBatch` without its images.

    Attributes:
        indices: `(T, B)` int64, the images' places when those of all tasks stand one after the other.
        labels: `(T, B)` int64.
    """

    indices: Tensor
    labels: Tensor


class IndexedStep(NamedTuple):
    """A `StepBatch` without its images; augmented ones, made anew each time, are there."""

    nes: IndexedBatch | TaskBatch
    sgd: IndexedBatch | TaskBatch


class IndexedSteps(Dataset[IndexedStep]):
    """The steps of a `StepBatches`, with the indices of images in place of images.

    Args:
        steps: What says which images a step takes.
        sizes: N_t of each task.
    """

    def __init__(self, steps: StepBatches, sizes: Sequence[int]) -> None:
        self._steps = steps
        self._starts = torch.tensor([0, *sizes[:-1]]).cumsum(0).unsqueeze(1)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, step: int) -> IndexedStep:
        if step < 0:
            raise IndexError(f"step {step} is negative.")
        sgd = self._steps.batch("sgd", step) if self._steps.changes_images else self._indexed("sgd", step)
        return IndexedStep(self._indexed("nes", step), sgd)

    def _indexed(self, phase: Phase, step: int) -> IndexedBatch:
        indices = self._steps.indices(phase, step)
        return IndexedBatch(indices + self._starts, self._steps.labels(indices))


class DeviceImages:
    """The training images of all tasks, copied to a device when the first batch asks for it.

    Args:
        images: For each task `(N_t, C, H, W)` uint8, one shape (C, H, W) for all.
    """

    def __init__(self, images: Sequence[Tensor]) -> None:
        self._images = list(images)
        self._copy: Tensor | None = None

    def complete(self, step: IndexedStep, device: torch.device) -> StepBatch:
        """Returns the step's batches on the device, its images taken there."""
        return StepBatch(*(self._complete(batch, device) for batch in step))

    def _complete(self, batch: IndexedBatch | TaskBatch, device: torch.device) -> TaskBatch:
        sent, labels = (part.to(device, non_blocking=True) for part in batch)
        if isinstance(batch, TaskBatch):
            return TaskBatch(sent, labels)
        if self._copy is None or self._copy.device != sent.device:
            self._copy = torch.cat(self._images).to(sent.device)
        images = self._copy.index_select(0, sent.flatten())
        return TaskBatch(images.view(*sent.shape, *images.shape[1:]), labels)

    def take(self, batch: IndexedBatch | TaskBatch) -> TaskBatch:
        """Returns a batch with its images, taken from the memory of the host."""
        if isinstance(batch, TaskBatch):
            return batch
        starts = torch.tensor([0, *map(len, self._images[:-1])]).cumsum(0).tolist()
        rows = zip(self._images, batch.indices, starts, strict=True)
        return TaskBatch(torch.stack([images[index - start] for images, index, start in rows]), batch.labels)

    def free(self) -> None:
        """Frees the copy; a batch that asks for one makes it anew."""
        self._copy = None


class LazyStep:
    """A step that has its images wherever they are asked for: on a device by `to`, as Lightning does, or here.

    Args:
        step: Which images.
        images: Those of all tasks.
    """

    def __init__(self, step: IndexedStep, images: DeviceImages) -> None:
        self._step, self._images = step, images

    @property
    def nes(self) -> TaskBatch:
        """As that of `StepBatch`."""
        return self._images.take(self._step.nes)

    @property
    def sgd(self) -> TaskBatch:
        """As that of `StepBatch`."""
        return self._images.take(self._step.sgd)

    def __iter__(self) -> Iterator[TaskBatch]:
        return iter((self.nes, self.sgd))

    def to(self, device: torch.device) -> StepBatch:
        """Returns the step on a device, its images taken there."""
        return self._images.complete(self._step, device)


class IndexedLoader(StepLoader):
    """A loader whose processes send the indices of images only.

    Args:
        *args: See `DataLoader`; the data set is an `IndexedSteps`.
        images: What its steps take their images from.
        **kwargs: See `DataLoader`.
    """

    def __init__(self, *args: Any, images: DeviceImages, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.images = images

    def __iter__(self) -> Iterator[LazyStep]:  # type: ignore[override]
        return (LazyStep(step, self.images) for step in super().__iter__())


def fits_on(device: torch.device, images: Sequence[Images]) -> bool:
    """Whether images lie in memory and would take at most a quarter of what is free on a GPU; on the CPU they do not.

    There a copy would save nothing.
    """
    if device.type != "cuda" or not all(isinstance(of_task, Tensor) for of_task in images):
        return False
    free, _ = torch.cuda.mem_get_info(device)
    size = sum(of_task.shape.numel() for of_task in images)  # uint8
    return size <= _SHARE_OF_FREE_MEMORY * free
