"""Initial weights, drawn from an explicit generator."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

__all__ = ["INITIALIZERS", "Initialization", "Initializer", "he_uniform_", "torch_default_"]

Initialization = Literal["he_uniform", "torch"]
"""Names of initialisation schemes."""

Initializer = Callable[[nn.Module, torch.Generator], None]
"""Initialises a module in place."""


@torch.no_grad()
def he_uniform_(module: nn.Module, generator: torch.Generator) -> None:
    """Initialises a module as stated in the paper (section "Experiments"): uniform He, biases zero.

    Convolutions and linear layers are drawn from U(-sqrt(6 / fan_in), sqrt(6 / fan_in)). Other modules are unchanged;
    batch normalisation starts as the identity.

    Args:
        module: Changed in place.
        generator: CPU generator.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(part.weight, nonlinearity="relu", generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


@torch.no_grad()
def torch_default_(module: nn.Module, generator: torch.Generator) -> None:
    """Initialises a module with PyTorch's defaults, like the authors' program.

    Weights and biases of convolutions and linear layers are drawn from U(-1 / sqrt(fan_in), 1 / sqrt(fan_in)), which is
    narrower than `he_uniform_` by a factor of sqrt(6). PyTorch also calls this Kaiming uniform.

    Args:
        module: Changed in place.
        generator: CPU generator.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(part.weight, a=math.sqrt(5), generator=generator)
            if part.bias is not None:
                bound = 1 / math.sqrt(part.weight[0].numel())
                nn.init.uniform_(part.bias, -bound, bound, generator=generator)


INITIALIZERS: dict[Initialization, Initializer] = {"he_uniform": he_uniform_, "torch": torch_default_}
"""Initialisation schemes by name."""
