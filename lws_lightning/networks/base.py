"""What a base architecture is: a chain of blocks, and a head to put on top for each task."""

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
        name: Unique in its network; shown in pictures and logs.
        block: Any module that maps images to activations image by image (batch normalisation excepted).
        learned: Whether its weights may be shared between tasks by an assignment. A layer that is not learned is
            common to all tasks.
    """

    name: str
    block: nn.Module
    learned: bool = True


@dataclass(frozen=True)
class BaseNetwork:
    """A base architecture (paper, section "Learned Weight Sharing").

    Attributes:
        layers: The chain, from the image to the features.
        make_head: Makes a task's own output layer for a number of classes, a new one at each call; never shared.
        prior_layers: How many of the learned layers, from the first on, the authors' baseline "prior sharing" shares
            between all tasks; the others are each task's own.
        initialise: Gives a freshly made or copied module its initial weights.
        redraw: Makes all blocks again with the weights that the network's own constructors draw, from the seed of a
            generator; a block's copies then start from those. None: they start from what `initialise` does.
        pretrained: Whether all copies of a layer start from the weights of its block; `initialise` is for heads only.
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
            raise ValueError(f"The names of a network's layers must differ from each other, but are {names}.")
        if not self.learned_layers:
            raise ValueError("A network needs at least one learned layer; else there is nothing to share.")
        twice = common_weights(names, [layer.block for layer in self.layers])
        if twice is not None:
            raise ValueError(
                f"The layers {twice[0]} and {twice[1]} use the same weights, but a copy of a layer has weights of its "
                "own. Give each its own module, or make one layer of them. Within a layer a weight may be used twice."
            )

    @property
    def learned_layers(self) -> list[BaseLayer]:
        """The layers that an assignment speaks of, in order; L of them."""
        return [layer for layer in self.layers if layer.learned]
