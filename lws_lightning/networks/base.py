"""A base architecture: a chain of blocks, and a head for each task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from lws_lightning.networks.chain import common_weights
from lws_lightning.networks.initialization import Initializer

__all__ = ["BaseLayer", "BaseNetwork"]


@dataclass(frozen=True)
class BaseLayer:
    """One layer of a base network.

    Attributes:
        name: Unique in its network; shown in figures and logs.
        block: Any module that maps images to activations image by image (except for batch normalisation).
        learned: Whether an assignment decides which tasks share its weights; otherwise it is common to all tasks.
        frozen: Whether its weights are not trained. Its batch normalisations then use the running statistics.
    """

    name: str
    block: nn.Module
    learned: bool = True
    frozen: bool = False


@dataclass(frozen=True)
class BaseNetwork:
    """A base architecture (paper, section "Learned Weight Sharing").

    Attributes:
        layers: The chain, from the image to the features.
        make_head: Makes a new output layer for a number of classes; called once per task, never shared.
        prior_layers: How many of the first learned layers the authors' baseline "prior sharing" shares between all
            tasks; the others are separate for each task.
        initialise: Initialises a newly made or copied module.
        redraw: Makes all blocks again, with the initial weights that the network's own constructors draw from a
            generator's seed, from which the copies then start. None: copies are initialised by `initialise`.
        pretrained: Whether all copies of a layer start from its block's weights; `initialise` then only initialises
            heads.
    """

    layers: Sequence[BaseLayer]
    make_head: Callable[[int], nn.Module]
    prior_layers: int
    initialise: Initializer
    redraw: Callable[[torch.Generator], Sequence[nn.Module]] | None = None
    pretrained: bool = False

    def __post_init__(self) -> None:
        names = [layer.name for layer in self.layers]
        if len(set(names)) != len(names):
            raise ValueError(f"The names of a network's layers must be unique, but are {names}.")
        if not self.learned_layers:
            raise ValueError("A network needs at least one learned layer; otherwise there is nothing to share.")
        tied = common_weights(names, [layer.block for layer in self.layers])
        if tied is not None:
            raise ValueError(
                f"The layers {tied[0]} and {tied[1]} use the same weights, but each copy of a layer has its own "
                "weights. Give each layer its own module, or merge them. Within one layer, weights may be tied."
            )

    @property
    def learned_layers(self) -> list[BaseLayer]:
        """The L layers that an assignment refers to, in order."""
        return [layer for layer in self.layers if layer.learned]
