"""Backward passes and optimizer steps through Lightning, with its precision, strategy and step counter."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from lws_lightning.batches import Distribute
from lws_lightning.methods.progress import FitProgress, save_on_exception
from lws_lightning.training import Engine, Ranks, copy_optimizer_state

__all__ = ["LightningEngine", "trainer_of"]


def trainer_of(module: LightningModule) -> Trainer | None:
    """Returns the Trainer that a module is attached to, or None."""
    return module._trainer


class LightningEngine(Engine):
    """Backward passes, optimizer steps and all-reduce through the Trainer that a module is attached to.

    Args:
        module: A module under manual optimization, with one optimizer and one schedule.
        progress: Knows the stop signals. They are reduced with a step's gradients, so that all ranks stop together.
    """

    def __init__(self, module: LightningModule, progress: FitProgress) -> None:
        self._module, self._progress = module, progress

    @property
    def steps(self) -> int:
        """The number of completed training steps."""
        return self._module.global_step

    @property
    def ranks(self) -> Ranks:
        """This process's rank; the Trainer's DataModule says how ranks divide the work."""
        trainer = trainer_of(self._module)
        if trainer is None:
            return Ranks()
        distribute: Distribute = getattr(getattr(trainer, "datamodule", None), "distribute", "examples")
        return Ranks(trainer.global_rank, trainer.world_size, distribute)

    def backward(self, loss: Tensor) -> None:
        """Calls `manual_backward`."""
        self._module.manual_backward(loss)

    def local_backward(self) -> AbstractContextManager[None]:
        """Keeps DistributedDataParallel from reducing gradients in the enclosed backward passes.

        It would do so once for each pass, and skip parameters that a step does not use.
        """
        trainer = trainer_of(self._module)
        block = getattr(None if trainer is None else trainer.strategy, "block_backward_sync", None)
        return nullcontext() if block is None else block()

    def unscale(self) -> bool:
        """Unscales the gradients under 16-mixed."""
        scaler = getattr(self._module.trainer.precision_plugin, "scaler", None)
        if scaler is None:
            return False
        scaler.unscale_(self._lightning_optimizer.optimizer)
        return True

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replaces tensors with their sums over ranks, and exchanges the ranks' stop signals in the same call."""
        flags = self._progress.stop_flags(tensors[0].device)
        self.ranks.all_reduce([*tensors, flags])
        self._progress.agree_to_stop(flags.tolist())

    def step(self) -> None:
        """Steps the optimizer, as counted by Lightning, and the schedule."""
        schedule: Any = self._module.lr_schedulers()
        self._lightning_optimizer.step()
        schedule.step()

    def copy_state(self, source: Tensor, target: Tensor) -> None:
        """Gives a parameter the optimizer's state of another, if that has any."""
        copy_optimizer_state(self._lightning_optimizer.optimizer, source, target)

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Protects an update of checkpointed state from signals; after an error in it, nothing is saved."""
        with self._progress.uninterrupted():
            try:
                yield
            except BaseException:
                self.save_on_exception(False)
                raise

    def save_on_exception(self, enabled: bool) -> None:
        """Sets whether checkpoint callbacks save when an exception ends the run; see `save_on_exception`."""
        trainer = trainer_of(self._module)
        if trainer is not None:
            save_on_exception(trainer, enabled)

    @property
    def _lightning_optimizer(self) -> Any:
        return self._module.optimizers()
