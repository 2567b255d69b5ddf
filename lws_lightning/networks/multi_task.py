"""From a base architecture to the networks of several tasks."""

from collections.abc import Sequence

from torch import nn

from lws_lightning.networks.base import BaseNetwork
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
) -> MultiTaskNetwork:
    """Makes the networks of T tasks that assignments choose among. See `make_layers_and_heads` for the arguments."""
    return MultiTaskNetwork(*make_layers_and_heads(base, num_classes, weights_per_layer, seed, initialization))


def make_layers_and_heads(
    base: BaseNetwork,
    num_classes: Sequence[int],
    weights_per_layer: Sequence[int],
    seed: int,
    initialization: Initialization | None = None,
) -> tuple[list[SharedLayer], list[nn.Module]]:
    """Makes weight sets out of a base network's learned layers, and a head for each task.

    Every copy and head is initialised by a generator of its own, made of the seed, the layer and the copy's number:
    the weights do not depend on K, on the other layers, or on anything drawn before.

    Args:
        base: The base network.
        num_classes: Classes of each of the T tasks.
        weights_per_layer: K_l for each learned layer.
        seed: The run's seed.
        initialization: How weights are initialised; None: as the base network says.

    Returns:
        A layer for each of the base network's, in order, and T heads.

    Raises:
        ValueError: If there is not one K_l for each learned layer.
    """
    if len(weights_per_layer) != len(base.learned_layers):
        names = [layer.name for layer in base.learned_layers]
        raise ValueError(
            f"weights_per_layer has {len(weights_per_layer)} entries, but the network has {len(names)} learned "
            f"layers: {names}."
        )
    initialise_ = base.initialise if initialization is None else INITIALIZERS[initialization]
    sizes = iter(weights_per_layer)
    layers: list[SharedLayer] = []
    for layer in base.layers:

        def initialise(module: nn.Module, number: int, name: str = layer.name) -> None:
            initialise_(module, generator_for(seed, "weights", name, number))

        if layer.learned:
            layers.append(SharedLayer(layer.block, next(sizes), initialise))
        else:
            layers.append(CommonLayer(layer.block, initialise))
    heads = [base.make_head(classes) for classes in num_classes]
    for task, head in enumerate(heads):
        initialise_(head, generator_for(seed, "head", task))
    return layers, heads
