"""Which images make up a batch: a pure function of seed, phase, task and step (no Lightning here)."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from lws_lightning.batches import EvaluationBatch, StepBatch, TaskBatch
from lws_lightning.data.streaming import Images, all_images, read_images
from lws_lightning.randomness import generator_for

__all__ = ["Augment", "EvaluationBatches", "Phase", "StepBatches", "StepLoader", "StepSampler", "balanced_indices"]

Phase = Literal["nes", "sgd"]
Augment = Callable[[Tensor, int, int, int], Tensor]
"""Called with B images of a task, `(B, C, H, W)` uint8, the step, the task, and the place of the first of them in the
step's batch of all processes; returns as many images of the same kind."""


class _IndexStream:
    """Random access to the endless sequence of permutations behind `balanced_indices`.

    It keeps the latest permutation, since consecutive steps mostly fall into the same one.
    """

    def __init__(self, seed: int, phase: Phase, task: int, num_images: int) -> None:
        if num_images < 1:
            raise ValueError(f"task {task} has no images to draw from (num_images is {num_images}).")
        self.num_images = num_images
        self._generator = partial(generator_for, seed, "batch", phase, task)
        self._epoch = -1
        self._latest = torch.empty(0, dtype=torch.int64)

    def window(self, start: int, count: int) -> Tensor:
        """Returns positions `start..start + count - 1` of the sequence, `(count,)` int64."""
        if start < 0 or count < 0:
            raise ValueError(f"start and count must not be negative, got {start} and {count}.")
        first, offset = divmod(start, self.num_images)
        last = (start + count - 1) // self.num_images
        pieces = [self._permutation(epoch) for epoch in range(first, max(first, last) + 1)]
        return torch.cat(pieces)[offset : offset + count]

    def _permutation(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            self._latest = torch.randperm(self.num_images, generator=self._generator(epoch))
            self._epoch = epoch
        return self._latest


def balanced_indices(seed: int, phase: Phase, task: int, num_images: int, start: int, count: int) -> Tensor:
    """Returns a window of an endless sequence of independent permutations of `range(num_images)`.

    Images are thus drawn without replacement and reshuffled when used up; a task smaller than the batch is
    repeated evenly: in any window the numbers of times that two images occur differ by two at most, and by
    one where the window starts at a multiple of `num_images`.

    Args:
        seed: Seed of the batches.
        phase: "nes" or "sgd", two independent streams (Algorithm 1 draws a batch for each).
        task: Index of the task.
        num_images: Number of training images of the task, >= 1.
        start: First position, >= 0. Permutation number e covers positions `e * num_images` onwards and
            depends on `(seed, "batch", phase, task, e)` alone.
        count: Number of positions, >= 0.

    Returns:
        `(count,)` int64 in `[0, num_images)`.

    Raises:
        ValueError: There are no images, or `start` or `count` is negative.
    """
    return _IndexStream(seed, phase, task, num_images).window(start, count)


class StepBatches(Dataset[StepBatch]):
    """Item i is the `StepBatch` of training step i, for every i >= 0.

    Step i takes positions `i * B .. (i + 1) * B - 1` of each task's stream (see `balanced_indices`), so every
    step has exactly B images of every task, whatever the sizes of the tasks. Steps go on over the epochs:
    items past `len` exist, and iterating over the data set itself never ends.

    Args:
        images: For each of T tasks `(N_t, C, H, W)` uint8, one shape (C, H, W) for all, N_t >= 1.
        labels: For each task `(N_t,)` int64.
        batch_size: B.
        seed: Seed of the batches.
        augment: Changes the images of the SGD batch; it must be a function of its arguments alone. None: as they are.
        rank: Of W processes that draw different images, this one's number r. It takes positions
            `(i * W + r) * B .. (i * W + r + 1) * B - 1`, so that the W batches of a step are those of W * B images.
        world_size: W.
    """

    def __init__(
        self,
        images: Sequence[Images],
        labels: Sequence[Tensor],
        batch_size: int,
        seed: int,
        augment: Augment | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._rank, self._world_size = rank, world_size
        self._images = list(images)
        self._labels = list(labels)
        self._batch_size = batch_size
        self._augment = augment
        sizes = [len(task_labels) for task_labels in self._labels]
        phases: tuple[Phase, ...] = get_args(Phase)
        self._streams = {p: [_IndexStream(seed, p, task, size) for task, size in enumerate(sizes)] for p in phases}
        self._steps_per_epoch = -(-max(sizes) // (batch_size * world_size))

    def __len__(self) -> int:
        """Returns the steps of one epoch, `ceil(max_t N_t / (W * B))`."""
        return self._steps_per_epoch

    def __getitem__(self, step: int) -> StepBatch:
        if step < 0:
            raise IndexError(f"step {step} is negative.")
        return StepBatch(nes=self.batch("nes", step), sgd=self.batch("sgd", step))

    @property
    def changes_images(self) -> bool:
        """Whether the SGD batch has other images than those of the tasks."""
        return self._augment is not None

    def indices(self, phase: Phase, step: int) -> Tensor:
        """Returns which images of each task a batch holds, `(T, B)` int64; row t in `[0, N_t)`."""
        size = self._batch_size
        start = (step * self._world_size + self._rank) * size
        return torch.stack([stream.window(start, size) for stream in self._streams[phase]])

    def labels(self, indices: Tensor) -> Tensor:
        """Returns the labels of what `indices` returned, `(T, B)` int64."""
        labels = torch.empty_like(indices)
        for of_task, index, out in zip(self._labels, indices, labels, strict=True):
            torch.index_select(of_task, 0, index, out=out)
        return labels

    def batch(self, phase: Phase, step: int) -> TaskBatch:
        """Returns the batch of a phase of step `step` >= 0."""
        indices = self.indices(phase, step)
        images = torch.empty(*indices.shape, *self._images[0].shape[1:], dtype=self._images[0].dtype)
        for task, index in enumerate(indices):
            read_images(self._images[task], index, out=images[task])
            if phase == "sgd" and self._augment is not None:
                images[task] = self._augment(images[task], step, task, self._rank * self._batch_size)
        return TaskBatch(images, self.labels(indices))


class StepLoader(DataLoader[StepBatch]):
    """The loader of the training steps.

    It has nothing to save, since a step's batch follows from the step's number. Having the two methods tells
    Lightning so, which else warns that a run resumed within an epoch would see other batches.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Does nothing."""


class StepSampler(DistributedSampler[int]):
    """Yields the numbers of the next `num_steps` training steps.

    That it is a `DistributedSampler` tells Lightning that the work is divided between the processes already.

    The start is asked for at each `iter`, so an epoch, a resumed run and a loader with persistent workers all
    go on where the run stands. A run resumed within an epoch stops asking when that epoch's steps are done.

    Args:
        start: Returns the number of training steps done so far.
        num_steps: Steps of one epoch.
    """

    def __init__(self, start: Callable[[], int], num_steps: int) -> None:
        super().__init__(range(num_steps), num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]
        self._start = start
        self._num_steps = num_steps

    def __len__(self) -> int:
        return self._num_steps

    def __iter__(self) -> Iterator[int]:
        start = self._start()
        return iter(range(start, start + self._num_steps))


class EvaluationBatches(Dataset[EvaluationBatch]):
    """All images of all tasks, once each, in batches of a single task.

    The tasks take turns, first batch of each, then second of each, and so on, so that the first few batches
    (`limit_val_batches`) reach several tasks. A task without images is skipped.

    Args:
        images: For each of T tasks `(N_t, C, H, W)` uint8; N_t may be 0.
        labels: For each task `(N_t,)` int64.
        batch_size: Largest number of images in a batch.
        rank: Of W processes that share the images, this one's number; it takes every W-th batch. All have the same
            number of batches, the last of which may be without images: a process that had none would leave the others
            waiting for its counts.
        world_size: W.
    """

    def __init__(
        self, images: Sequence[Images], labels: Sequence[Tensor], batch_size: int, rank: int = 0, world_size: int = 1
    ) -> None:
        self._images = list(images)
        self._labels = list(labels)
        self._batch_size = batch_size
        starts = [(start, task) for task, y in enumerate(self._labels) for start in range(0, len(y), batch_size)]
        self._batches = sorted(starts)
        self._rank, self._world_size = rank, world_size

    def __len__(self) -> int:
        return -(-len(self._batches) // self._world_size)

    def __getitem__(self, index: int) -> EvaluationBatch:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} is not in [0, {len(self)}).")
        number = index * self._world_size + self._rank
        # Past the end is the padding that makes ranks equally long.
        start, task = self._batches[number] if number < len(self._batches) else (len(self._labels[0]), 0)
        chunk = slice(start, start + self._batch_size)
        images = all_images(self._images[task][chunk])
        # Copies, since a worker sends the whole storage behind a view.
        return EvaluationBatch(task, images.clone(), self._labels[task][chunk].clone())
