"""Networks by name or import path."""

import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from lws_lightning.networks.base import BaseNetwork
from lws_lightning.networks.chain import try_images
from lws_lightning.networks.convnets import (
    cifar100_convnet,
    digits_convnet,
    digits_dense,
    dkl_convnet,
    omniglot_convnet,
)
from lws_lightning.networks.inputs import with_input
from lws_lightning.networks.models import base_network_from_model
from lws_lightning.networks.pretrained import load_pretrained
from lws_lightning.networks.resnet import resnet18_cifar100, resnet18_omniglot
from lws_lightning.networks.timm_models import TIMM_PREFIX, make_timm_model
from lws_lightning.networks.torchvision_models import TORCHVISION_PREFIX, make_torchvision_model
from lws_lightning.networks.verification import refuse_hidden_randomness

__all__ = ["LIBRARY_PREFIXES", "NETWORKS", "NetworkBuilder", "build_network"]

NetworkBuilder = Callable[[Sequence[int]], BaseNetwork | nn.Module]
"""Makes a base network, or a classifier to be cut into one, for images of shape `(C, H, W)`."""

NETWORKS: dict[str, NetworkBuilder] = {
    "dkl_convnet": dkl_convnet,
    "digits_convnet": digits_convnet,
    "digits_dense": digits_dense,
    "cifar100_convnet": cifar100_convnet,
    "omniglot_convnet": omniglot_convnet,
    "resnet18_cifar100": resnet18_cifar100,
    "resnet18_omniglot": resnet18_omniglot,
}
"""The networks by name."""

_LIBRARIES = {TORCHVISION_PREFIX: make_torchvision_model, TIMM_PREFIX: make_timm_model}

LIBRARY_PREFIXES = tuple(_LIBRARIES)
"""Prefixes of the names of other libraries' networks."""


def build_network(
    network: str | NetworkBuilder,
    image_shape: Sequence[int],
    pretrained_weights: str | None = None,
    network_input: Mapping[str, Any] | None = None,
) -> BaseNetwork:
    """Builds a base network.

    Args:
        network: One of `NETWORKS`; `torchvision:` or `timm:` and the name of one of its classifiers; an import path
            `package.module:build`; or a callable. It builds a `BaseNetwork`, or any classifier that can be cut into a
            chain of layers (see `base_network_from_model`).
        image_shape: `(C, H, W)` of the images.
        pretrained_weights: Initial weights of all copies (see `load_pretrained`); None: random weights.
        network_input: How the first layer resizes and normalises images (see `read_network_input`); None: it does not.

    Raises:
        ValueError: If the network is unknown, cannot be imported, is not a chain of layers, draws random numbers that
            cannot be repeated, or cannot take such images; or if the weights do not exist or do not fit.
    """
    if isinstance(network, nn.Module):
        raise ValueError(
            "network must be a function that builds a network, not a network itself: pass lambda shape: ..."
        )
    if network_input is not None:
        values = dict(network_input)
        size = values["size"]
        shape = image_shape if size is None else (image_shape[0], size, size)
        return with_input(build_network(network, shape, pretrained_weights), values)
    for prefix, make_model in _LIBRARIES.items():
        if isinstance(network, str) and network.startswith(prefix):
            make = partial(make_model, network.removeprefix(prefix), tuple(image_shape), pretrained_weights)
            return base_network_from_model(make, image_shape, f"The network {network}", pretrained_weights is not None)
    if not isinstance(network, str):
        builder = network
    elif network in NETWORKS:
        builder = NETWORKS[network]
    else:
        builder = _import_builder(network)
    built = builder(image_shape)
    what = f"The network {network!r}"
    if isinstance(built, BaseNetwork):
        if pretrained_weights is not None:
            raise ValueError(f"{what} does not support pretrained_weights; its builder may load weights itself.")
        if builder not in NETWORKS.values():
            _refuse_hidden_randomness(built, image_shape, what)
        return built
    if not isinstance(built, nn.Module):
        raise ValueError(
            f"{what} must build a lws_lightning.networks.BaseNetwork, or a torch.nn.Module that ends with nn.Linear, "
            f"but built a {type(built).__name__}."
        )
    return _from_own_model(builder, image_shape, what, pretrained_weights)


def _from_own_model(
    builder: Callable[[Sequence[int]], Any], image_shape: Sequence[int], what: str, pretrained_weights: str | None
) -> BaseNetwork:
    def make() -> nn.Module:
        model: nn.Module = builder(image_shape)
        if pretrained_weights is not None:
            try_images(model, image_shape, what)  # gives lazy modules their shapes
            load_pretrained(model, pretrained_weights, None, what)
        return model

    return base_network_from_model(make, image_shape, what, pretrained_weights is not None)


def _refuse_hidden_randomness(base: BaseNetwork, image_shape: Sequence[int], what: str) -> None:
    blocks = [copy.deepcopy(layer.block) for layer in base.layers]
    with suppress(RuntimeError, TypeError, IndexError):  # a network that does not run fails in training
        refuse_hidden_randomness(blocks, torch.rand(2, *image_shape), what)


def _import_builder(path: str) -> NetworkBuilder:
    module_name, colon, function_name = path.partition(":")
    if not colon:
        raise ValueError(
            f"There is no network named {path!r}. Choose one of {sorted(NETWORKS)}, a torchvision classifier as "
            "'torchvision:resnet18', one of timm's as 'timm:resnet18', or give the import path of your own as "
            "'package.module:build'."
        )
    remedy = "Give the import path of your own network as 'package.module:build'"
    try:
        builder = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # the last two: ".module:", ":build"
        raise ValueError(f"The network {path!r} cannot be imported: {error}. {remedy}.") from error
    if not callable(builder):
        raise ValueError(f"The network {path!r} is not a function but a {type(builder).__name__}. {remedy}.")
    return builder  # type: ignore[no-any-return]
