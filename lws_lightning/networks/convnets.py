"""The networks of the paper's experiments, and small ones for the quickstart and the demo."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from torch import nn

from lws_lightning.networks.base import BaseLayer, BaseNetwork
from lws_lightning.networks.initialization import he_uniform_, torch_default_

__all__ = ["cifar100_convnet", "digits_convnet", "digits_dense", "dkl_convnet", "omniglot_convnet", "pooled_head"]


def dkl_convnet(image_shape: Sequence[int]) -> BaseNetwork:
    """The custom network for DKL-MNIST (paper, section "DKL-MNIST").

    Three blocks of convolution 3x3 with 32 filters, batch normalisation, ReLU and 2x2 max-pooling, and a dense
    layer of 128 units with ReLU; all four learned. Prior sharing shares two convolutions.

    Args:
        image_shape: `(C, H, W)`, at least 8x8 pixels; the paper's is `(1, 28, 28)`.
    """
    return _convnet(image_shape, "dkl_convnet", channels=[32] * 3, units=[128], prior_layers=2)


def digits_convnet(image_shape: Sequence[int]) -> BaseNetwork:
    """A small relative of `dkl_convnet` for the quickstart's 8x8 images.

    Two blocks of convolution with 16 and 32 filters and a dense layer of 64 units, all three learned. Prior sharing
    shares one convolution.

    Args:
        image_shape: `(C, H, W)`, at least 4x4 pixels.
    """
    return _convnet(image_shape, "digits_convnet", channels=[16, 32], units=[64], prior_layers=1)


def digits_dense(image_shape: Sequence[int]) -> BaseNetwork:
    """Two dense layers of 12 units with ReLU, both learned. Prior sharing shares the first.

    Args:
        image_shape: `(C, H, W)`.
    """
    layers, features = [], math.prod(image_shape)
    for number in (1, 2):
        modules = OrderedDict[str, nn.Module](linear=nn.Linear(features, 12), relu=nn.ReLU())
        block = OrderedDict(flatten=nn.Flatten(), **modules) if number == 1 else modules
        layers.append(BaseLayer(f"dense{number}", nn.Sequential(block)))
        features = 12
    return BaseNetwork(layers, partial(nn.Linear, features), prior_layers=1, initialise=he_uniform_)


def cifar100_convnet(image_shape: Sequence[int]) -> BaseNetwork:
    """The network of routing networks for CIFAR-100 (paper, section "CIFAR-100").

    Four blocks as in `dkl_convnet`, common to all tasks under any kind of sharing, and three learned dense layers of
    128 units with ReLU. Prior sharing shares the first dense layer.

    Args:
        image_shape: `(C, H, W)`, at least 16x16 pixels; the paper's is `(3, 32, 32)`.
    """
    return _convnet(
        image_shape, "cifar100_convnet", channels=[32] * 4, units=[128] * 3, prior_layers=1, learned_convs=False
    )


def omniglot_convnet(image_shape: Sequence[int]) -> BaseNetwork:
    """The network of soft layer ordering for Omniglot (paper, section "Omniglot").

    Four blocks as in `dkl_convnet`, but with 53 filters; all four learned. Prior sharing shares two convolutions.
    The paper's "single dense layer" after them is the head; as in the authors' program, its input is the average of
    each channel over the image.

    Args:
        image_shape: `(C, H, W)`, at least 16x16 pixels; the paper's is `(1, 105, 105)`.
    """
    layers, _ = _conv_layers(image_shape, "omniglot_convnet", channels=[53] * 4)

    return BaseNetwork(layers, partial(pooled_head, 53), prior_layers=2, initialise=torch_default_)


def pooled_head(channels: int, classes: int) -> nn.Module:
    """Makes global average pooling followed by a dense layer."""
    return nn.Sequential(
        OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), linear=nn.Linear(channels, classes))
    )


def _convnet(
    image_shape: Sequence[int],
    name: str,
    channels: Sequence[int],
    units: Sequence[int],
    prior_layers: int,
    learned_convs: bool = True,
) -> BaseNetwork:
    """Convolutional blocks, dense layers with ReLU, and a linear head."""
    layers, features = _conv_layers(image_shape, name, channels, learned_convs)
    for number, out_features in enumerate(units, start=1):
        dense = OrderedDict[str, nn.Module](linear=nn.Linear(features, out_features), relu=nn.ReLU())
        if number == 1:
            dense = OrderedDict(flatten=nn.Flatten(), **dense)
        layers.append(BaseLayer(f"dense{number}", nn.Sequential(dense)))
        features = out_features
    return BaseNetwork(layers, partial(nn.Linear, features), prior_layers, torch_default_)


def _conv_layers(
    image_shape: Sequence[int], name: str, channels: Sequence[int], learned: bool = True
) -> tuple[list[BaseLayer], int]:
    """Makes blocks that each halve the image; returns them and the number of values that they output per image."""
    depth, height, width = image_shape
    smallest = 2 ** len(channels)
    if min(height, width) < smallest:
        raise ValueError(
            f"The network {name} halves an image {len(channels)} times and needs at least {smallest}x{smallest} "
            f"pixels, but the data's images have {height}x{width}."
        )
    layers = []
    for number, out_channels in enumerate(channels, start=1):
        layers.append(BaseLayer(f"conv{number}", _conv_block(depth, out_channels), learned))
        depth, height, width = out_channels, height // 2, width // 2
    return layers, depth * height * width


def _conv_block(in_channels: int, out_channels: int) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            norm=nn.BatchNorm2d(out_channels),
            relu=nn.ReLU(),
            pool=nn.MaxPool2d(2),
        )
    )
