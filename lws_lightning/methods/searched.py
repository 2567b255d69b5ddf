"""What methods have in common that search a distribution over assignments."""

from collections.abc import Sequence

from torch import Tensor

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.networks import BaseNetwork
from lws_lightning.search import SearchDistribution

__all__ = ["SearchedMethod", "weights_of_layers"]


class SearchedMethod(MultiTaskMethod):
    """Base of the methods whose K is an option and whose assignment is the most likely one of a distribution.

    A subclass sets `_requested_weights` before it calls the constructor of this class, and `distribution` after it.
    """

    distribution: SearchDistribution
    _requested_weights: int | list[int]

    def choose_weights_per_layer(self, base: BaseNetwork) -> Sequence[int]:
        """Returns K_l as given."""
        return weights_of_layers(self._requested_weights, base)

    @property
    def assignment(self) -> Tensor:
        """The most likely assignment, `(L, T)`."""
        return self.distribution.mode()


def weights_of_layers(requested: int | Sequence[int], base: BaseNetwork) -> Sequence[int]:
    """Returns K_l for each learned layer from the option `weights_per_layer`, one number for all or one for each."""
    return [requested] * len(base.learned_layers) if isinstance(requested, int) else requested
