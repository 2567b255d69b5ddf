"""Fitness shaping: from losses to utilities (paper, section "Assignment Optimization")."""

import math

import torch
from torch import Tensor

from lws_lightning.search.distribution import Sampling

__all__ = ["drift_half_life", "false_alarm_probability", "fastest_decision", "rank_utilities"]


def rank_utilities(losses: Tensor) -> Tensor:
    r"""Maps losses to equally spaced utilities, from 1 for the lowest loss to -1 for the highest.

    .. math:: u_i = 2 \frac{\mathrm{rank}(l_i) - 1}{S - 1} - 1,

    with ranks from 1 (highest loss) to S (lowest loss). Utilities depend only on the order of the losses and sum to 0.

    The paper does not say how to treat ties, and the authors' program ranks them arbitrarily. Here equal losses share
    the mean of their ranks. This matters once pi has sharpened: identical assignments have the same loss and carry no
    information about each other; if all are identical, every utility is 0.

    Args:
        losses: `(S,)` or `(S, T)` floating point, finite, S >= 2; each column is ranked separately.

    Returns:
        Utilities in [-1, 1], of the shape and dtype of `losses`.

    Raises:
        ValueError: If there are fewer than two losses, or one is NaN.
    """
    population_size = losses.shape[0]
    if population_size < 2:
        raise ValueError(f"Ranking needs the losses of at least two assignments, but there is {population_size}.")
    if bool(torch.isnan(losses).any()):
        raise ValueError("Losses that contain NaN cannot be ranked.")
    lower = (losses.unsqueeze(0) < losses.unsqueeze(1)).sum(dim=1)
    higher = (losses.unsqueeze(0) > losses.unsqueeze(1)).sum(dim=1)
    return (higher - lower).to(losses.dtype) / (population_size - 1)


def drift_half_life(population_size: int, learning_rate: float, sampling: Sampling = "independent") -> float:
    r"""Returns the half-life, in NES steps, of a categorical's diversity under random drift alone.

    If the losses do not depend on it, its ranks are random, and the expected probability :math:`H = 1 - \sum_k \pi_k^2`
    that two draws differ shrinks by the factor :math:`1 - \rho` per step, with :math:`\rho = \eta^2 (S + 1) / (3 S (S -
    1))` for independent draws (no ties, no floor; docs/algorithm.md, "How much of the search is chance"; not in the
    paper). Systematic draws are spread more evenly over the ranks: :math:`\rho` is S / (S - 1) times as large, up to
    the rounding of S times a probability.

    Args:
        population_size: S, at least 2.
        learning_rate: eta, the step size of pi; not negative.
        sampling: How the population is drawn.

    Returns:
        Steps after which the expected H is halved; infinity for a step size of 0.
    """
    rho = learning_rate**2 * (population_size + 1) / (3 * population_size * (population_size - 1))
    if sampling == "systematic":
        rho *= population_size / (population_size - 1)
    if rho == 0:
        return math.inf
    return math.log(0.5) / math.log1p(-rho) if rho < 1 else 0.0


def false_alarm_probability(critical_z: float, steps: float, num_copies: int) -> float:
    r"""Bounds the probability that chance alone moves a categorical with `critical_z` within a number of NES steps.

    The standardised sum of n independent gradients is, for large n, an Ornstein-Uhlenbeck process in :math:`\ln n`.
    The probability that it leaves :math:`\pm c` before step n is at most about :math:`\varphi(c) \, ((c - 1/c) \ln n +
    4 / c)` (Siegmund, Sequential Analysis, 1985, chapter 4; discrete steps make it smaller), once for each of K
    copies. The bound is only useful for :math:`c \ge 3`; for smaller c it soon exceeds 1.

    Args:
        critical_z: c, not negative.
        steps: n, at least 1.
        num_copies: K.

    Returns:
        A probability, 1 at most; for a c of 0 it is 1.
    """
    if critical_z <= 1 or math.isinf(steps):
        return 1.0
    density = math.exp(-(critical_z**2) / 2) / math.sqrt(2 * math.pi)
    return min(1.0, num_copies * density * ((critical_z - 1 / critical_z) * math.log(steps) + 4 / critical_z))


def fastest_decision(start: float, target: float, learning_rate: float) -> float:
    r"""Returns the NES steps in which the probability of a copy rises from one value to another, at the fastest.

    It rises fastest if the loss depends on nothing else, so that the n of S draws that have it take the n highest
    ranks. The sum of their utilities is n (S - n) / (S - 1), and with n binomial the expected step is

    .. math:: \Delta \pi = \frac{\eta}{S} \, E\left[ \frac{n (S - n)}{S - 1} \right] = \eta \, \pi (1 - \pi) ,

    whatever S: a logistic curve, whose log-odds rise by eta in each step. Systematic draws are S / (S - 1) times as
    fast. Not in the paper.

    Args:
        start: The probability in the beginning, in (0, 1).
        target: The probability in the end, in (0, 1).
        learning_rate: eta, the step size of pi; not negative.

    Returns:
        Steps, 0 if the start is at the target; infinity for a step size of 0.
    """
    if start >= target:
        return 0.0
    odds = math.log(target / (1 - target)) - math.log(start / (1 - start))
    return odds / learning_rate if learning_rate else math.inf
