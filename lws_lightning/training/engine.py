"""How backward passes and optimizer steps are made: here by PyTorch alone; within a Trainer see `LightningEngine`."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from lws_lightning.training.ranks import Ranks

__all__ = ["Engine"]


class Engine:
    """One process, full precision, an optimizer of PyTorch.

    Args:
        optimizer: Makes the steps.
        schedule: Stepped after each of them.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler | None = None
    ) -> None:
        self._optimizer, self._schedule = optimizer, schedule
        self._steps = 0

    @property
    def steps(self) -> int:
        """How many steps have been made."""
        return self._steps

    @property
    def ranks(self) -> Ranks:
        """This process among those of the run."""
        return Ranks()

    def backward(self, loss: Tensor) -> None:
        """Adds the gradient of a scalar to the gradients of the weights."""
        loss.backward()  # type: ignore[no-untyped-call]

    def local_backward(self) -> AbstractContextManager[None]:
        """Keeps backward passes from adding up gradients over processes, which `add_up` does once a step."""
        return nullcontext()

    def unscale(self) -> bool:
        """Undoes the factor of a gradient scaler; returns whether there is one, which skips infinite gradients."""
        return False

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replaces tensors by their sums over processes, where there are several."""

    def step(self) -> None:
        """Makes a step of the optimizer and of its schedule."""
        self._optimizer.step()
        if self._schedule is not None:
            self._schedule.step()
        self._steps += 1

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Encloses an update of what checkpoints hold, which is made as a whole or not saved."""
        return nullcontext()
