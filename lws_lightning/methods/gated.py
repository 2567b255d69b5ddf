"""What methods have in common whose tasks mix activations instead of choosing weights."""

from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback

from lws_lightning.methods.base import MultiTaskMethod

__all__ = ["GatedMethod"]


class GatedMethod(MultiTaskMethod):
    """Base of the methods that mix by trainable gates: no assignment describes their sharing.

    One Adam step trains weights and gates together on the mean loss over the tasks.

    Attributes:
        gate_lr_factor: The gates' learning rate is this times `lr`. Weight decay leaves gates alone, for a gate of 0
            means something.
    """

    gate_lr_factor: float = 1.0

    @property
    def assignment(self) -> None:
        """None."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Returns a group for the weights and one for the gates."""
        gates = self.network.gate_parameters()
        known = {id(gate) for gate in gates}
        weights = [parameter for parameter in self._weights() if id(parameter) not in known]
        trained = [gate for gate in gates if gate.requires_grad]
        return [
            {"params": weights, "lr": self.lr, "weight_decay": self.weight_decay},
            {"params": trained, "lr": self.lr * self.gate_lr_factor, "weight_decay": 0.0},
        ]

    def configure_callbacks(self) -> Sequence[Callback]:
        """Refuses a bound on images that cannot hold, before data are read."""
        batch_size = getattr(getattr(self.trainer, "datamodule", None), "batch_size", None)
        if self.trainer.training and isinstance(batch_size, int):
            self.network.passes(None, batch_size, self.max_images_per_pass)
        return super().configure_callbacks()
