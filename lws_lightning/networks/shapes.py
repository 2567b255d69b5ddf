"""The shapes of a base network's activations."""

import copy
from collections.abc import Sequence

import torch

from lws_lightning.networks.base import BaseNetwork

__all__ = ["output_shapes"]


def output_shapes(base: BaseNetwork, image_shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Runs copies of the blocks on one empty image.

    Args:
        base: The base network.
        image_shape: `(C, H, W)`.

    Returns:
        For each layer, by name, the shape of its output without the batch, channels first.
    """
    activations = torch.zeros(1, *image_shape)
    shapes = {}
    with torch.no_grad():
        for layer in base.layers:
            activations = copy.deepcopy(layer.block).eval()(activations)
            shapes[layer.name] = tuple(activations.shape[1:])
    return shapes
