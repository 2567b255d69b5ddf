"""The training objective: task losses and their weights."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.training.losses import task_losses

__all__ = ["LossWeights", "Objective", "normalised_weights"]

LossWeights = dict[str, float] | list[float] | None
"""By task name (1 for tasks not named), or a list in task order; None: equal weights."""


class Objective(nn.Module):
    """The mean cross-entropy over assignments and tasks, weighted by the tasks' loss weights.

    A subclass may use another loss (`losses`), or minimise another function of the losses (`forward`).

    Args:
        num_tasks: T.
        loss_weights: `(T,)` with a mean of 1; None: equal weights.
    """

    def __init__(self, num_tasks: int, loss_weights: Tensor | None = None) -> None:
        super().__init__()
        self.num_tasks = num_tasks
        self.loss_weights = loss_weights

    def losses(self, logits: Sequence[Tensor], labels: Tensor, tasks: Sequence[int]) -> Tensor:
        """Computes the losses used for ranking assignments and for logging.

        Args:
            logits: For each of T' tasks `(S, B, classes_t)`.
            labels: `(T', B)` int64.
            tasks: The T' tasks.

        Returns:
            `(S, T')` in nats, in at least float32.
        """
        return task_losses(logits, labels)

    def weigh(self, losses: Tensor, tasks: Sequence[int]) -> Tensor:
        """Multiplies the losses `(S, T')` of T' tasks by their loss weights."""
        if self.loss_weights is None:
            return losses
        return losses * self.loss_weights[list(tasks)].to(losses)

    def forward(self, losses: Tensor, tasks: Sequence[int]) -> Tensor:
        """Maps the losses `(S, T')` of T' tasks to the values `(S, T')` whose mean is minimised."""
        return self.weigh(losses, tasks)

    def details(self, task_names: Sequence[str]) -> dict[str, Any]:
        """Returns what a record stores about the objective, as plain values."""
        return {}


def normalised_weights(loss_weights: LossWeights, task_names: Sequence[str]) -> Tensor | None:
    """Validates the option `loss_weights` and scales the weights to a mean of 1.

    Args:
        loss_weights: Positive numbers; only their ratios matter.
        task_names: Names of the T tasks.

    Returns:
        `(T,)` float64 with a mean of 1; None if all are equal.

    Raises:
        ValueError: If a name is not a task's, the number of weights is not T, or a weight is not positive and finite.
    """
    if loss_weights is None:
        return None
    if isinstance(loss_weights, Mapping):
        unknown = [name for name in loss_weights if name not in task_names]
        if unknown:
            raise ValueError(
                f"loss_weights names {', '.join(map(repr, unknown))}, but the tasks are {', '.join(task_names)}."
            )
        weights = [float(loss_weights.get(name, 1.0)) for name in task_names]
    else:
        weights = [float(weight) for weight in loss_weights]
        if len(weights) != len(task_names):
            raise ValueError(
                f"loss_weights has {len(weights)} entries, but there are {len(task_names)} tasks: "
                f"{', '.join(task_names)}."
            )
    for name, weight in zip(task_names, weights, strict=True):
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(
                f"loss_weights must be positive and finite, but that of task {name!r} is {weight}. "
                "To leave a task out, see data.tasks."
            )
    if len(set(weights)) == 1:
        return None
    largest = max(weights)  # divide by it first, so that no sum overflows
    scaled = torch.tensor([weight / largest for weight in weights], dtype=torch.float64)
    return scaled / scaled.mean()
