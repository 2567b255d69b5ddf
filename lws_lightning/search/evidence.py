"""A significance test for the steps of pi: which gradients could as well be chance."""

import torch
from torch import Tensor, nn

__all__ = ["Evidence", "null_variance"]


def null_variance(population: Tensor, num_copies: int, per_task: bool) -> Tensor:
    r"""Computes the variance of the natural gradient if the losses rank the assignments at random.

    Under this null hypothesis every order of the *distinct* assignments is equally likely; equal assignments have equal
    losses and share a rank. (Of a task alone, with `per_task` utilities: its own choices.) Let n_j be the number of
    draws of the distinct assignment j, and for a copy k let A be those that use it and B the others. The utilities of
    `rank_utilities` give the entry of k the exact variance

    .. math:: \frac{A_2 B_1^2 + B_2 A_1^2 + A_2 B_2}{3 S^2 (S - 1)^2}, \qquad
        A_p = \sum_{j \in A} n_j^p, \; B_p = \sum_{j \in B} n_j^p .

    If all draws differ, this is :math:`\sum_s u_s^2 \, q (1 - q) / (S (S - 1))` with q = A_1 / S, the variance under
    random permutations of the utilities. Equal losses of distinct assignments only make the variance smaller.

    Args:
        population: `(S, L, T)` int64, S >= 2.
        num_copies: max K.
        per_task: Whether each task has utilities of its own.

    Returns:
        `(L, T, max K)` float64.
    """
    size = len(population)
    if per_task:
        equal = (population.unsqueeze(0) == population.unsqueeze(1)).all(2)  # (S, S, T)
    else:
        equal = (population.unsqueeze(0) == population.unsqueeze(1)).flatten(2).all(2, keepdim=True)
    multiplicity = equal.sum(1).double()[:, None, :, None]  # (S, 1, T or 1, 1): n_j of each draw's own assignment
    uses = nn.functional.one_hot(population, num_copies).double()
    a1, a2 = uses.sum(0), (uses * multiplicity).sum(0)
    b1, b2 = size - a1, multiplicity.sum(0) - a2
    return (a2 * b1**2 + b2 * a1**2 + a2 * b2) / (3 * size**2 * (size - 1) ** 2)


class Evidence(nn.Module):
    """Sums up the gradient of each categorical until it is significant, and only then passes it on.

    Since the null variance is exact, the sum of a categorical's gradients over its null standard deviation has mean 0
    and variance 1 if the losses say nothing about the categorical, whatever the population, the credit and pi were in
    the meantime. A step is made only where one entry of it exceeds a critical value: by the whole sum, which then
    starts again from 0. The sum of all steps is therefore that of all gradients, up to the part still held back.

    The test is repeated after every step, so the critical value has to be far larger than for a single test
    (docs/algorithm.md, "A step only on evidence").

    Args:
        shape: `(L, T, max K)`.
        critical_value: Standard deviations, positive.

    Attributes:
        gradient: `(L, T, max K)` float64, the sums of gradients since each categorical's last step.
        variance: `(L, T, max K)` float64, the sums of their null variances.
    """

    gradient: Tensor
    variance: Tensor

    def __init__(self, shape: tuple[int, int, int], critical_value: float) -> None:
        super().__init__()
        self.critical_value = critical_value
        self.register_buffer("gradient", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.zeros(shape, dtype=torch.float64))

    @torch.no_grad()
    def release(self, gradient: Tensor, variance: Tensor) -> Tensor:
        """Adds a step's gradient, and takes out the sums that have become significant.

        Args:
            gradient: `(L, T, max K)`, a natural gradient.
            variance: `(L, T, max K)`, its null variance.

        Returns:
            `(L, T, max K)` float64, the sums of the significant categoricals; 0 for the others.
        """
        self.gradient.add_(gradient)
        self.variance.add_(variance)
        beyond = self.gradient.square() > self.critical_value**2 * self.variance
        # Without variance there was no choice, and the gradient is 0 but for rounding.
        significant = (beyond & (self.variance > 0)).any(-1, keepdim=True)
        released = self.gradient.where(significant, 0.0)
        self.gradient.masked_fill_(significant, 0.0)
        self.variance.masked_fill_(significant, 0.0)
        return released

    @torch.no_grad()
    def clear(self) -> None:
        """Forgets all sums."""
        self.gradient.zero_()
        self.variance.zero_()

    def _apply(self, fn: object, recurse: bool = True) -> "Evidence":
        """Ignores moves and casts: the sums stay on the CPU in float64, as pi stays there."""
        return self
