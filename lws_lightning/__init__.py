"""Learns which weights the networks of several tasks should share, on PyTorch Lightning.

The names below are imported on first use, so that `lws_lightning.search` and `lws_lightning.sharing`, which hold the
algorithm, can be used without Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lws_lightning.data import (
        DKLMNIST,
        CIFAR100CoarseLabel,
        DigitFamilies,
        Digits,
        Examples,
        ImageFolders,
        MultiTaskDataModule,
        Omniglot,
        TaskData,
    )
    from lws_lightning.export import task_network
    from lws_lightning.methods import (
        CrossStitch,
        FixedSharing,
        FullyAdaptiveSharing,
        IndependentEarlyStopping,
        LearnedWeightSharing,
        LinearProbe,
        MultiTaskMethod,
        NonFiniteError,
        RoutingNetworks,
        Sluice,
        SoftLayerOrdering,
        UncertaintyWeighting,
        UndirectedSharing,
    )
    from lws_lightning.search import SearchDistribution
    from lws_lightning.sharing import MultiTaskNetwork

__all__ = [
    "DKLMNIST",
    "CIFAR100CoarseLabel",
    "CrossStitch",
    "DigitFamilies",
    "Digits",
    "Examples",
    "FixedSharing",
    "FullyAdaptiveSharing",
    "ImageFolders",
    "IndependentEarlyStopping",
    "LearnedWeightSharing",
    "LinearProbe",
    "MultiTaskDataModule",
    "MultiTaskMethod",
    "MultiTaskNetwork",
    "NonFiniteError",
    "Omniglot",
    "RoutingNetworks",
    "SearchDistribution",
    "Sluice",
    "SoftLayerOrdering",
    "TaskData",
    "UncertaintyWeighting",
    "UndirectedSharing",
    "task_network",
]

__version__ = "0.1.0"

_HOMES = {
    "data": (
        "DKLMNIST",
        "CIFAR100CoarseLabel",
        "DigitFamilies",
        "Digits",
        "Examples",
        "ImageFolders",
        "MultiTaskDataModule",
        "Omniglot",
        "TaskData",
    ),
    "export": ("task_network",),
    "methods": (
        "CrossStitch",
        "FixedSharing",
        "FullyAdaptiveSharing",
        "IndependentEarlyStopping",
        "LearnedWeightSharing",
        "LinearProbe",
        "MultiTaskMethod",
        "NonFiniteError",
        "RoutingNetworks",
        "Sluice",
        "SoftLayerOrdering",
        "UncertaintyWeighting",
        "UndirectedSharing",
    ),
    "search": ("SearchDistribution",),
    "sharing": ("MultiTaskNetwork",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
