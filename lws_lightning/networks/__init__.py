"""Base architectures: what a task's network looks like before it is decided which weights tasks share."""

from lws_lightning.networks.base import BaseLayer, BaseNetwork
from lws_lightning.networks.convnets import digits_convnet, dkl_convnet
from lws_lightning.networks.initialization import INITIALIZERS, Initialization, Initializer, he_uniform_, torch_default_
from lws_lightning.networks.multi_task import make_multi_task_network
from lws_lightning.networks.registry import NETWORKS, NetworkBuilder, build_network

__all__ = [
    "INITIALIZERS",
    "NETWORKS",
    "BaseLayer",
    "BaseNetwork",
    "Initialization",
    "Initializer",
    "NetworkBuilder",
    "build_network",
    "digits_convnet",
    "dkl_convnet",
    "he_uniform_",
    "make_multi_task_network",
    "torch_default_",
]
