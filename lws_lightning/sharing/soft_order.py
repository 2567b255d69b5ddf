"""Layers whose order is a soft choice by each task."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lws_lightning.sharing.gated import GatedNetworks, plan_all_copies, root_prefixes
from lws_lightning.sharing.layers import SharedLayer
from lws_lightning.sharing.memory import channels_last
from lws_lightning.sharing.passes import PopulationPass
from lws_lightning.sharing.task_networks import split_tasks

__all__ = ["SoftOrderNetwork"]


class SoftOrderNetwork(GatedNetworks):
    """A chain that all tasks share, in which each task applies D consecutive layers in its own soft order.

    At depth k of D, task t computes `y_k = sum_d softmax(s_t[k])_d * layer_d(y_{k-1})`, every layer at every depth
    (Meyerson & Miikkulainen 2018, section "Soft ordering of shared layers").

    A layer has one set of parameters, but separate running statistics at each depth, because its inputs differ. With
    scales that choose one layer at each depth, this is the permuted network, in eval mode too.

    Args:
        layers: The chain, each with one copy.
        heads: T output layers.
        mixed: Positions of the D layers in the chain. They must be equal except for the values of their weights.
        learned: Positions of the L learned layers.

    Attributes:
        scales: T matrices s_t `(D, D)`, depth by layer, before the softmax; all zero at first.
    """

    layers: nn.ModuleList
    scales: nn.ParameterList

    def __init__(
        self, layers: Sequence[SharedLayer], heads: Sequence[nn.Module], mixed: range, learned: Sequence[int]
    ) -> None:
        blocks = [layers[position].copies[0] for position in mixed]
        for position in mixed:
            layers[position].copies = nn.ModuleList(_tied(block) for block in blocks)
        scales = nn.ParameterList(nn.Parameter(torch.zeros(len(mixed), len(mixed))) for _ in heads)
        super().__init__({"layers": nn.ModuleList(layers), "scales": scales}, heads)
        self._chain, self.mixed, self._learned = list(layers), mixed, list(learned)

    @property
    def weights_per_layer(self) -> list[int]:
        """D for a layer in the soft order, else 1."""
        return [len(self.mixed) if position in self.mixed else 1 for position in self._learned]

    def scale_weights(self, tasks: Sequence[int]) -> Tensor:
        """Returns the softmax of the scales, `(T', D, D)`: task, depth, layer; sums to 1 over layers."""
        return torch.stack([self.scales[task] for task in tasks]).softmax(-1)

    def features(self, images: Tensor, tasks: Sequence[int], batch_size: int) -> Tensor:
        """Computes the output of the chain."""
        activations, prefixes = channels_last(images), root_prefixes(tasks)
        weights = self.scale_weights(tasks)
        for position, layer in enumerate(self._chain):
            plan = plan_all_copies(layer.num_weights, prefixes, tasks, len(self.heads))
            activations = layer(activations, plan, batch_size, self.seed_function_at(position))
            prefixes = plan.prefixes
            if position in self.mixed:
                activations = _mix(activations, weights[:, position - self.mixed.start])
                prefixes = root_prefixes(tasks)
        return activations

    def task_modules(self, assignment: Tensor, task: int) -> list[nn.Module]:
        """Returns the whole chain and the task's head."""
        return [*self._chain, self.heads[task]]

    def task_parameters(self, assignment: Tensor, task: int) -> list[nn.Parameter]:
        """Returns the distinct parameters that a prediction of one task uses."""
        return [*super().task_parameters(assignment, task), self.scales[task]]

    def gate_parameters(self) -> list[nn.Parameter]:
        """Returns the scales."""
        return list(self.scales)

    def passes(self, population: Tensor, batch_size: int, max_images: int | None) -> list[PopulationPass]:
        """Splits by task; each task's batch is D * B images in a mixed layer."""
        size = len(self.mixed)
        smallest = f"{batch_size} in each of {size} mixed layers"
        return split_tasks(len(self.heads), size * batch_size, max_images, smallest)


def _mix(activations: Tensor, weights: Tensor) -> Tensor:
    """Sums `(D * T' * B, ...)`, layer by layer, weighted by `(T', D)`; returns `(T' * B, ...)`."""
    num_tasks, size = weights.shape
    last = activations.movedim(1, -1) if activations.dim() > 2 else activations
    rows = last.reshape(size, num_tasks, -1)
    mixed = torch.einsum("td,dtr->tr", weights, rows).reshape(-1, *last.shape[1:])
    return mixed.movedim(-1, 1) if activations.dim() > 2 else mixed


def _tied(block: nn.Module) -> nn.Module:
    """Copies a block, including running statistics, with the same parameter objects."""
    twin = copy.deepcopy(block)
    for copied, original in zip(twin.modules(), block.modules(), strict=True):
        for name, parameter in original.named_parameters(recurse=False):
            copied.register_parameter(name, parameter)
    return twin
