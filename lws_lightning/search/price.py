"""What assignments cost in parameters, in total and per task."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["marginal_parameters", "shared_parameters"]


def shared_parameters(population: Tensor, layer_sizes: Sequence[int]) -> Tensor:
    r"""Counts the parameters of the learned layers that each assignment uses, each distinct copy once.

    .. math:: P(a) = \sum_l n_l \, |\{a_{l t} : t\}|

    Args:
        population: `(S, L, T)` int64.
        layer_sizes: n_l, the parameters of one copy of each of the L layers.

    Returns:
        `(S,)` float64.
    """
    ordered = population.sort(-1).values
    distinct = 1 + (ordered.diff(dim=-1) != 0).sum(-1)  # (S, L)
    return distinct.double() @ torch.tensor(layer_sizes, dtype=torch.float64)


def marginal_parameters(population: Tensor, layer_sizes: Sequence[int]) -> Tensor:
    r"""Counts the parameters that each task's choices add to those that the other tasks use.

    .. math:: c_t(a) = P(a) - P(a_{-t}) = \sum_l n_l \, [a_{l u} \ne a_{l t} \text{ for all } u \ne t]

    P(a_{-t}) does not depend on task t's choices, so c_t gives its categoricals the gradient of the expected P, without
    the noise of what the other tasks use (docs/algorithm.md, "A price on weights").

    Args:
        population: `(S, L, T)` int64.
        layer_sizes: n_l, the parameters of one copy of each of the L layers.

    Returns:
        `(S, T)` float64.
    """
    users = (population.unsqueeze(-1) == population.unsqueeze(-2)).sum(-1)  # (S, L, T), the task itself included
    return torch.einsum("slt,l->st", (users == 1).double(), torch.tensor(layer_sizes, dtype=torch.float64))
