"""Full sharing, with task losses weighted by learned uncertainties."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.fixed import FixedScheme
from lws_lightning.methods.scheme import Design
from lws_lightning.training import Objective

__all__ = ["UncertaintyObjective", "UncertaintyWeighting"]


class UncertaintyObjective(Objective):
    """Losses weighted by homoscedastic uncertainty; see `UncertaintyWeighting`.

    Args:
        num_tasks: T.
        loss_weights: `(T,)`, or None.
        initial_log_variance: The initial s_t.

    Attributes:
        log_variances: `(T,)`, the s_t.
    """

    def __init__(self, num_tasks: int, loss_weights: Tensor | None = None, initial_log_variance: float = 0.0) -> None:
        if not abs(initial_log_variance) < 50:
            raise ValueError(
                f"initial_log_variance must lie between -50 and 50, because tasks are weighted by its exponential, but "
                f"is {initial_log_variance}."
            )
        super().__init__(num_tasks, loss_weights)
        self.log_variances = nn.Parameter(torch.full((num_tasks,), float(initial_log_variance)))

    def forward(self, losses: Tensor, tasks: Sequence[int]) -> Tensor:
        """Returns the weighted losses, `(S, T')`."""
        log_variances = self.log_variances[list(tasks)]
        return self.weigh(losses * (-log_variances).exp() + log_variances / 2, tasks)

    def details(self, task_names: Sequence[str]) -> dict[str, Any]:
        """Returns `log_variances` by task."""
        return {"log_variances": dict(zip(task_names, self.log_variances.tolist(), strict=True))}


class UncertaintyWeighting(MultiTaskMethod):
    """Full sharing with losses weighted by homoscedastic uncertainty (Kendall, Gal & Cipolla 2018, arXiv 1705.07115).

    All tasks share every layer except the heads, as in `FixedSharing`. The objective is the mean over tasks of
    `exp(-s_t) * L_t + s_t / 2`, where L_t is the task's mean cross-entropy and `s_t = log sigma_t^2` is trained with
    the weights.

    Variant:

    - This is the paper's form for classification (section 3.2): the likelihood is a softmax of logits divided by
      sigma^2, whose logarithm is, to the paper's approximation, `-L / sigma^2 - log sigma`. (For regression, the paper
      has `L / (2 sigma^2)`.)
    - The log-variance is trained rather than the variance, as the paper advises, to avoid division by zero.
    - All s_t start at `initial_log_variance`, by default 0, which gives all tasks the weight 1. They use the learning
      rate of the weights and no weight decay.
    - The mean over tasks, not the sum, so that the gradient equals that of full sharing if all s_t are 0.

    `loss_weights` weigh a task's whole term, including s_t / 2, so that the s_t do not cancel them.

    `train/loss` is the unweighted mean cross-entropy, comparable with other methods. A prediction costs the same as
    under full sharing.

    Args:
        initial_log_variance: The initial s_t.
        **options: See `MultiTaskMethod`.
    """

    start_options = MultiTaskMethod.start_options | {"initial_log_variance"}

    def __init__(self, initial_log_variance: float = 0.0, **options: Any) -> None:
        design = Design(
            "uncertainty",
            lambda blueprint: FixedScheme(blueprint, "full"),
            partial(UncertaintyObjective, initial_log_variance=initial_log_variance),
        )
        super().__init__(design, **options)
