"""Better regularised opponents of learned sharing: networks with dropout, as import paths for `--model.network`."""

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from torch import nn

from lws_lightning.networks import BaseNetwork, dkl_convnet

__all__ = ["dkl_convnet_dropout_10", "dkl_convnet_dropout_30", "dkl_convnet_dropout_50"]


def _with_dropout(image_shape: Sequence[int], probability: float) -> BaseNetwork:
    """`dkl_convnet` with dropout before and after its dense layer, which has most of the parameters."""
    network = dkl_convnet(image_shape)
    *convolutions, dense = network.layers
    modules = OrderedDict[str, nn.Module](dense.block.named_children())
    flatten = modules.pop("flatten")
    block = nn.Sequential(
        OrderedDict(flatten=flatten, dropout=nn.Dropout(probability), **modules, dropout2=nn.Dropout(probability))
    )
    return dataclasses.replace(network, layers=[*convolutions, dataclasses.replace(dense, block=block)])


dkl_convnet_dropout_10 = partial(_with_dropout, probability=0.1)
dkl_convnet_dropout_30 = partial(_with_dropout, probability=0.3)
dkl_convnet_dropout_50 = partial(_with_dropout, probability=0.5)
