"""What is minimised: the losses of the tasks, and how much each of them counts."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.training.losses import task_losses

__all__ = ["LossWeights", "Objective", "normalised_weights"]

LossWeights = dict[str, float] | list[float] | None
"""By task name (a task that is not named weighs 1), or one for each task in order; None: all alike."""


class Objective(nn.Module):
    """The mean over assignments and tasks of the cross-entropy, each task's times its loss weight.

    A subclass may measure a task by another loss (`losses`), or minimise something else of the losses (`forward`).

    Args:
        num_tasks: T.
        loss_weights: `(T,)` with a mean of 1; None: all tasks count alike.
    """

    def __init__(self, num_tasks: int, loss_weights: Tensor | None = None) -> None:
        super().__init__()
        self.num_tasks = num_tasks
        self.loss_weights = loss_weights

    def losses(self, logits: Sequence[Tensor], labels: Tensor, tasks: Sequence[int]) -> Tensor:
        """Computes the losses that assignments are ranked by and that are logged.

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
        """Returns what is minimised in the mean, `(S, T')`, from the losses of T' tasks."""
        return self.weigh(losses, tasks)

    def details(self, task_names: Sequence[str]) -> dict[str, Any]:
        """Returns what a record should say of it, as plain values."""
        return {}


def normalised_weights(loss_weights: LossWeights, task_names: Sequence[str]) -> Tensor | None:
    """Checks the option `loss_weights` and scales the weights to a mean of 1.

    Args:
        loss_weights: Positive numbers. Only their ratios count.
        task_names: Names of the T tasks.

    Returns:
        `(T,)` float64 with a mean of 1; None if all are equal, so that nothing is multiplied at all.

    Raises:
        ValueError: If a name is no task's, the number of weights is not T, or one is not positive and finite.
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
    largest = max(weights)  # first, so that no sum overflows
    scaled = torch.tensor([weight / largest for weight in weights], dtype=torch.float64)
    return scaled / scaled.mean()
