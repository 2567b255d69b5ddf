"""Baselines whose assignment is given, not learned."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.networks import BaseNetwork

__all__ = ["FixedSharing", "Sharing"]

Sharing = Literal["full", "none", "prior"]
"""Which weights tasks share: see `FixedSharing`."""


class FixedSharing(MultiTaskMethod):
    """Training under a fixed assignment (paper, section "Experiments", baselines).

    Same networks, batches and optimizer as `LearnedWeightSharing`, with a population of one and no search.

    Args:
        sharing: `full`: all tasks share every layer but the heads. `none`: every task has its own. `prior`: the first
            learned layers are shared and the rest is every task's own (in the authors' program, not in the paper).
        prior_layers: How many learned layers `prior` shares; None: what the network names (the authors' choice).
        **options: See `MultiTaskMethod`.
    """

    state_options = MultiTaskMethod.state_options | {"sharing", "prior_layers"}

    def __init__(self, sharing: Sharing, prior_layers: int | None = None, **options: Any) -> None:
        self.method_name = sharing
        self._sharing, self._prior_layers = sharing, prior_layers
        self._num_tasks = len(options.get("task_names", ()))
        super().__init__(**options)
        copies = torch.arange(self._num_tasks)
        rows = [copies if size > 1 else torch.zeros_like(copies) for size in self.weights_per_layer]
        self._assignment = torch.stack(rows)

    def choose_weights_per_layer(self, base: BaseNetwork) -> Sequence[int]:
        """Returns 1 for a shared layer and T for one of which every task has its own."""
        layers = len(base.learned_layers)
        prior = base.prior_layers if self._prior_layers is None else self._prior_layers
        if not 0 <= prior <= layers:
            raise ValueError(f"prior_layers must be in [0, {layers}], the network's learned layers, but is {prior}.")
        shared = {"full": layers, "none": 0, "prior": prior}[self._sharing]
        return [1] * shared + [self._num_tasks] * (layers - shared)

    @property
    def assignment(self) -> Tensor:
        """The fixed assignment, `(L, T)`."""
        return self._assignment
