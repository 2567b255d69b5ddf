"""Exponential moving average of the weights."""

import torch
from torch import nn

__all__ = ["decay_at", "update_average"]


def decay_at(step: int, decay: float) -> float:
    """Returns `min(decay, (1 + n) / (10 + n))` after n steps.

    With a constant decay an average would hold the initial weights for thousands of steps.
    """
    return min(decay, (1 + step) / (10 + step))


@torch.no_grad()
def update_average(average: nn.Module, current: nn.Module, decay: float) -> None:
    """Moves every parameter and running statistic of `average` towards `current` by the fraction `1 - decay`.

    Args:
        average: Changed in place.
        current: A module of the same structure. Integer tensors (counters) are copied; those that both have in common
            are left alone.
        decay: In [0, 1).
    """
    averages, values = [], []
    for target, source in zip(_tensors(average), _tensors(current), strict=True):
        if target is source:
            continue
        if target.is_floating_point():
            averages.append(target)
            values.append(source)
        else:
            target.copy_(source)
    torch._foreach_lerp_(averages, values, 1 - decay)


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]
