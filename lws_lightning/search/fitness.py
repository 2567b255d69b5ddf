"""Fitness shaping: from losses to utilities (paper, section "Assignment Optimization")."""

import math

import torch
from torch import Tensor

from lws_lightning.search.distribution import Sampling

__all__ = ["drift_half_life", "rank_utilities"]


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


def drift_half_life(population_size: int, learning_rate: float, sampling: Sampling = "independent") -> float:
    r"""Returns in how many NES steps chance alone settles a categorical halfway, if the losses say nothing about it.

    Then its ranks are random, and the expected chance :math:`H = 1 - \sum_k \pi_k^2` that two draws differ falls by the
    factor :math:`1 - \rho` in every step, with :math:`\rho = \eta^2 (S + 1) / (3 S (S - 1))` (no ties, no floor;
    docs/algorithm.md, "How much of the search is chance"; not in the paper). That is for independent draws. Systematic
    ones are spread more evenly over the ranks, and :math:`\rho` is S / (S - 1) times as large, to within what the
    rounding of S times a probability leaves.

    Args:
        population_size: S, at least 2.
        learning_rate: The step size eta of pi, not negative.
        sampling: How the population is drawn.

    Returns:
        Steps after which the expected H is halved, infinity for a step size of 0.
    """
    rho = learning_rate**2 * (population_size + 1) / (3 * population_size * (population_size - 1))
    if sampling == "systematic":
        rho *= population_size / (population_size - 1)
    if rho == 0:
        return math.inf
    return math.log(0.5) / math.log1p(-rho) if rho < 1 else 0.0
