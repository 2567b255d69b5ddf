"""A layer of the base network: a weight set of interchangeable copies, or one block common to all tasks."""

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from lws_lightning.sharing.batch_norm import convert_batch_norms
from lws_lightning.sharing.fusion import run_copies
from lws_lightning.sharing.nodes import Nodes, SeedFunction
from lws_lightning.sharing.plan import LayerPlan
from lws_lightning.sharing.random_layers import convert_random_layers

__all__ = ["CommonLayer", "SharedLayer", "frozen_tensors", "gather_nodes"]


class SharedLayer(nn.Module):
    """A weight set: K interchangeable copies of one layer's block.

    Args:
        block: The block, mapping a batch of images to a batch of activations image by image (except for batch
            normalisation). The copies are deep copies of it.
        num_weights: K.
        initialise: Called with each copy and its number, to initialise its weights.
        frozen: Whether the block is frozen, except for the parameters that require gradients: it stays in eval mode,
            and its copies have the same buffers and parameters in common (not equal ones).
    """

    def __init__(
        self,
        block: nn.Module,
        num_weights: int,
        initialise: Callable[[nn.Module, int], None] | None = None,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        if num_weights < 1:
            raise ValueError(f"A weight set needs at least one copy, but num_weights is {num_weights}.")
        self.frozen = frozen
        if frozen:
            copies = [copy.deepcopy(block, _frozen_of(block)) for _ in range(num_weights)]
        else:
            copies = [convert_random_layers(convert_batch_norms(copy.deepcopy(block))) for _ in range(num_weights)]
        self.copies = nn.ModuleList(copies)
        self.train(not frozen)
        if initialise is not None:
            for number, module in enumerate(self.copies):
                initialise(module, number)

    @property
    def num_weights(self) -> int:
        """K."""
        return len(self.copies)

    @property
    def trains(self) -> bool:
        """Whether the copies have parameters that are trained."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def train(self, mode: bool = True) -> Self:
        """Sets the mode, as in `nn.Module`; a frozen layer stays in eval mode."""
        return super().train(mode and not self.frozen)

    def forward(
        self, activations: Tensor, plan: LayerPlan, batch_size: int, seed_function: SeedFunction | None = None
    ) -> Tensor:
        """Computes the nodes of this layer.

        Args:
            activations: `(parent nodes * B, ...)`, node by node.
            plan: Which copy computes which nodes.
            batch_size: B.
            seed_function: Makes the seeds of random layers; see `node_context`.

        Returns:
            `(nodes * B, ...)`, in the plan's order.
        """
        inputs = gather_nodes(activations, plan.parents, batch_size)
        return run_copies([self.copies[number] for number in plan.copies], inputs, plan.nodes, seed_function)

    def forward_copy(self, activations: Tensor, number: int, task: int) -> Tensor:
        """Runs one copy on a task's `(N, ...)` images, as in the task's own network."""
        if self.training:
            return self.copies[number](activations)  # type: ignore[no-any-return]
        return run_copies([self.copies[number]], activations, [Nodes.of_task(task)])


class CommonLayer(SharedLayer):
    """A layer that all tasks share by construction: a weight set of one, not part of assignments."""

    def __init__(
        self, block: nn.Module, initialise: Callable[[nn.Module, int], None] | None = None, frozen: bool = False
    ) -> None:
        super().__init__(block, 1, initialise, frozen)


def frozen_tensors(module: nn.Module) -> dict[int, Any]:
    """Returns the tensors of frozen layers in a module by `id`: the memo of a deep copy that has them in common."""
    layers = [part for part in module.modules() if isinstance(part, SharedLayer) and part.frozen]
    return {key: tensor for layer in layers for key, tensor in _frozen_of(layer).items()}


def _frozen_of(block: nn.Module) -> dict[int, Any]:
    frozen = [parameter for parameter in block.parameters() if not parameter.requires_grad]
    return {id(tensor): tensor for tensor in [*frozen, *block.buffers()]}


def gather_nodes(activations: Tensor, nodes: Tensor, batch_size: int) -> Tensor:
    """Selects nodes from `(n * B, ...)`; returns `(len(nodes) * B, ...)` in the same memory format."""
    if nodes.equal(torch.arange(len(activations) // batch_size)):
        return activations
    channels_last = activations.dim() == 4 and activations.is_contiguous(memory_format=torch.channels_last)
    images = activations.permute(0, 2, 3, 1) if channels_last else activations
    rows = images.reshape(len(images) // batch_size, -1)
    selected = rows.index_select(0, nodes.to(rows.device, non_blocking=True))
    selected = selected.view(-1, *images.shape[1:])
    return selected.permute(0, 3, 1, 2) if channels_last else selected
