"""Multinomial logistic regression with an L2 penalty, which is chosen on examples that are held out."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["choose_penalty", "fit_linear"]

_HELD_OUT = 0.2
_MAX_ITERATIONS = 1000
_RISES = 3


def fit_linear(
    features: Tensor, labels: Tensor, num_classes: int, penalty: float, start: Tensor | None = None
) -> Tensor:
    """Minimises the mean cross-entropy plus `penalty / 2` times the squared norm of the weights, by L-BFGS.

    The bias is not penalised. The minimum is unique for a positive penalty, so the result does not depend on the start.

    Args:
        features: `(N, F)` float64.
        labels: `(N,)` int64 in `[0, num_classes)`.
        num_classes: C.
        penalty: Positive.
        start: `(C, F + 1)`, where the search begins; None: 0.

    Returns:
        `(C, F + 1)` float64: the weights, and in the last column the bias.
    """
    rotation = _rotation(features)
    started = None if start is None else torch.cat([start[:, :-1] @ rotation.T, start[:, -1:]], 1)
    solution = _fit_rotated(features @ rotation.T, labels, num_classes, penalty, started)
    return torch.cat([solution[:, :-1] @ rotation, solution[:, -1:]], 1)


def choose_penalty(
    features: Tensor, labels: Tensor, num_classes: int, penalties: Sequence[float], generator: torch.Generator
) -> float:
    """Returns the penalty with the lowest cross-entropy on a fifth of each class's examples, fitted on the others.

    Candidates are tried from the largest one on, until the cross-entropy has risen three times in a row: the smaller
    ones overfit more, and take the longest.

    Args:
        features: `(N, F)` float64.
        labels: `(N,)` int64. A class with one example keeps it.
        num_classes: C.
        penalties: Candidates. Of equal ones the largest is chosen.
        generator: Draws the examples that are held out.
    """
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(num_classes):
        members = (labels == label).nonzero().squeeze(1)
        shuffled = members[torch.randperm(len(members), generator=generator)]
        held_out[shuffled[: max(0, min(len(members) - 1, max(1, round(_HELD_OUT * len(members)))))]] = True
    best, lowest, solution = max(penalties), float("inf"), None
    if not bool(held_out.any()):
        return best
    rotation = _rotation(features[~held_out])
    fitted, measured = features[~held_out] @ rotation.T, features[held_out] @ rotation.T
    rises, last = 0, float("inf")
    for penalty in sorted(penalties, reverse=True):  # each starts from the solution of the last
        solution = _fit_rotated(fitted, labels[~held_out], num_classes, penalty, solution)
        loss = float(F.cross_entropy(F.linear(measured, solution[:, :-1], solution[:, -1]), labels[held_out]))
        if loss < lowest:
            best, lowest = penalty, loss
        rises, last = rises + 1 if loss > last else 0, loss
        if rises == _RISES:
            break
    return best


def _rotation(features: Tensor) -> Tensor:
    """Returns the principal directions of the examples, `(min(N, F), F)`, orthonormal.

    In these coordinates the penalty is the same, features are uncorrelated, and the weights of the minimum are 0
    outside of them.
    """
    rotation: Tensor = torch.linalg.svd(features, full_matrices=False).Vh
    return rotation


def _fit_rotated(features: Tensor, labels: Tensor, num_classes: int, penalty: float, start: Tensor | None) -> Tensor:
    """Fits as `fit_linear`, to uncorrelated features.

    L-BFGS searches in units in which the curvature at equal class probabilities is 1 in each direction; without them it
    takes thousands of iterations.
    """
    variance = (num_classes - 1) / num_classes**2  # of a class at equal probabilities
    curvature = torch.cat([variance * features.square().mean(0) + penalty, features.new_full((1,), variance)])
    unit = curvature.clamp(min=1e-12).rsqrt()
    solution = features.new_zeros(num_classes, len(unit)) if start is None else start / unit
    solution.requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        [solution],
        max_iter=_MAX_ITERATIONS,
        tolerance_grad=1e-7,
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        weights, bias = (solution * unit).tensor_split([-1], 1)
        value = F.cross_entropy(F.linear(features, weights, bias[:, 0]), labels) + penalty / 2 * weights.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return solution.detach() * unit
