"""What a DataModule passes to a method: one batch of every task, or images of one task to evaluate."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from torch import Tensor

__all__ = ["Distribute", "EvaluationBatch", "FeatureBatch", "FrozenPrefix", "PredictionBatch", "StepBatch", "TaskBatch"]

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

    @property
    def layer(self) -> int:
        """The layer of the networks that takes the images: the first."""
        return 0


class FeatureBatch(NamedTuple):
    """A `TaskBatch` with features in place of the images, which the first, frozen layers have computed from them.

    Attributes:
        images: `(T, B, ...)`, the features.
        labels: `(T, B)` int64.
        layer: The layer that takes the features, and the number of layers that have computed them.
    """

    images: Tensor
    labels: Tensor
    layer: int


class FrozenPrefix(NamedTuple):
    """The layers before the first one that is trained, whose outputs a DataModule may compute once.

    Attributes:
        layers: p, their number.
        compute: Maps `(N, C, H, W)` uint8 images to `(N, ...)` features, both on the CPU.
        digest: Of their weights and of all else that features depend on, besides the images.
        cache: The option `feature_cache` of the method: `memory`, or a folder.
    """

    layers: int
    compute: Callable[[Tensor], Tensor]
    digest: str
    cache: str


class StepBatch(NamedTuple):
    """The two batches of one training step (Algorithm 1): one for the NES step, one for the SGD step."""

    nes: TaskBatch | FeatureBatch
    sgd: TaskBatch | FeatureBatch


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
