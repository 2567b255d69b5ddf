"""Soft layer ordering: all tasks share the same layers, each in its own soft order."""

from typing import Any

from torch import nn

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.networks import BaseLayer, BaseNetwork
from lws_lightning.sharing import SoftOrderNetwork

__all__ = ["SoftLayerOrdering", "SoftOrderScheme", "longest_uniform_run"]


class SoftOrderScheme(Scheme):
    """One chain of layers, with a soft order over the longest run of equal ones; see `SoftLayerOrdering`."""

    network: SoftOrderNetwork

    def __init__(self, blueprint: Blueprint, scale_lr_factor: float) -> None:
        if not scale_lr_factor > 0:
            raise ValueError(f"scale_lr_factor must be positive, or no order is learned; it is {scale_lr_factor}.")
        layers = blueprint.base.layers
        mixed = longest_uniform_run(blueprint.base)
        learned = [position for position, layer in enumerate(layers) if layer.learned]
        super().__init__(SoftOrderNetwork(*blueprint.layers_and_heads([1] * len(learned)), mixed, learned))
        self.gate_lr_factor = scale_lr_factor
        self.mixed_layers = [layers[position].name for position in mixed]
        self._task_names = list(blueprint.task_names)

    def begin(self, steps: float) -> list[str]:
        """Reports which layers are mixed."""
        return [f"Soft layer ordering mixes {', '.join(self.mixed_layers)}; the other layers are common."]

    def details(self) -> dict[str, Any]:
        """Returns `mixed_layers`, and `scales` by task: `(D, D)`, depth by layer, after the softmax."""
        weights = self.network.scale_weights(range(len(self._task_names))).detach().float()
        scales = {name: matrix.tolist() for name, matrix in zip(self._task_names, weights, strict=True)}
        return {"mixed_layers": list(self.mixed_layers), "scales": scales}


class SoftLayerOrdering(MultiTaskMethod):
    """Soft layer ordering (Meyerson & Miikkulainen 2018, arXiv 1711.00108).

    All tasks share D layers. At each of D depths, every task applies all of them to the output of the previous depth
    and takes a weighted sum, `y_k = sum_d softmax(s[t, k])_d * layer_d(y_{k-1})` (section "Soft ordering of shared
    layers"). The scales s of each task and depth are trained with the weights.

    Variant:

    - The D layers are the longest run of consecutive learned layers that differ only in the values of their weights:
      the same modules with the same parameter shapes, so that they are interchangeable. Of runs of equal length, the
      first is taken. Activations may shrink from depth to depth, as with max-pooling, because every layer at a depth
      shrinks them equally.
    - All other layers are common to all tasks. One of them is the first convolution of the paper's Omniglot network,
      whose input has one channel where the others have 53: conv2, conv3 and conv4 are mixed. The paper's optional
      per-task encoder is not used.
    - Scales start at 0, so that all layers weigh 1/D at first. They are trained at the learning rate of the weights.
    - The paper does not discuss batch normalisation at several depths. Here a layer has the same scale and shift at
      every depth, but separate running statistics for each, because its inputs differ. With scales that choose one
      layer at each depth, the network is then the permuted one, in training and in eval mode.
    - A prediction applies D layers at each of D depths: D times the arithmetic of these layers, with the parameters of
      one network.

    Args:
        scale_lr_factor: Learning rate of the scales relative to `lr`; positive.
        **options: See `MultiTaskMethod`. `max_images_per_pass` counts an image of a task D times.

    Raises:
        ValueError: If no two consecutive layers are equal.
    """

    def __init__(self, scale_lr_factor: float = 1.0, **options: Any) -> None:
        design = Design("soft_layer_ordering", lambda blueprint: SoftOrderScheme(blueprint, scale_lr_factor))
        super().__init__(design, **options)


def longest_uniform_run(base: BaseNetwork) -> range:
    """Returns the positions of the longest run of learned layers that are equal but for their weights.

    Raises:
        ValueError: If no two consecutive layers are equal.
    """
    best = range(0)
    start = 0
    for position, layer in enumerate(base.layers):
        first = base.layers[start]
        if not (layer.learned and first.learned and _interchangeable(first.block, layer.block)):
            start = position
        if layer.learned and position + 1 - start > len(best):
            best = range(start, position + 1)
    if len(best) < 2:
        described = "; ".join(_describe(layer) for layer in base.layers)
        raise ValueError(
            "network has no two consecutive learned layers that are equal in all but the values of their weights, so "
            f"there is no order to learn. Its layers and the shapes of their parameters: {described}."
        )
    return best


def _interchangeable(first: nn.Module, second: nn.Module) -> bool:
    # repr names submodules with their options; parameters that it does not show appear in the shapes.
    return type(first) is type(second) and repr(first) == repr(second) and _shapes(first) == _shapes(second)


def _shapes(block: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(parameter.shape)) for name, parameter in block.named_parameters()]


def _describe(layer: BaseLayer) -> str:
    shapes = ", ".join(str(shape) for _, shape in _shapes(layer.block))
    return f"{layer.name} {shapes}" + ("" if layer.learned else " (common)")
