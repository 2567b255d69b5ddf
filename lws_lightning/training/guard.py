"""What is said of a step whose losses or gradients are not finite."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from lws_lightning.sharing import TaskNetworks

__all__ = ["NonFiniteError", "describe_gradient", "describe_losses"]

_REMEDY = "The weights are those of the step before. Try a lower model.lr or model.clip_grad_norm"


class NonFiniteError(RuntimeError):
    """A loss or gradient was infinite or NaN; nothing of it has reached pi, theta or Adam's state."""


def describe_losses(names: Sequence[str], phase: str, step: int) -> str:
    """Says which tasks' losses are not finite, on the NES or the SGD batch."""
    return (
        f"Step {step}: the loss of task {_quoted(names)} on the {phase} batch is not finite. "
        f"{_REMEDY}, and look at the images of the task."
    )


def describe_gradient(
    network: TaskNetworks, population: Tensor | None, tasks: Sequence[int], task_names: Sequence[str], step: int
) -> str:
    """Says which tasks use weights whose gradient is not finite.

    Args:
        network: Has the gradients.
        population: `(S, L, T')` int64, or None where no assignment describes the sharing.
        tasks: The T' tasks in training.
        task_names: Of all T tasks.
        step: Of the run.
    """
    names = set()
    for assignment in [None] if population is None else population:
        of_all = None
        if assignment is not None:
            of_all = torch.zeros(len(assignment), len(task_names), dtype=torch.int64)
            of_all[:, list(tasks)] = assignment
        for task in tasks:
            if not _finite_gradients(network.task_parameters(of_all, task)):
                names.add(task_names[task])
    return f"Step {step}: the gradient of weights that task {_quoted(sorted(names))} uses is not finite. {_REMEDY}."


def _finite_gradients(parameters: Iterable[nn.Parameter]) -> bool:
    return all(bool(torch.isfinite(p.grad).all()) for p in parameters if p.grad is not None)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
