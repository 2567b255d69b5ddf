"""An assignment that branches from the last layer down, as a distribution that is certain."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lws_lightning.search.branching import branch_affinity, group_branches
from lws_lightning.search.distribution import SearchDistribution

__all__ = ["TaskTree"]


class TaskTree(SearchDistribution):
    """One assignment, at first full sharing, which branches layer by layer from the last to the first.

    Args:
        weights_per_layer: K_l for each of L layers, at least T.
        num_tasks: T.

    Attributes:
        agreement: `(T, T)` float64, numbers of images on which two tasks agreed since the last branching.
        images: int64 scalar, the number of images.
    """

    agreement: Tensor
    images: Tensor

    def __init__(self, weights_per_layer: Sequence[int], num_tasks: int) -> None:
        first = torch.zeros(len(weights_per_layer), num_tasks, max(weights_per_layer))
        first[..., 0] = 1
        super().__init__(weights_per_layer, num_tasks, min_probability=0.0, initial_probs=first)
        self.register_buffer("agreement", torch.zeros(num_tasks, num_tasks, dtype=torch.float64))
        self.register_buffer("images", torch.zeros((), dtype=torch.int64))

    def observe(self, agreement: Tensor, images: int) -> None:
        """Adds `(T, T)` numbers of images on which two tasks agree (`difficulty_agreement`) out of `images`."""
        self.agreement += agreement
        self.images += images

    @torch.no_grad()
    def branch(self, layer: int, branch_cost: float) -> list[tuple[int, int]]:
        """Groups the branches above a layer, gives each group a copy of it, and forgets the agreement.

        Args:
            layer: l; all layers above have branched, none below.
            branch_cost: See `group_branches`.

        Returns:
            Pairs of copies (source, target): the weights that each new copy starts from.
        """
        branches = self._branches_above(layer)
        affinity = branch_affinity(self.agreement / self.images.clamp(min=1), branches)
        groups = group_branches(affinity, branch_cost)
        row = torch.zeros(self.num_tasks, dtype=torch.int64)
        for number, group in enumerate(groups):
            row[[task for branch in group for task in branches[branch]]] = number
        one_hot = torch.nn.functional.one_hot(row, self.probs.shape[-1])
        self.probs[layer] = one_hot.to(self.probs.dtype)
        self.agreement.zero_()
        self.images.zero_()
        return [(0, number) for number in range(1, len(groups))]

    def _branches_above(self, layer: int) -> list[list[int]]:
        if layer == self.num_layers - 1:
            return [[task] for task in range(self.num_tasks)]
        copies = self.mode()[layer + 1].tolist()
        return [[task for task, copy in enumerate(copies) if copy == used] for used in sorted(set(copies))]
