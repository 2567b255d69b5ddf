"""Full sharing, the tasks' losses weighted by learned uncertainties."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.networks import BaseNetwork

__all__ = ["UncertaintyWeighting"]


class UncertaintyWeighting(MultiTaskMethod):
    """Full sharing with losses weighted by homoscedastic uncertainty (Kendall, Gal & Cipolla 2018, arXiv 1705.07115).

    All tasks share every layer but the heads, as in `FixedSharing`. What is minimised is the mean over tasks of
    `exp(-s_t) * L_t + s_t / 2`, where L_t is the task's mean cross-entropy and `s_t = log sigma_t^2` is trained with
    the weights.

    Variant:

    - This is the paper's form for classification (section 3.2): the likelihood is a softmax of logits divided by
      sigma^2, whose logarithm is, to the paper's approximation, `-L / sigma^2 - log sigma`. (For regression, the paper
      has `L / (2 sigma^2)`.)
    - The logarithm of the variance is trained rather than the variance, as the paper advises: no division by zero.
    - All s_t start at `initial_log_variance`, by default 0, where all tasks weigh 1. They have the learning rate of the
      weights and no weight decay.
    - The mean over tasks, not the sum, so that the gradient is that of full sharing where all s_t are 0.

    `loss_weights` weigh the whole of a task's term, s_t / 2 included, so that the s_t do not undo them.

    `train/loss` is the mean cross-entropy without weights, comparable with other methods. A prediction costs what it
    costs under full sharing; the weights of the losses play no part in it.

    Args:
        initial_log_variance: The initial s_t.
        **options: See `MultiTaskMethod`.

    Attributes:
        log_variances: `(T,)`, the s_t.
    """

    method_name = "uncertainty"
    start_options = MultiTaskMethod.start_options | {"initial_log_variance"}

    def __init__(self, initial_log_variance: float = 0.0, **options: Any) -> None:
        if not abs(initial_log_variance) < 50:
            raise ValueError(
                f"initial_log_variance must lie between -50 and 50, because tasks are weighted by its exponential, but "
                f"is {initial_log_variance}."
            )
        super().__init__(**options)
        tasks = len(self.task_names)
        self.log_variances = nn.Parameter(torch.full((tasks,), float(initial_log_variance)))
        self._assignment = torch.zeros(len(self.layer_names), tasks, dtype=torch.int64)

    def choose_weights_per_layer(self, base: BaseNetwork) -> Sequence[int]:
        """Returns 1 for each layer."""
        return [1] * len(base.learned_layers)

    @property
    def assignment(self) -> Tensor:
        """Zeros, `(L, T)`: all tasks share every layer."""
        return self._assignment

    def objective(self, losses: Tensor, tasks: range) -> Tensor:
        """Returns the weighted losses, `(1, T')`."""
        log_variances = self.log_variances[tasks.start : tasks.stop]
        return losses * (-log_variances).exp() + log_variances / 2

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Returns a group for the weights and one for the log-variances."""
        return [
            {"params": super()._weights(), "lr": self.lr, "weight_decay": self.weight_decay},
            {"params": [self.log_variances], "lr": self.lr, "weight_decay": 0.0},
        ]

    def _weights(self) -> list[nn.Parameter]:
        return [*super()._weights(), self.log_variances]

    def details(self) -> dict[str, Any]:
        """Returns `log_variances` by task."""
        return {"log_variances": dict(zip(self.task_names, self.log_variances.tolist(), strict=True))}
