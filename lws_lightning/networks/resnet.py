"""The residual networks of the paper's experiments."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from torch import nn
from torchvision.models.resnet import BasicBlock

from lws_lightning.networks.base import BaseLayer, BaseNetwork
from lws_lightning.networks.convnets import pooled_head
from lws_lightning.networks.initialization import torch_default_

__all__ = ["resnet18_cifar100", "resnet18_omniglot"]

_CHANNELS = (64, 128, 256, 512)
"""Channels of the four stages, as in He et al. (CVPR 2016)."""


def resnet18_cifar100(image_shape: Sequence[int], channels: Sequence[int] = _CHANNELS) -> BaseNetwork:
    """ResNet18 for CIFAR-100 (paper, section "CIFAR-100").

    Without max-pooling, and with downsampling only in the last three of the four stages, which see 32, 16, 8 and 4
    pixels a side. The stem, a 3x3 convolution with batch normalisation and ReLU, is common to all tasks. The eight
    residual blocks, including shortcuts, are the learned layers. Prior sharing shares the four blocks of the first two
    stages. The head is global average pooling and a dense layer.

    Args:
        image_shape: `(C, H, W)`, at least 5x5 pixels; the paper's is `(3, 32, 32)`.
        channels: Channels of the four stages; the stem has those of the first.
    """
    return _resnet18(image_shape, "resnet18_cifar100", channels, stem_stride=1, stage_strides=(1, 2, 2, 2))


def resnet18_omniglot(image_shape: Sequence[int], channels: Sequence[int] = _CHANNELS) -> BaseNetwork:
    """ResNet18 for Omniglot (paper, section "Omniglot").

    Like `resnet18_cifar100`, but the stem and all four stages downsample, as in the authors' program: from 105 pixels a
    side to 53, 27, 14, 7 and 4. The paper only says that there is no max-pooling.

    Args:
        image_shape: `(C, H, W)`, at least 17x17 pixels; the paper's is `(1, 105, 105)`.
        channels: Channels of the four stages; the stem has those of the first.
    """
    return _resnet18(image_shape, "resnet18_omniglot", channels, stem_stride=2, stage_strides=(2, 2, 2, 2))


def _resnet18(
    image_shape: Sequence[int], name: str, channels: Sequence[int], stem_stride: int, stage_strides: Sequence[int]
) -> BaseNetwork:
    depth, height, width = image_shape
    halvings = [stem_stride, *stage_strides].count(2)
    smallest = 2 ** (halvings - 1) + 1  # halves are rounded up; the last halving needs two pixels
    if min(height, width) < smallest:
        raise ValueError(
            f"The network {name} halves an image {halvings} times and needs at least {smallest}x{smallest} pixels, "
            f"but the data's images have {height}x{width}."
        )
    width_in = channels[0]
    stem = OrderedDict(
        conv=nn.Conv2d(depth, width_in, kernel_size=3, stride=stem_stride, padding=1, bias=False),
        norm=nn.BatchNorm2d(width_in),
        relu=nn.ReLU(inplace=True),
    )
    layers = [BaseLayer("stem", nn.Sequential(stem), learned=False)]
    for stage, (width_out, stage_stride) in enumerate(zip(channels, stage_strides, strict=True), start=1):
        for number, stride in enumerate((stage_stride, 1), start=1):
            layers.append(BaseLayer(f"stage{stage}_block{number}", _residual_block(width_in, width_out, stride)))
            width_in = width_out

    return BaseNetwork(layers, partial(pooled_head, channels[-1]), prior_layers=4, initialise=torch_default_)


def _residual_block(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """Two 3x3 convolutions, with a 1x1 convolution as shortcut if the shape changes; all with normalisation."""
    shortcut = None
    if stride != 1 or in_channels != out_channels:
        shortcut = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False),
            nn.BatchNorm2d(out_channels),
        )
    block: nn.Module = BasicBlock(in_channels, out_channels, stride, shortcut)
    return block
