"""Error messages for losses and gradients that are not finite."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from lws_lightning.sharing import TaskNetworks

__all__ = ["NonFiniteError", "non_finite_gradient_message", "non_finite_loss_message"]

_REMEDY = "The weights are those of the previous step. Try a lower model.lr or model.clip_grad_norm"


class NonFiniteError(RuntimeError):
    """A loss or gradient is infinite or NaN; pi, the weights and Adam's state are unchanged."""


def non_finite_loss_message(names: Sequence[str], phase: str, step: int) -> str:
    """Names the tasks whose losses are not finite, on the NES or the SGD batch."""
    return (
        f"Step {step}: the loss of task {_quoted(names)} on the {phase} batch is not finite. "
        f"{_REMEDY}, and check the images of the task."
    )


def non_finite_gradient_message(
    network: TaskNetworks, population: Tensor, tasks: Sequence[int], task_names: Sequence[str], step: int
) -> str:
    """Names the tasks that use weights whose gradient is not finite.

    Args:
        network: The networks, with gradients.
        population: `(S, L, T')` int64.
        tasks: The T' tasks in training.
        task_names: Names of all T tasks.
        step: The training step.
    """
    names = set()
    for assignment in population:
        full_assignment = torch.zeros(len(assignment), len(task_names), dtype=torch.int64)
        full_assignment[:, list(tasks)] = assignment
        for task in tasks:
            if not _finite_gradients(network.task_parameters(full_assignment, task)):
                names.add(task_names[task])
    return f"Step {step}: the gradient of weights that task {_quoted(sorted(names))} uses is not finite. {_REMEDY}."


def _finite_gradients(parameters: Iterable[nn.Parameter]) -> bool:
    return all(bool(torch.isfinite(p.grad).all()) for p in parameters if p.grad is not None)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
