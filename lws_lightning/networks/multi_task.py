"""Makes the networks of all tasks from a base architecture."""

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from lws_lightning.networks.base import BaseLayer, BaseNetwork
from lws_lightning.networks.chain import common_weights
from lws_lightning.networks.initialization import INITIALIZERS, Initialization
from lws_lightning.randomness import generator_for
from lws_lightning.sharing import (
    CommonLayer,
    Copies,
    MultiTaskNetwork,
    SharedLayer,
    freeze,
    initialise_trained_parts_,
    insert_trained_parts,
)

__all__ = ["make_layers_and_heads", "make_multi_task_network"]


def make_multi_task_network(
    base: BaseNetwork,
    num_classes: Sequence[int],
    weights_per_layer: Sequence[int],
    seed: int,
    initialization: Initialization | None = None,
    perturb_copies: float = 0.0,
    copies: Copies = "weights",
    copy_rank: int = 8,
) -> MultiTaskNetwork:
    """Makes a `MultiTaskNetwork`; see `make_layers_and_heads` for the arguments."""
    options = (initialization, perturb_copies, copies, copy_rank)
    return MultiTaskNetwork(*make_layers_and_heads(base, num_classes, weights_per_layer, seed, *options))


def make_layers_and_heads(
    base: BaseNetwork,
    num_classes: Sequence[int],
    weights_per_layer: Sequence[int],
    seed: int,
    initialization: Initialization | None = None,
    perturb_copies: float = 0.0,
    copies: Copies = "weights",
    copy_rank: int = 8,
) -> tuple[list[SharedLayer], list[nn.Module]]:
    """Makes weight sets from a base network's learned layers, and a head for each task.

    Every copy and head is initialised from its own generator, seeded by the seed, the layer and the copy's number, so
    its weights do not depend on K, on other layers, or on earlier draws. If the base network has `redraw`, copy k of
    every layer comes from its k-th call. Copies of a pretrained network start from its weights. A frozen block has the
    weights that the first copy would have.

    Args:
        base: The base network.
        num_classes: Classes of each of the T tasks.
        weights_per_layer: K_l for each learned layer.
        seed: The run's seed.
        initialization: How weights are initialised; None: the base network's default.
        perturb_copies: Standard deviation of the noise added to each weight tensor, independently for each copy,
            relative to the tensor's root mean square. Frozen weights get none.
        copies: What the copies of a learned layer are; all but `weights` are parts of one frozen block (see
            `insert_trained_parts`).
        copy_rank: Rank of the copies `adapter` and `lora`.

    Returns:
        One layer for each layer of the base network, in order, and T heads.

    Raises:
        ValueError: If the number of K_l is not that of the learned layers, if pretrained weights would be
            overwritten, if a learned layer has no place for such copies, or if heads share weights.
    """
    if len(weights_per_layer) != len(base.learned_layers):
        names = [layer.name for layer in base.learned_layers]
        raise ValueError(
            f"weights_per_layer has {len(weights_per_layer)} entries, but the network has {len(names)} learned "
            f"layers: {names}."
        )
    if base.pretrained and initialization is not None:
        raise ValueError(
            f"initialization {initialization!r} would overwrite the pretrained weights. Leave out initialization or "
            "pretrained_weights."
        )
    redraw = None if base.pretrained else base.redraw
    initialise_ = base.initialise if initialization is None else INITIALIZERS[initialization]
    initialise_blocks = initialization is not None or (redraw is None and not base.pretrained)
    blocks = [layer.block for layer in base.layers]
    if redraw is not None and any(layer.frozen for layer in base.layers):
        blocks = list(redraw(generator_for(seed, "drawing", 0)))
    sizes, layers = iter(weights_per_layer), []
    for layer, block in zip(base.layers, blocks, strict=True):
        if layer.frozen:
            block = freeze(copy.deepcopy(block))
            if initialise_blocks:
                initialise_(block, generator_for(seed, "weights", layer.name, 0))
        if layer.frozen and layer.learned and copies != "weights":
            block = insert_trained_parts(block, copies, copy_rank, f"the layer {layer.name}")
        if layer.learned:
            layers.append(SharedLayer(block, next(sizes), frozen=layer.frozen))
        else:
            layers.append(CommonLayer(block, frozen=layer.frozen))
    if redraw is not None:
        _draw_copies(layers, redraw, seed)
    for name, number, block, frozen in _copies(base.layers, layers):
        if frozen:
            initialise_trained_parts_(block, generator_for(seed, "trained parts", name, number))
        elif initialise_blocks:
            initialise_(block, generator_for(seed, "weights", name, number))
        if perturb_copies:
            _perturb(block, perturb_copies, generator_for(seed, "perturbation", name, number))
    heads = [base.make_head(classes) for classes in num_classes]
    if common_weights(list(map(str, range(len(heads)))), heads) is not None:
        raise ValueError("The heads of two tasks use the same weights: make_head must make a new module at each call.")
    for task, head in enumerate(heads):
        initialise_(head, generator_for(seed, "head", task))
    return layers, heads


def _draw_copies(
    layers: Sequence[SharedLayer], redraw: Callable[[torch.Generator], Sequence[nn.Module]], seed: int
) -> None:
    """Gives copy k of every layer that is not frozen the weights of the k-th call of `redraw`."""
    for number in range(max((layer.num_weights for layer in layers if not layer.frozen), default=0)):
        blocks = redraw(generator_for(seed, "drawing", number))
        for layer, block in zip(layers, blocks, strict=True):
            if number < layer.num_weights and not layer.frozen:
                layer.copies[number].load_state_dict(block.state_dict())


def _copies(
    base_layers: Sequence[BaseLayer], layers: Sequence[SharedLayer]
) -> Iterator[tuple[str, int, nn.Module, bool]]:
    """Yields the name of the layer, the number of the copy, the copy, and whether the layer is frozen."""
    for base_layer, layer in zip(base_layers, layers, strict=True):
        for number, block in enumerate(layer.copies):
            yield base_layer.name, number, block, layer.frozen


@torch.no_grad()
def _perturb(module: nn.Module, scale: float, generator: torch.Generator) -> None:
    for weights in module.parameters():
        if weights.requires_grad:
            noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
            weights.add_(noise * (scale * weights.square().mean().sqrt()))
