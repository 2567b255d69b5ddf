"""Backward passes and optimizer steps with PyTorch alone; see `LightningEngine` for those within a Trainer."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from lws_lightning.training.optimization import copy_optimizer_state
from lws_lightning.training.ranks import Ranks

__all__ = ["Engine"]


class Engine:
    """A single process in full precision with a PyTorch optimizer.

    Args:
        optimizer: Updates the weights.
        schedule: Advanced after each optimizer step.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler | None = None
    ) -> None:
        self._optimizer, self._schedule = optimizer, schedule
        self._steps = 0

    @property
    def steps(self) -> int:
        """The number of completed steps."""
        return self._steps

    @property
    def ranks(self) -> Ranks:
        """This process's rank."""
        return Ranks()

    def backward(self, loss: Tensor) -> None:
        """Accumulates the gradients of a scalar loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def local_backward(self) -> AbstractContextManager[None]:
        """Keeps backward passes from reducing gradients over ranks, which `all_reduce` does once per step."""
        return nullcontext()

    def unscale(self) -> bool:
        """Unscales gradients; returns whether there is a gradient scaler, which skips steps with infinite gradients."""
        return False

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replaces tensors with their sums over ranks; does nothing with a single process."""

    def step(self) -> None:
        """Steps the optimizer and its schedule."""
        self._optimizer.step()
        if self._schedule is not None:
            self._schedule.step()
        self._steps += 1

    def copy_state(self, source: Tensor, target: Tensor) -> None:
        """Gives a parameter the optimizer's state of another, if that has any."""
        copy_optimizer_state(self._optimizer, source, target)

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Protects an update of checkpointed state: it completes, or nothing is saved."""
        return nullcontext()
