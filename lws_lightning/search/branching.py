"""Which tasks to branch off together: agreement in difficulty, and the grouping of branches (Lu et al. 2017)."""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

__all__ = ["branch_affinity", "difficulty_agreement", "group_branches", "separation"]


def difficulty_agreement(confidences: Tensor) -> Tensor:
    r"""Counts the images on which two tasks agree about which are difficult (Lu et al. 2017, equation 8).

    An image is difficult for a task if its confidence is below the task's mean. The counts divided by N estimate the
    affinity :math:`A(i, j) = E[e_i e_j + (1 - e_i)(1 - e_j)]`.

    Args:
        confidences: `(T, N)` floating point, each task's confidence on the same N images.

    Returns:
        `(T, T)` float64, symmetric, in [0, N]; N on the diagonal.
    """
    difficult = (confidences < confidences.mean(1, keepdim=True)).double()
    return difficult @ difficult.T + (1 - difficult) @ (1 - difficult).T


def branch_affinity(affinity: Tensor, branches: Sequence[Sequence[int]]) -> Tensor:
    r"""Returns the affinity of branches from that of their tasks (Lu et al. 2017, equations 9 and 10).

    .. math:: \frac12 \Big( \operatorname{mean}_{i \in k} \min_{j \in l} A(i, j)
        + \operatorname{mean}_{j \in l} \min_{i \in k} A(i, j) \Big)

    Args:
        affinity: `(T, T)`, symmetric.
        branches: The tasks of each of D branches.

    Returns:
        `(D, D)`, symmetric.
    """
    one_way = torch.stack(
        [torch.stack([affinity[list(k)][:, list(other)].amin(1).mean() for other in branches]) for k in branches]
    )
    return (one_way + one_way.T) / 2


def separation(affinity: Tensor, groups: Sequence[Sequence[int]]) -> float:
    """Returns the mean over groups of the mean distance of a member to the one farthest from it (their equation 11).

    Args:
        affinity: `(D, D)` of branches; the distance is 1 minus the affinity, and 0 of a branch to itself.
        groups: A partition of the D branches.
    """
    distance = (1 - affinity).fill_diagonal_(0)
    return float(torch.stack([distance[list(g)][:, list(g)].amax(1).mean() for g in groups]).mean())


def group_branches(affinity: Tensor, branch_cost: float) -> list[list[int]]:
    r"""Partitions branches into the d groups that minimise separation plus the cost of branching.

    .. math:: \mathrm{separation}(g_d) + \mathrm{branch\_cost} \; \frac{d - 1}{D - 1}

    Candidates are found by merging, from single branches on, the two groups whose union has the least separation, in
    place of the paper's spectral clustering. Equal costs go to fewer groups.

    Args:
        affinity: `(D, D)`, symmetric, in [0, 1].
        branch_cost: Cost of one group for each branch, in units of affinity, at least 0.

    Returns:
        The groups, each ascending, ordered by their first members.
    """
    groups = [[branch] for branch in range(len(affinity))]
    most, best, lowest = len(groups) - 1, groups, float("inf")
    while True:
        cost = separation(affinity, groups) + branch_cost * (len(groups) - 1) / max(most, 1)
        if cost <= lowest + 1e-12:
            best, lowest = groups, cost
        if len(groups) == 1:
            return sorted(sorted(group) for group in best)
        merged = [
            [*(g for g in groups if g is not one and g is not other), [*one, *other]]
            for one, other in combinations(groups, 2)
        ]
        groups = min(merged, key=lambda candidate: separation(affinity, candidate))
