"""The plain double loop over assignments and tasks: the oracle of the tests and the opponent of the benchmark.

It knows nothing of plans, prefixes or nodes: each visit runs one task's network, made of torch's own modules, on the
task's own batch.
"""

import copy

import torch
from torch import Tensor, nn

from lws_lightning.sharing import MultiTaskNetwork
from lws_lightning.sharing.batch_norm import restore_batch_norms

__all__ = ["PlainLoop"]


class PlainLoop(nn.Module):
    """Copies a `MultiTaskNetwork` with plain batch normalisation, whose running statistics move at every visit.

    Args:
        network: Copied deeply.
    """

    def __init__(self, network: MultiTaskNetwork) -> None:
        super().__init__()
        self.network = restore_batch_norms(copy.deepcopy(network), task=0)

    def visit(self, images: Tensor, assignment: Tensor, task: int) -> Tensor:
        """Runs the network of one task under one assignment `(L, T)` on `(B, ...)`."""
        for module in self.network.task_modules(assignment, task):
            images = module(images)
        return images

    def forward(self, images: Tensor, population: Tensor) -> list[Tensor]:
        """Visits every task `(T, B, ...)` under every assignment `(S, L, T)`; returns logits as the network does."""
        tasks = range(population.shape[2])
        visits = [[self.visit(images[task], assignment, task) for task in tasks] for assignment in population]
        return [torch.stack([row[task] for row in visits]) for task in tasks]
