"""From a base architecture to the networks of several tasks."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from lws_lightning.networks.base import BaseNetwork
from lws_lightning.networks.chain import common_weights
from lws_lightning.networks.initialization import INITIALIZERS, Initialization
from lws_lightning.randomness import generator_for
from lws_lightning.sharing import CommonLayer, MultiTaskNetwork, SharedLayer

__all__ = ["make_layers_and_heads", "make_multi_task_network"]


def make_multi_task_network(
    base: BaseNetwork,
    num_classes: Sequence[int],
    weights_per_layer: Sequence[int],
    seed: int,
    initialization: Initialization | None = None,
    perturb_copies: float = 0.0,
) -> MultiTaskNetwork:
    """Makes the networks of T tasks that assignments choose among. See `make_layers_and_heads` for the arguments."""
    parts = make_layers_and_heads(base, num_classes, weights_per_layer, seed, initialization, perturb_copies)
    return MultiTaskNetwork(*parts)


def make_layers_and_heads(
    base: BaseNetwork,
    num_classes: Sequence[int],
    weights_per_layer: Sequence[int],
    seed: int,
    initialization: Initialization | None = None,
    perturb_copies: float = 0.0,
) -> tuple[list[SharedLayer], list[nn.Module]]:
    """Makes weight sets out of a base network's learned layers, and a head for each task.

    Every copy and head is initialised by a generator of its own, made of the seed, the layer and the copy's number:
    the weights do not depend on K, on the other layers, or on anything drawn before. Of a base network that can be
    drawn anew, copy k of every layer comes from its k-th drawing. A pretrained one's copies start from its weights.

    Args:
        base: The base network.
        num_classes: Classes of each of the T tasks.
        weights_per_layer: K_l for each learned layer.
        seed: The run's seed.
        initialization: How weights are initialised; None: as the base network says.
        perturb_copies: Random numbers with this times the root mean square of each tensor of weights are added to it,
            in every copy by itself.

    Returns:
        A layer for each of the base network's, in order, and T heads.

    Raises:
        ValueError: If there is not one K_l for each learned layer, if pretrained weights would be overwritten, or if
            heads share weights.
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
    sizes = iter(weights_per_layer)
    layers = [SharedLayer(part.block, next(sizes)) if part.learned else CommonLayer(part.block) for part in base.layers]
    names = [part.name for part in base.layers]
    initialise_ = base.initialise if initialization is None else INITIALIZERS[initialization]
    if base.redraw is not None and not base.pretrained:
        _draw_copies(layers, base.redraw, seed)
    if initialization is not None or (base.redraw is None and not base.pretrained):
        for name, number, block in _copies(names, layers):
            initialise_(block, generator_for(seed, "weights", name, number))
    if perturb_copies:
        for name, number, block in _copies(names, layers):
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
    """Gives copy k of every layer the weights of the k-th drawing."""
    for number in range(max(layer.num_weights for layer in layers)):
        blocks = redraw(generator_for(seed, "drawing", number))
        for layer, block in zip(layers, blocks, strict=True):
            if number < layer.num_weights:
                layer.copies[number].load_state_dict(block.state_dict())


def _copies(names: Sequence[str], layers: Sequence[SharedLayer]) -> Iterator[tuple[str, int, nn.Module]]:
    for name, layer in zip(names, layers, strict=True):
        for number, block in enumerate(layer.copies):
            yield name, number, block


@torch.no_grad()
def _perturb(module: nn.Module, scale: float, generator: torch.Generator) -> None:
    for weights in module.parameters():
        noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
        weights.add_(noise * (scale * weights.square().mean().sqrt()))
