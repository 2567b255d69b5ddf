"""What the callbacks need to know of a module; every method of this package has it."""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from lightning.pytorch import LightningModule
from torch import Tensor

__all__ = ["DistributionLike", "EvaluationLike", "SharingModule", "TaskEvaluationLike", "as_sharing_module"]


class TaskEvaluationLike(Protocol):
    """One task's share of an evaluation."""

    @property
    def error(self) -> float:
        """Wrong predictions in percent, in [0, 100]."""

    @property
    def images(self) -> int:
        """Number of images the error was measured on."""


class EvaluationLike(Protocol):
    """What one pass over a validation or test set measured."""

    @property
    def prefix(self) -> str:
        """`test_curve`, `val` or `test`."""

    @property
    def step(self) -> int:
        """Training steps that the evaluated weights have behind them."""

    @property
    def error(self) -> float:
        """Percent over all images of all tasks together."""

    @property
    def error_task_mean(self) -> float:
        """Percent, mean of the tasks' errors."""

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats."""

    @property
    def tasks(self) -> Mapping[str, TaskEvaluationLike]:
        """By task name; tasks without images in this evaluation are left out."""


class DistributionLike(Protocol):
    """The search distribution, read only."""

    @property
    def probs(self) -> Tensor:
        """`(L, T, max K)` on the CPU; `probs[l, t]` sums to 1, padding beyond K_l is 0."""

    def entropy(self) -> Tensor:
        """`(L, T)` in nats."""

    def normalized_entropy(self) -> Tensor:
        """`(L, T)` in [0, 1]; 0 where K_l = 1."""


class SharingModule(Protocol):
    """A LightningModule that trains a network for each task."""

    seed: int
    network: Any

    @property
    def method_name(self) -> str:
        """`learned`, `full`, `cross_stitch`, ..."""

    @property
    def network_name(self) -> str:
        """Name of the base network."""

    @property
    def task_names(self) -> list[str]:
        """Names of the T tasks."""

    @property
    def layer_names(self) -> list[str]:
        """Names of the L layers, input first."""

    @property
    def weights_per_layer(self) -> list[int]:
        """K_l, the number of blocks at each layer."""

    @property
    def assignment(self) -> Tensor | None:
        """`(L, T)` int64 on the CPU, the most likely assignment now; None where no assignment describes the sharing."""

    @property
    def distribution(self) -> DistributionLike | None:
        """The search distribution, None where the sharing is fixed."""

    @property
    def evaluations(self) -> Mapping[str, EvaluationLike]:
        """The last evaluation of each prefix."""

    def details(self) -> dict[str, Any]:
        """What else is to be said of the sharing, as plain values."""


_NEEDED = (
    "assignment",
    "details",
    "distribution",
    "evaluations",
    "layer_names",
    "method_name",
    "network_name",
    "seed",
    "task_names",
    "weights_per_layer",
)


def as_sharing_module(module: LightningModule, callback: str) -> SharingModule:
    """Checks that a module has what the callbacks read.

    Args:
        module: The module that the Trainer runs.
        callback: Name of the callback that asks, for the message.

    Returns:
        The same module.

    Raises:
        TypeError: If an attribute is missing.
    """
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise TypeError(
            f"{callback} works with the methods of lws_lightning. {type(module).__name__} lacks {', '.join(missing)}."
        )
    return cast(SharingModule, cast(Any, module))
