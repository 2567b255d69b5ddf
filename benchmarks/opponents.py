"""Better regularised opponents of learned sharing: networks with dropout, as import paths for `--model.network`."""

from collections.abc import Sequence
from functools import partial

from torch import nn

from lws_lightning.networks import BaseNetwork, dkl_convnet

__all__ = ["dkl_convnet_dropout_10", "dkl_convnet_dropout_30", "dkl_convnet_dropout_50"]


def _with_dropout(image_shape: Sequence[int], probability: float) -> BaseNetwork:
    """`dkl_convnet` with dropout before and after the dense layer, where its parameters are most."""
    network = dkl_convnet(image_shape)
    dense = network.layers[-1].block
    assert isinstance(dense, nn.Sequential)
    dense.insert(1, nn.Dropout(probability))
    dense.append(nn.Dropout(probability))
    return network


dkl_convnet_dropout_10 = partial(_with_dropout, probability=0.1)
dkl_convnet_dropout_30 = partial(_with_dropout, probability=0.3)
dkl_convnet_dropout_50 = partial(_with_dropout, probability=0.5)
