"""torchvision's classifiers by name, for images with any number of channels."""

from collections.abc import Sequence
from typing import Any

import torch
import torchvision
from torch import nn

from lws_lightning.networks.pretrained import load_pretrained

__all__ = ["TORCHVISION_PREFIX", "make_torchvision_model"]

TORCHVISION_PREFIX = "torchvision:"
"""Prefix of the names of these networks."""


def make_torchvision_model(name: str, image_shape: Sequence[int], pretrained_weights: str | None = None) -> nn.Module:
    """Makes a torchvision classifier.

    For C channels other than three its first convolution is replaced. With pretrained weights, each of the C channels
    gets the sum of the three channels' weights divided by C; with one channel this equals repeating the grey image in
    all three. Otherwise weights are drawn anew, with torchvision's scale for that number of inputs.

    Args:
        name: torchvision's name of the model, for example `resnet18`.
        image_shape: `(C, H, W)`. Vision transformers and MaxViT are built for this size.
        pretrained_weights: See `load_pretrained`.

    Raises:
        ValueError: If there is no such model, it cannot be built for such images, or the weights do not fit.
    """
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise ValueError(f"torchvision has no classifier named {name!r}. It has {', '.join(known)}.")
    channels, height, width = image_shape
    builder = torchvision.models.get_model_builder(name)
    options: dict[str, Any] = {}
    if builder.__module__.endswith("vision_transformer"):
        if height != width:
            raise ValueError(
                f"The network {TORCHVISION_PREFIX}{name} needs square images, but the data's have {height}x{width}."
            )
        options["image_size"] = height
    elif builder.__module__.endswith("maxvit"):
        options["input_size"] = (height, width)
    elif builder.__module__.endswith(("googlenet", "inception")):
        options["init_weights"] = True  # else torchvision warns that its default will change
    try:
        model: nn.Module = builder(weights=None, **options)
    except (ValueError, AssertionError, RuntimeError) as error:
        raise ValueError(
            f"The network {TORCHVISION_PREFIX}{name} cannot be made for {height}x{width} pixels: {error}"
        ) from error
    if pretrained_weights is not None:
        load_pretrained(
            model, pretrained_weights, name, f"The network {TORCHVISION_PREFIX}{name} for {height}x{width} pixels"
        )
    if channels != 3:
        _replace_first_convolution(model, channels, pretrained_weights is not None)
    return model


@torch.no_grad()
def _replace_first_convolution(model: nn.Module, channels: int, pretrained: bool) -> None:
    path, old = next((path, part) for path, part in model.named_modules() if isinstance(part, nn.Conv2d))
    new = nn.Conv2d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        old.stride,  # type: ignore[arg-type]
        old.padding,  # type: ignore[arg-type]
        old.dilation,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    if pretrained:
        new.weight.copy_(old.weight.sum(1, keepdim=True).expand_as(new.weight) / channels)
    else:
        new.weight.normal_(0, float(old.weight.std()) * (old.in_channels / channels) ** 0.5)
    if old.bias is not None and new.bias is not None:
        new.bias.copy_(old.bias)
    model.set_submodule(path, new)
