"""Base architectures: the network of a single task, without any sharing."""

from lws_lightning.networks.base import BaseLayer, BaseNetwork
from lws_lightning.networks.chain import CutError
from lws_lightning.networks.convnets import (
    cifar100_convnet,
    digits_convnet,
    digits_dense,
    dkl_convnet,
    omniglot_convnet,
)
from lws_lightning.networks.initialization import INITIALIZERS, Initialization, Initializer, he_uniform_, torch_default_
from lws_lightning.networks.inputs import NetworkInput, published_input, read_network_input
from lws_lightning.networks.models import base_network_from_model, choose_frozen_layers, choose_learned_layers
from lws_lightning.networks.multi_task import make_layers_and_heads, make_multi_task_network
from lws_lightning.networks.registry import LIBRARY_PREFIXES, NETWORKS, NetworkBuilder, build_network
from lws_lightning.networks.resnet import resnet18_cifar100, resnet18_omniglot
from lws_lightning.networks.shapes import output_shapes

__all__ = [
    "INITIALIZERS",
    "LIBRARY_PREFIXES",
    "NETWORKS",
    "BaseLayer",
    "BaseNetwork",
    "CutError",
    "Initialization",
    "Initializer",
    "NetworkBuilder",
    "NetworkInput",
    "base_network_from_model",
    "build_network",
    "choose_frozen_layers",
    "choose_learned_layers",
    "cifar100_convnet",
    "digits_convnet",
    "digits_dense",
    "dkl_convnet",
    "he_uniform_",
    "make_layers_and_heads",
    "make_multi_task_network",
    "omniglot_convnet",
    "output_shapes",
    "published_input",
    "read_network_input",
    "resnet18_cifar100",
    "resnet18_omniglot",
    "torch_default_",
]
