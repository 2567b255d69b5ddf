"""A progress bar for runs that are counted in training steps."""

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar

__all__ = ["StepProgressBar"]


class StepProgressBar(TQDMProgressBar):
    """Shows progress towards `max_steps`; Lightning's bar starts again every epoch.

    An epoch of a small data set takes seconds and says nothing about the end of the run. Without `max_steps` this is
    Lightning's own bar.

    Args:
        refresh_rate: Steps between two updates.
    """

    def __init__(self, refresh_rate: int = 10) -> None:
        super().__init__(refresh_rate=refresh_rate)

    def on_train_epoch_start(self, trainer: Trainer, *args: Any) -> None:
        """Sets up the bar at the first epoch and keeps it at later ones."""
        if trainer.max_steps < 0:
            super().on_train_epoch_start(trainer, *args)
            return
        bar = self.train_progress_bar
        if bar.total != trainer.max_steps:
            bar.total = trainer.max_steps
            bar.n = bar.initial = trainer.global_step
            bar.set_description("Training")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Moves the bar to the number of completed steps."""
        if trainer.max_steps < 0:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
            return
        step = trainer.global_step
        if self.is_enabled and (step % self.refresh_rate == 0 or step == trainer.max_steps):
            self.train_progress_bar.n = step
            self.train_progress_bar.set_postfix(self.get_metrics(trainer, pl_module))

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Returns the metrics to show, without the version of the log folder.

        Their names are short, so that the line holds all of them in a terminal of 80 columns.
        """
        metrics = {_short(name): value for name, value in super().get_metrics(trainer, pl_module).items()}
        metrics.pop("v_num", None)
        return metrics


def _short(name: str) -> str:
    """Returns "loss" for "train/loss", "entropy" for "entropy/mean", "test" for "test_curve/error"."""
    first, _, rest = name.partition("/")
    return {"train": rest, "test_curve": "test"}.get(first, first) if rest else name
