"""Fitness shaping: from losses to utilities (paper, section "Assignment Optimization")."""

import torch
from torch import Tensor

__all__ = ["rank_utilities"]


def rank_utilities(losses: Tensor) -> Tensor:
    r"""Turns losses into equally spaced utilities, the lowest loss receiving 1 and the highest -1.

    .. math:: u_i = 2 \frac{\mathrm{rank}(l_i) - 1}{S - 1} - 1,

    where the ranks go from 1 (highest loss) to S (lowest loss). Utilities depend on the order of the losses
    alone and sum to zero.

    The paper does not say what happens to ties and the authors' program ranks them arbitrarily. Here equal
    losses share the mean of their ranks. This matters once pi has sharpened: assignments that are the same
    have the same loss and say nothing about each other, and if all are, every utility is 0.

    Args:
        losses: `(S,)` or `(S, T)` floating point, finite, S >= 2; each column is ranked by itself.

    Returns:
        Utilities of the shape and dtype of `losses`, in [-1, 1].

    Raises:
        ValueError: If there are fewer than two losses, or one is NaN (an order would be arbitrary).
    """
    population_size = losses.shape[0]
    if population_size < 2:
        raise ValueError(f"Ranking needs the losses of at least two assignments, but got {population_size}.")
    if bool(torch.isnan(losses).any()):
        raise ValueError("Losses with NaN cannot be ranked.")
    lower = (losses.unsqueeze(0) < losses.unsqueeze(1)).sum(dim=1)
    higher = (losses.unsqueeze(0) > losses.unsqueeze(1)).sum(dim=1)
    return (higher - lower).to(losses.dtype) / (population_size - 1)
