"""Networks by name or import path."""

import importlib
from collections.abc import Callable, Sequence

from lws_lightning.networks.base import BaseNetwork
from lws_lightning.networks.convnets import cifar100_convnet, digits_convnet, dkl_convnet, omniglot_convnet
from lws_lightning.networks.resnet import resnet18_cifar100, resnet18_omniglot

__all__ = ["NETWORKS", "NetworkBuilder", "build_network"]

NetworkBuilder = Callable[[Sequence[int]], BaseNetwork]
"""Makes a base network for images of a shape `(C, H, W)`."""

NETWORKS: dict[str, NetworkBuilder] = {
    "dkl_convnet": dkl_convnet,
    "digits_convnet": digits_convnet,
    "cifar100_convnet": cifar100_convnet,
    "omniglot_convnet": omniglot_convnet,
    "resnet18_cifar100": resnet18_cifar100,
    "resnet18_omniglot": resnet18_omniglot,
}
"""The networks that have a name."""


def build_network(network: str | NetworkBuilder, image_shape: Sequence[int]) -> BaseNetwork:
    """Builds a base network.

    Args:
        network: One of `NETWORKS`, an import path `package.module:build`, or a callable like those.
        image_shape: `(C, H, W)` of the images.

    Raises:
        ValueError: If the network is unknown, cannot be imported, is not a `BaseNetwork`, or cannot take such images.
    """
    if not isinstance(network, str):
        builder = network
    elif network in NETWORKS:
        builder = NETWORKS[network]
    else:
        builder = _import_builder(network)
    base = builder(image_shape)
    if not isinstance(base, BaseNetwork):
        raise ValueError(
            f"The network {network!r} must build a lws_lightning.networks.BaseNetwork, but built a "
            f"{type(base).__name__}."
        )
    return base


def _import_builder(path: str) -> NetworkBuilder:
    module_name, colon, function_name = path.partition(":")
    if not colon:
        raise ValueError(
            f"There is no network named {path!r}. Choose one of {sorted(NETWORKS)}, or give the import path of your "
            "own as 'package.module:build'."
        )
    remedy = "Give the import path of your own network as 'package.module:build'"
    try:
        builder = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # the last two: ".module:", ":build"
        raise ValueError(f"The network {path!r} cannot be imported: {error}. {remedy}.") from error
    if not callable(builder):
        raise ValueError(f"The network {path!r} is not a function but a {type(builder).__name__}. {remedy}.")
    return builder  # type: ignore[no-any-return]
