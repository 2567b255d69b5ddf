"""The progress of a fit: always a complete step, and whether its evaluation is still pending.

Lightning counts a batch when it begins and an evaluation while it runs, and saves the counters as they are. Here a
checkpoint never describes half a step or half an evaluation: whatever was interrupted is redone from its start.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, distributed

from lws_lightning.methods.stop_signals import StopSignals

__all__ = ["FitProgress", "save_on_exception"]


class FitProgress(Callback):
    """Tracks the progress of a fit for a method's hooks.

    Attributes:
        evaluated_step: The last step with a complete evaluation within a fit.
        finished: Whether the checkpoint that this fit resumes from lacks only the last evaluation.
    """

    def __init__(self) -> None:
        self.evaluated_step = 0
        self.finished = False
        self._evaluated_before = 0
        self._evaluation_open = False
        self._evaluation_pending = False
        self._saved = (0, 0)
        self._max_steps = -1
        self._stop: StopSignals | None = None

    # In the order of a fit

    def load(self, trainer: Trainer, checkpoint: dict[str, Any]) -> None:
        """Notes whether the evaluation of a checkpoint's step is still pending.

        Raises:
            ValueError: If the checkpoint is not of this package, or was saved by Lightning's SLURM requeue handler.
        """
        file = Path(str(trainer.ckpt_path))
        if "lws_evaluation" not in checkpoint:
            raise ValueError(f"{file} is not a checkpoint of a run of lws_lightning.")
        if file.name.startswith("hpc_ckpt"):
            raise ValueError(
                f"Lightning would resume from {file}, which a SLURM job saved in the middle of a step. Move that file "
                "away; to resume from another checkpoint, pass it with --ckpt_path."
            )
        step, evaluation = checkpoint["global_step"], checkpoint["lws_evaluation"]
        self.evaluated_step = evaluation["done"]
        at_end = 0 <= trainer.max_steps <= step
        self._evaluation_pending = self.evaluated_step != step and (evaluation["due"] or at_end)
        self.finished = self._evaluation_pending and at_end
        if self.finished:  # with no step left, Lightning would not start at all
            self._max_steps = trainer.max_steps
            trainer.fit_loop.epoch_loop.max_steps = step + 1

    def watch(self, trainer: Trainer) -> None:
        """Takes over signal handling from Lightning, once."""
        if self._stop is None and trainer.state.fn == "fit":
            self._stop = StopSignals(trainer)

    def begin(self, trainer: Trainer) -> None:
        """Makes up for an evaluation that the checkpoint's run did not complete."""
        self._evaluation_open = False
        self.watch(trainer)
        if self._evaluation_pending:
            self._evaluation_pending = False
            _evaluate(trainer)
        if self.finished:
            trainer.fit_loop.epoch_loop.max_steps = self._max_steps
            self.finished = False

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Protects the enclosed code from interruption by signals."""
        return nullcontext() if self._stop is None else self._stop.uninterrupted()

    def stop_flags(self, device: torch.device) -> Tensor:
        """Returns the signals that this process has received, to be summed over ranks; see `StopSignals.flags`."""
        assert self._stop is not None
        return self._stop.flags(device)

    def agree_to_stop(self, flags: Sequence[float]) -> None:
        """Takes the sums of all ranks' flags."""
        assert self._stop is not None
        self._stop.agree(flags)

    def after_step(self, trainer: Trainer) -> None:
        """Ends the fit if a signal asked for it; multiple ranks have agreed in the step's all-reduce."""
        if self._stop is not None:
            if trainer.world_size == 1:
                self._stop.agree_alone()
            self._stop_if_agreed(trainer)

    def after_evaluation_batch(self, trainer: Trainer) -> None:
        """Ends the fit within an evaluation; multiple ranks wait for its end."""
        if self._stop is not None and trainer.world_size == 1 and not trainer.sanity_checking:
            self._stop.agree_alone()
            self._stop_if_agreed(trainer)

    def evaluated(self, trainer: Trainer) -> None:
        """Notes that an evaluation's images are all counted, before callbacks record and save it."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._evaluated_before, self.evaluated_step = self.evaluated_step, trainer.global_step
            self._evaluation_open = True

    def after_evaluation(self, trainer: Trainer) -> None:
        """Notes that all callbacks have seen an evaluation; ends the fit if a signal asked for it."""
        self._evaluation_open = False
        if self._stop is None or trainer.sanity_checking:
            return
        if trainer.world_size > 1:
            flags = self._stop.flags(trainer.strategy.root_device)
            distributed.all_reduce(flags)
            self._stop.agree(flags.tolist())
        else:
            self._stop.agree_alone()
        self._stop_if_agreed(trainer)

    def finish(self, trainer: Trainer) -> None:
        """Evaluates and saves the last step if the intervals have skipped it."""
        if self.evaluated_step != trainer.global_step and trainer.enable_validation:
            _evaluate(trainer)
        if self._saved != (trainer.global_step, self.evaluated_step):
            _save(trainer)
        self._restore_signal_handlers()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restores the signal handlers; the program may go on after a failed fit."""
        self._restore_signal_handlers()

    def _restore_signal_handlers(self) -> None:
        if self._stop is not None:
            self._stop.restore_handlers()
            self._stop = None

    def save(self, trainer: Trainer, checkpoint: dict[str, Any]) -> None:
        """Restricts a checkpoint to a complete step, and stores the progress in it."""
        drop_incomplete_work(checkpoint)
        due = trainer.state.fn == "fit" and evaluation_is_due(trainer)
        # After an error while callbacks process an evaluation, some of them have not seen it.
        done = self._evaluated_before if trainer.interrupted and self._evaluation_open else self.evaluated_step
        checkpoint["lws_evaluation"] = {"done": done, "due": due}
        self._saved = trainer.global_step, done

    def _stop_if_agreed(self, trainer: Trainer) -> None:
        stop = self._stop
        if stop is not None and stop.agreed is not None:
            self._stop = None
            save_on_exception(trainer, True)
            stop.raise_agreed()


