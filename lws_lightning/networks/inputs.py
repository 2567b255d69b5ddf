"""What a pretrained network expects of its images: their size, and how their values are normalised."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
import torchvision
from torch import Tensor, nn

from lws_lightning.networks.base import BaseNetwork
from lws_lightning.networks.chain import as_block
from lws_lightning.networks.timm_models import TIMM_PREFIX, timm_input
from lws_lightning.networks.torchvision_models import TORCHVISION_PREFIX

__all__ = ["NetworkInput", "published_input", "read_network_input", "with_input"]

NetworkInput = Literal["weights"] | dict[str, int | list[float] | None] | None
"""The option `network_input`: see `MultiTaskMethod`."""

_ENTRIES = ("size", "mean", "std")


class InputTransform(nn.Module):
    """Resizes images and normalises their channels.

    Args:
        size: Side of the square images, by bilinear interpolation; None: the size is kept.
        mean: Of each channel, for values in [0, 1].
        std: Of each channel, positive.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: int | None, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def extra_repr(self) -> str:
        """Returns the size."""
        return f"size={self.size}"

    def forward(self, images: Tensor) -> Tensor:
        """Maps images `(N, C, H, W)` in [0, 1] to `(N, C, size, size)`."""
        normalised = (images - self.mean) / self.std
        if self.size is None:
            return normalised
        return nn.functional.interpolate(normalised, (self.size, self.size), mode="bilinear")


def published_input(network: str, weights: str | None) -> dict[str, Any] | None:
    """Returns `size`, `mean` and `std` of the images that a library's pretrained weights were trained with.

    Args:
        network: A name with the prefix of a library; others have no record.
        weights: The option `pretrained_weights`; torchvision has a record for each name, by default that of `DEFAULT`.

    Returns:
        The size in pixels, and three values of each of the others for images in [0, 1]; None without a record.
    """
    if network.startswith(TIMM_PREFIX):
        return timm_input(network.removeprefix(TIMM_PREFIX))
    if not network.startswith(TORCHVISION_PREFIX):
        return None
    name = network.removeprefix(TORCHVISION_PREFIX)
    if name not in torchvision.models.list_models(module=torchvision.models):
        return None
    known = torchvision.models.get_model_weights(name).__members__
    if not known:
        return None
    transforms = known.get(weights or "DEFAULT", known["DEFAULT"]).transforms()
    return {"size": int(transforms.crop_size[0]), "mean": list(transforms.mean), "std": list(transforms.std)}


def read_network_input(option: NetworkInput, network: Any, weights: str | None, channels: int) -> dict[str, Any] | None:
    """Reads the option `network_input`.

    Args:
        option: See `MultiTaskMethod`.
        network: The option `network`.
        weights: The option `pretrained_weights`.
        channels: C of the images. If C is not three, a mean or std of the weights becomes its average.

    Returns:
        `size` (or None), and `mean` and `std` with C values each; None without the option.

    Raises:
        ValueError: If an entry is wrong, or the weights have no record.
    """
    if option is None:
        return None
    record = published_input(network, weights) if isinstance(network, str) else None
    if option == "weights" and record is None:
        raise ValueError(
            f"network_input: weights needs a network of torchvision or timm with published weights, but network is "
            f"{network!r}. Give the values, for example {{size: 224, mean: [0.5], std: [0.5]}}."
        )
    given: Mapping[str, Any] = {} if option == "weights" else option
    if not isinstance(given, Mapping) or not set(given) <= set(_ENTRIES):
        raise ValueError(f"network_input must be weights, or have entries size, mean and std, but is {option!r}.")
    record = record or {"size": None, "mean": [0.0], "std": [1.0]}
    values = {name: given.get(name, record[name]) for name in _ENTRIES}
    for name in ("mean", "std"):
        numbers = values[name] if isinstance(values[name], list) else [values[name]]
        if len(numbers) not in (1, channels):
            if name in given:
                raise ValueError(f"network_input: {name} needs one value or {channels}, but is {values[name]!r}.")
            numbers = [sum(numbers) / len(numbers)]
        values[name] = [float(number) for number in numbers * (channels // len(numbers))]
    if values["size"] is not None and (not isinstance(values["size"], int) or values["size"] < 1):
        raise ValueError(f"network_input: size must be a positive number of pixels, but is {values['size']!r}.")
    if min(values["std"]) <= 0:
        raise ValueError(f"network_input: std must be positive, but is {values['std']}.")
    return values


def with_input(base: BaseNetwork, values: Mapping[str, Any]) -> BaseNetwork:
    """Puts an `InputTransform` before the first block.

    Args:
        base: A network for images of that size.
        values: The result of `read_network_input`.
    """

    def add(block: nn.Module) -> nn.Module:
        return as_block([InputTransform(values["size"], values["mean"], values["std"]), block])

    def redrawn(generator: torch.Generator) -> list[nn.Module]:
        assert base.redraw is not None
        first, *others = base.redraw(generator)
        return [add(first), *others]

    layers = [replace(base.layers[0], block=add(base.layers[0].block)), *base.layers[1:]]
    return replace(base, layers=layers, redraw=None if base.redraw is None else redrawn)
