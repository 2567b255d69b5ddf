"""What a DataModule passes to a method: one batch of every task, or images of one task to evaluate."""

from typing import Literal, NamedTuple

from torch import Tensor

__all__ = ["Distribute", "EvaluationBatch", "PredictionBatch", "StepBatch", "TaskBatch"]

Distribute = Literal["examples", "tasks"]
"""How the processes of a run divide a step: see `MultiTaskDataModule`."""


class TaskBatch(NamedTuple):
    """The same number B of images of each of T tasks.

    Attributes:
        images: `(T, B, C, H, W)` uint8 in [0, 255], or floating point as the network takes it.
        labels: `(T, B)` int64; row t lies in `[0, num_classes[t])`.
    """

    images: Tensor
    labels: Tensor


class StepBatch(NamedTuple):
    """The two batches of one training step (Algorithm 1): one for the NES step, one for the SGD step."""

    nes: TaskBatch
    sgd: TaskBatch


class EvaluationBatch(NamedTuple):
    """Images of a single task.

    Attributes:
        task: Index of the task.
        images: `(N, C, H, W)` uint8 in [0, 255], or floating point as the network takes it.
        labels: `(N,)` int64 in `[0, num_classes[task])`.
    """

    task: int
    images: Tensor
    labels: Tensor


class PredictionBatch(NamedTuple):
    """Images without labels.

    Attributes:
        images: `(N, C, H, W)` uint8 in [0, 255].
        files: The file of each image.
        tasks: The tasks to predict.
        broken: Files that could not be read, each with the reason.
    """

    images: Tensor
    files: tuple[str, ...]
    tasks: tuple[int, ...]
    broken: tuple[tuple[str, str], ...] = ()