def save_on_exception(trainer: Trainer, enabled: bool) -> None:
    """Sets whether checkpoint callbacks save when an exception ends the run.

    Saving involves all ranks, so with multiple ranks it is enabled only for what all of them raise after the same step.
    """
    for callback in trainer.checkpoint_callbacks:
        if hasattr(callback, "save_on_exception"):
            callback.save_on_exception = enabled


def drop_incomplete_work(checkpoint: dict[str, Any]) -> None:
    """Rewinds Lightning's counters in a checkpoint to its last complete step, outside any evaluation.

    Args:
        checkpoint: Changed in place.
    """
    loop = checkpoint.get("loops", {}).get("fit_loop", {})
    evaluation = loop.get("epoch_loop.val_loop.batch_progress")
    if evaluation is not None:
        for counters in (evaluation["total"], evaluation["current"]):
            counters["ready"] = counters["started"] = counters["processed"] = counters["completed"]
    progress = loop.get("epoch_loop.batch_progress")
    if progress is None or progress["total"]["ready"] == progress["total"]["processed"]:
        return
    # The step of this batch was undone: restore what Lightning saves at the end of the previous batch.
    for counters in (progress["total"], progress["current"]):
        counters["ready"] = counters["started"] = counters["processed"]
        counters["completed"] = counters["processed"] - 1
    progress["is_last_batch"] = False
    loop["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1


def evaluation_is_due(trainer: Trainer) -> bool:
    """Returns whether a fit's Trainer options ask for an evaluation after the last complete batch."""
    if not trainer.enable_validation or trainer.global_step == 0:
        return False
    if 0 <= trainer.max_steps <= trainer.global_step:
        return True
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress
    batches = progress.total.processed
    if trainer.check_val_every_n_epoch is not None:
        if (trainer.current_epoch + 1) % trainer.check_val_every_n_epoch:
            return False
        batches = progress.current.processed
    interval = trainer.val_check_batch  # None for time-based intervals, infinite for an endless loader
    return bool(batches and interval and batches % interval == 0)


def _evaluate(trainer: Trainer) -> None:
    """Evaluates within a fit, as Lightning does between two batches."""
    trainer.validating = True
    loop = trainer.fit_loop.epoch_loop.val_loop
    loop.restarting = False  # start from the first batch, whatever the checkpoint says
    loop.run()
    trainer.training = True


def _save(trainer: Trainer) -> None:
    """Writes the files that the first checkpoint callback would have written at this step.

    A callback that keeps the best by a metric gets only its `last`.
    """
    callback = next((c for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)), None)
    if callback is None or getattr(trainer, "fast_dev_run", False):
        return
    paths = []
    if callback.monitor is None and callback.save_top_k != 0:
        now = {"step": torch.tensor(trainer.global_step), "epoch": torch.tensor(trainer.current_epoch)}
        callback.best_model_path = callback.format_checkpoint_name({**trainer.callback_metrics, **now})
        paths.append(callback.best_model_path)
    if callback.save_last or not paths:
        callback.last_model_path = callback.last_model_path or str(Path(str(callback.dirpath)) / "last.ckpt")
        paths.append(callback.last_model_path)
    for path in map(Path, paths):
        if path.is_symlink() and trainer.is_global_zero:  # `save_last: link`: do not overwrite its target
            path.unlink()
        trainer.save_checkpoint(path, callback.save_weights_only)
