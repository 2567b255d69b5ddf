"""Small runs that the tests of the methods share."""

import torch
from torch import nn

from lws_lightning import Digits, FixedSharing, LearnedWeightSharing
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_


def tiny_network(image_shape):
    """One convolutional and one dense layer; learns on 8x8 images in milliseconds."""
    channels, height, width = image_shape
    conv = nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    dense = nn.Sequential(nn.Flatten(), nn.Linear(4 * (height // 2) * (width // 2), 8), nn.ReLU())
    layers = [BaseLayer("conv", conv), BaseLayer("dense", dense)]
    return BaseNetwork(layers, lambda classes: nn.Linear(8, classes), 1, he_uniform_)


def digits(**options):
    return Digits(**{"train_images_per_task": 40, "batch_size": 4, **options})


def learned(data, **options):
    defaults = {"network": tiny_network, "nes_samples": 4, "sgd_samples": 3, "nes_lr": 0.1}
    return LearnedWeightSharing(**{**defaults, **data.task_info, **options})


def fixed(data, sharing="full", **options):
    return FixedSharing(sharing, **{"network": tiny_network, **data.task_info, **options})


def state_of(module, trainer=None):
    """Everything that a checkpoint must bring back, as a flat dict of tensors."""
    state = {key: value.clone() for key, value in module.state_dict().items()}
    if trainer is not None:
        for number, moments in trainer.optimizers[0].state_dict()["state"].items():
            state |= {f"adam.{number}.{key}": torch.as_tensor(value).clone() for key, value in moments.items()}
    return state


def assert_same(one, other):
    assert one.keys() == other.keys()
    different = [key for key in one if not torch.equal(one[key], other[key])]
    assert not different
