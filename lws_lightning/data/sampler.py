"""The images of a batch, as a pure function of seed, phase, task and step, without Lightning."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from lws_lightning.batches import EvaluationBatch, FeatureBatch, StepBatch, TaskBatch
from lws_lightning.data.streaming import read_images
from lws_lightning.data.tasks import Examples
from lws_lightning.randomness import generator_for

__all__ = ["Augment", "EvaluationBatches", "IndexStream", "Phase", "StepBatches", "StepLoader", "StepSampler"]

Phase = Literal["nes", "sgd"]
Augment = Callable[[Tensor, int, int, int], Tensor]
"""Called with B images of a task, `(B, C, H, W)` uint8, the step, the task, and the position of the first image in the
step's batch of all processes; returns images of the same shape and dtype."""


class IndexStream:
    """An endless sequence of independent permutations of `range(num_images)`, with random access.

    Images are thus drawn without replacement and reshuffled when used up; a task smaller than the batch is
    repeated evenly: in any window the numbers of occurrences of two images differ by at most two, or one if the
    window starts at a multiple of `num_images`.

    Permutation number e starts at position `e * num_images` and depends only on `(seed, "batch", phase, task, e)`. The
    latest one is kept, since consecutive steps mostly use the same one.

    Args:
        seed: Seed of the batches.
        phase: "nes" or "sgd", two independent streams (Algorithm 1 draws a batch for each).
        task: Index of the task.
        num_images: Number of training images of the task.

    Raises:
        ValueError: There are no images.
    """

    def __init__(self, seed: int, phase: Phase, task: int, num_images: int) -> None:
        if num_images < 1:
            raise ValueError(f"task {task} has no images to draw from (num_images is {num_images}).")
        self.num_images = num_images
        self._generator = partial(generator_for, seed, "batch", phase, task)
        self._epoch = -1
        self._latest = torch.empty(0, dtype=torch.int64)

    def window(self, start: int, count: int) -> Tensor:
        """Returns positions `start..start + count - 1` of the sequence, `(count,)` int64 in `[0, num_images)`.

        Raises:
            ValueError: `start` or `count` is negative.
        """
        if start < 0 or count < 0:
            raise ValueError(f"start and count must not be negative, got {start} and {count}.")
        first, offset = divmod(start, self.num_images)
        last = (start + count - 1) // self.num_images
        permutations = [self._permutation(epoch) for epoch in range(first, max(first, last) + 1)]
        return torch.cat(permutations)[offset : offset + count]

    def _permutation(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            self._latest = torch.randperm(self.num_images, generator=self._generator(epoch))
            self._epoch = epoch
        return self._latest


class StepBatches(Dataset[StepBatch]):
    """Item i is the `StepBatch` of training step i, for every i >= 0.

    Step i uses positions `i * B .. (i + 1) * B - 1` of each task's `IndexStream`, so every step has exactly B images of
    every task, whatever the sizes of the tasks. Steps continue over the epochs: items past `len` exist, and iterating
    over the data set itself never ends.

    Args:
        tasks: The training examples of each of T tasks: N_t >= 1 images, one shape (C, H, W) for all.
        batch_size: B.
        seed: Seed of the batches.
        augment: Augments the images of the SGD batch; a pure function of its arguments. None: no augmentation.
        rank: Rank r of W processes that draw different images. It uses positions
            `(i * W + r) * B .. (i * W + r + 1) * B - 1`, so that the W batches of a step form one of W * B images.
        world_size: W.
        views: V: an image is augmented in V ways, which its turns in the SGD batches use one after the other. None: in
            another way at every turn.
        layer: If the images are features, the layer that takes them (see `FeatureBatch`). Each task then has
            `N_t * (1 + V)` of them: of all its images, then of their first views, and so on.
    """

    def __init__(
        self,
        tasks: Sequence[Examples],
        batch_size: int,
        seed: int,
        augment: Augment | None = None,
        rank: int = 0,
        world_size: int = 1,
        views: int | None = None,
        layer: int = 0,
    ) -> None:
        self.tasks = list(tasks)
        self.augment = augment
        self.layer, self._views = layer, views
        self._rank, self._world_size = rank, world_size
        self._batch_size = batch_size
        self.sizes = [len(labels) for _, labels in tasks]
        phases: tuple[Phase, ...] = get_args(Phase)
        self._streams = {p: [IndexStream(seed, p, task, size) for task, size in enumerate(self.sizes)] for p in phases}

    def __len__(self) -> int:
        """Returns the steps of one epoch, `ceil(max_t N_t / (W * B))`."""
        return -(-max(self.sizes) // (self._batch_size * self._world_size))

    def __getitem__(self, step: int) -> StepBatch:
        if step < 0:
            raise IndexError(f"step {step} is negative.")
        return StepBatch(nes=self.batch("nes", step), sgd=self.batch("sgd", step))

    def indices(self, phase: Phase, step: int) -> Tensor:
        """Returns the indices of the images of a batch, `(T, B)` int64; row t in `[0, N_t)`."""
        start, size = self._start(step), self._batch_size
        return torch.stack([stream.window(start, size) for stream in self._streams[phase]])

    def rows(self, phase: Phase, step: int, indices: Tensor) -> Tensor:
        """Returns where the images of a batch, or the features of their views, are in the tasks' images, `(T, B)`."""
        if phase != "sgd" or not self.layer or self._views is None:
            return indices
        return indices + torch.tensor(self.sizes).unsqueeze(1) * (1 + self._views_at(step))

    def _start(self, step: int) -> int:
        return (step * self._world_size + self._rank) * self._batch_size

    def _views_at(self, step: int) -> Tensor:
        """Returns the view of each image of an SGD batch, `(T, B)` int64: an image's turns take one after the other."""
        assert self._views is not None
        positions = self._start(step) + torch.arange(self._batch_size)
        return positions // torch.tensor(self.sizes).unsqueeze(1) % self._views

    def labels(self, indices: Tensor) -> Tensor:
        """Returns the labels of images, `(T, B)` int64, for the result of `indices`."""
        labels = torch.empty_like(indices)
        for task, index, out in zip(self.tasks, indices, labels, strict=True):
            torch.index_select(task.labels, 0, index, out=out)
        return labels

    def batch(self, phase: Phase, step: int) -> TaskBatch | FeatureBatch:
        """Returns the batch of a phase of step `step` >= 0."""
        indices = self.indices(phase, step)
        first = self.tasks[0].images
        images = torch.empty(*indices.shape, *first.shape[1:], dtype=first.dtype)
        for number, (task, index) in enumerate(zip(self.tasks, self.rows(phase, step, indices), strict=True)):
            read_images(task.images, index, out=images[number])
        if phase == "sgd" and self.augment is not None:
            self._augment(images, indices, step, self.augment)
        labels = self.labels(indices)
        return FeatureBatch(images, labels, self.layer) if self.layer else TaskBatch(images, labels)

    def _augment(self, images: Tensor, indices: Tensor, step: int, augment: Augment) -> None:
        for task, of_task in enumerate(images):
            if self._views is None:
                of_task.copy_(augment(of_task, step, task, self._rank * self._batch_size))
                continue
            for image, view, index in zip(of_task, self._views_at(step)[task], indices[task], strict=True):
                image.copy_(augment(image.unsqueeze(0), int(view), task, int(index))[0])


class StepLoader(DataLoader[StepBatch]):
    """The loader of the training steps.

    It has no state, since a step's batch is a function of the step's number. The two methods keep Lightning from
    warning that a run resumed within an epoch would see different batches.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Does nothing."""


class StepSampler(DistributedSampler[int]):
    """Yields the numbers of the next `num_steps` training steps.

    `StepBatches` divides a step among the processes. Lightning does not replace a `DistributedSampler`, whereas it
    would replace another sampler unless the user sets `use_distributed_sampler=False`.

    The start is read at each `iter`, so that an epoch, a resumed run and a loader with persistent workers continue at
    the current step. A run resumed within an epoch stops after the steps of that epoch.

    Args:
        start: Returns the number of training steps completed.
        num_steps: Steps of one epoch.
    """

    def __init__(self, start: Callable[[], int], num_steps: int) -> None:
        super().__init__(range(num_steps), num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]
        self._start = start

    def __iter__(self) -> Iterator[int]:
        start = self._start()
        return iter(range(start, start + len(self)))


class EvaluationBatches(Dataset[EvaluationBatch]):
    """All images of all tasks, once each, in batches of a single task.

    The tasks alternate: the first batch of each, then the second of each, and so on, so that the first few batches
    (`limit_val_batches`) cover different tasks. A task without images is skipped.

    Args:
        tasks: The examples of each of T tasks; a task may have none.
        batch_size: Largest number of images in a batch.
        rank: Rank among W processes that share the images; each evaluates every W-th batch. All have the same number of
            batches, the last of which may be empty; otherwise processes would wait for each other forever.
        world_size: W.
    """

    def __init__(self, tasks: Sequence[Examples], batch_size: int, rank: int = 0, world_size: int = 1) -> None:
        self._tasks = list(tasks)
        self._batch_size = batch_size
        self._batches = sorted(
            (start, task) for task, (_, labels) in enumerate(tasks) for start in range(0, len(labels), batch_size)
        )
        self._rank, self._world_size = rank, world_size

    def __len__(self) -> int:
        return -(-len(self._batches) // self._world_size)

    def __getitem__(self, index: int) -> EvaluationBatch:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} is not in [0, {len(self)}).")
        number = index * self._world_size + self._rank
        # Indices past the end are padding, so that all ranks have the same length.
        start, task = self._batches[number] if number < len(self._batches) else (len(self._tasks[0].labels), 0)
        images, labels = self._tasks[task].select(slice(start, start + self._batch_size))
        # Copies, since a worker would send the whole storage of a view.
        return EvaluationBatch(task, read_images(images).clone(), labels.clone())
