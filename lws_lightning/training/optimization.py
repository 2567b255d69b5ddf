"""Gradients, their norm, learning rate schedules and parameter groups."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lws_lightning.sharing import TaskNetworks
from lws_lightning.training.objective import Objective

__all__ = [
    "LRSchedule",
    "apply_schedule",
    "copy_optimizer_state",
    "gradient_norm",
    "lr_factor",
    "parameter_groups",
    "zero_gradients",
]

LRSchedule = Literal["constant", "linear", "cosine"]
"""The learning rate after the warm-up: constant, or decaying to 0 at the last step."""


def zero_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sets the gradient of every parameter to zero.

    A weight that no assignment of this step uses then has a zero gradient instead of none, so that Adam's momentum
    still moves it. The paper does not say; the authors' program does the same.
    """
    existing = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        else:
            existing.append(parameter.grad)
    if existing:
        torch._foreach_zero_(existing)


def copy_optimizer_state(optimizer: torch.optim.Optimizer, source: Tensor, target: Tensor) -> None:
    """Gives the parameter `target` a copy of the optimizer's state of `source`, if that has any."""
    if source in optimizer.state:
        optimizer.state[target] = {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in optimizer.state[source].items()
        }


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Returns the Euclidean norm of all gradients together; not finite if any gradient is not."""
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])


def lr_factor(schedule: LRSchedule, warmup_steps: int, total_steps: int) -> Callable[[int], float]:
    """Returns the learning rate factor as a function of the number of completed steps.

    It rises linearly over `warmup_steps`, then stays at 1 or decays to 0 at `total_steps`.
    """

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        if schedule == "constant":
            return 1.0
        return 1 - progress if schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2

    return factor


def apply_schedule(schedule: torch.optim.lr_scheduler.LambdaLR) -> None:
    """Applies the schedule to the next step, even if the optimizer state is from another run."""
    groups = zip(schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
    for group, base, factor in groups:
        group["lr"] = base * factor(schedule.last_epoch)


def parameter_groups(
    network: TaskNetworks, objective: Objective, lr: float, gate_lr: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Returns the parameter groups of an optimizer, each with `params`, `lr` and `weight_decay`.

    Gates and the objective's parameters get no weight decay, because 0 is not a neutral value for them.

    Args:
        network: Provides weights and gates.
        objective: Provides its own parameters.
        lr: The learning rate of weights and objective.
        gate_lr: The learning rate of gates.
        weight_decay: The weight decay of weights.
    """
    gates = network.gate_parameters()
    gate_ids = {id(gate) for gate in gates}
    weights = [p for p in network.parameters() if p.requires_grad and id(p) not in gate_ids]
    groups = [
        (weights, lr, weight_decay),
        ([gate for gate in gates if gate.requires_grad], gate_lr, 0.0),
        (list(objective.parameters()), lr, 0.0),
    ]
    return [{"params": params, "lr": rate, "weight_decay": decay} for params, rate, decay in groups if params]
