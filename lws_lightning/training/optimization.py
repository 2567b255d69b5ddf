"""The update of the weights: gradients for every weight, their norm, a schedule."""

import math
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["LRSchedule", "clear_gradients", "lr_factor", "obey_schedule", "total_norm"]

LRSchedule = Literal["constant", "linear", "cosine"]
"""How the learning rate goes on after the warm-up: stays, or falls to 0 at the last step."""


def clear_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Gives every parameter a gradient of zeros.

    So a weight that no assignment of this step uses has the gradient zero, not none, and Adam's momentum still moves
    it. The paper does not say; the authors' program does the same.
    """
    existing = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            existing.append(parameter.grad)
    if existing:
        torch._foreach_zero_(existing)


def total_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Returns the Euclidean norm of all gradients together; not finite if any gradient is not."""
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])


def lr_factor(schedule: LRSchedule, warmup_steps: int, total_steps: int) -> Callable[[int], float]:
    """Returns the factor of the learning rate as a function of the training steps done.

    It rises linearly over `warmup_steps`, then stays at 1 or falls to 0 at `total_steps`.
    """

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        if schedule == "constant":
            return 1.0
        return 1 - progress if schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2

    return factor


def obey_schedule(schedule: torch.optim.lr_scheduler.LambdaLR) -> None:
    """Gives the next step the rate that a schedule says, also where the optimizer's state is another run's."""
    groups = zip(schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
    for group, base, factor in groups:
        group["lr"] = base * factor(schedule.last_epoch)
