"""Baselines with a fixed assignment."""

from typing import Any, Literal

import torch
from torch import Tensor

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.sharing import MultiTaskNetwork

__all__ = ["FixedScheme", "FixedSharing", "Sharing"]

Sharing = Literal["full", "none", "prior"]
"""Which weights tasks share: see `FixedSharing`."""


class FixedScheme(Scheme):
    """A fixed assignment; see `FixedSharing` for the options."""

    network: MultiTaskNetwork

    def __init__(self, blueprint: Blueprint, sharing: Sharing, prior_layers: int | None = None) -> None:
        layers, tasks = len(blueprint.layer_names), blueprint.num_tasks
        prior = blueprint.base.prior_layers if prior_layers is None else prior_layers
        if not 0 <= prior <= layers:
            raise ValueError(f"prior_layers must be in [0, {layers}], the network's learned layers, but is {prior}.")
        shared = {"full": layers, "none": 0, "prior": prior}[sharing]
        super().__init__(blueprint.network([1] * shared + [tasks] * (layers - shared)))
        rows = [torch.zeros(tasks, dtype=torch.int64)] * shared + [torch.arange(tasks)] * (layers - shared)
        self._assignment = torch.stack(rows)

    @property
    def assignment(self) -> Tensor:
        """The fixed assignment, `(L, T)`."""
        return self._assignment

    def unshared(self) -> MultiTaskNetwork:
        """Returns networks with separate weights for each task."""
        return self.network.unshared()


class FixedSharing(MultiTaskMethod):
    """Training under a fixed assignment (paper, section "Experiments", baselines).

    The networks, batches and optimizer of `LearnedWeightSharing`, with a population of one and no search.

    Args:
        sharing: `full`: all tasks share every layer except the heads. `none`: nothing is shared. `prior`: the first
            learned layers are shared, and the rest are separate for each task (in the authors' program, not in the
            paper).
        prior_layers: How many learned layers `prior` shares; None: the network's default (the authors' choice).
        **options: See `MultiTaskMethod`.
    """

    state_options = MultiTaskMethod.state_options | {"sharing", "prior_layers"}

    def __init__(self, sharing: Sharing, prior_layers: int | None = None, **options: Any) -> None:
        super().__init__(Design(sharing, lambda blueprint: FixedScheme(blueprint, sharing, prior_layers)), **options)
