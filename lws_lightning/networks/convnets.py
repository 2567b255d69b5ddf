"""The convolutional networks of the paper's experiments."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from lws_lightning.networks.base import BaseLayer, BaseNetwork
from lws_lightning.networks.initialization import he_uniform_

__all__ = ["digits_convnet", "dkl_convnet"]


def dkl_convnet(image_shape: Sequence[int]) -> BaseNetwork:
    """The custom network for DKL-MNIST (paper, section "DKL-MNIST").

    Three blocks of convolution 3x3 with 32 filters, batch normalisation, ReLU and 2x2 max-pooling, and a dense
    layer of 128 units with ReLU; all four learned. Prior sharing shares two convolutions.

    Args:
        image_shape: `(C, H, W)`, at least 8x8 pixels; the paper's is `(1, 28, 28)`.
    """
    return _convnet(image_shape, "dkl_convnet", channels=[32, 32, 32], units=128, prior_layers=2)


def digits_convnet(image_shape: Sequence[int]) -> BaseNetwork:
    """A small relative of `dkl_convnet` for the quickstart's 8x8 images.

    Two blocks of convolution with 16 and 32 filters and a dense layer of 64 units, all three learned. Prior sharing
    shares one convolution.

    Args:
        image_shape: `(C, H, W)`, at least 4x4 pixels.
    """
    return _convnet(image_shape, "digits_convnet", channels=[16, 32], units=64, prior_layers=1)


def _convnet(
    image_shape: Sequence[int], name: str, channels: Sequence[int], units: int, prior_layers: int
) -> BaseNetwork:
    depth, height, width = image_shape
    smallest = 2 ** len(channels)
    if min(height, width) < smallest:
        raise ValueError(
            f"The network {name} halves an image {len(channels)} times and needs at least {smallest}x{smallest} "
            f"pixels, but the data's images have {height}x{width}."
        )
    layers = []
    for number, out_channels in enumerate(channels, start=1):
        layers.append(BaseLayer(f"conv{number}", _conv_block(depth, out_channels)))
        depth, height, width = out_channels, height // 2, width // 2
    dense = OrderedDict(flatten=nn.Flatten(), linear=nn.Linear(depth * height * width, units), relu=nn.ReLU())
    layers.append(BaseLayer("dense1", nn.Sequential(dense)))
    return BaseNetwork(layers, lambda classes: nn.Linear(units, classes), prior_layers, he_uniform_)


def _conv_block(in_channels: int, out_channels: int) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            norm=nn.BatchNorm2d(out_channels),
            relu=nn.ReLU(),
            pool=nn.MaxPool2d(2),
        )
    )
