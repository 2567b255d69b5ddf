"""What a DataModule hands to a method: one batch of every task, or images of one task to evaluate."""

from typing import NamedTuple

from torch import Tensor

__all__ = ["EvaluationBatch", "StepBatch", "TaskBatch"]


class TaskBatch(NamedTuple):
    """The same number B of images of each of T tasks.

    Attributes:
        images: `(T, B, C, H, W)` uint8 in [0, 255], or floating point in [0, 1].
        labels: `(T, B)` int64; row t lies in `[0, num_classes[t])`.
    """

    images: Tensor
    labels: Tensor


class StepBatch(NamedTuple):
    """The two batches of one training step (Algorithm 1 draws one for NES and another for SGD)."""

    nes: TaskBatch
    sgd: TaskBatch


class EvaluationBatch(NamedTuple):
    """Some images of a single task.

    Attributes:
        task: Index of the task.
        images: `(N, C, H, W)` uint8 in [0, 255], or floating point in [0, 1].
        labels: `(N,)` int64 in `[0, num_classes[task])`.
    """

    task: int
    images: Tensor
    labels: Tensor
