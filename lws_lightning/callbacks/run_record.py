"""Records a run in its folder: `curve.csv` and `result.json`."""

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from lws_lightning.callbacks.checks import require_method
from lws_lightning.callbacks.description import describe_run, other_run
from lws_lightning.callbacks.stopping import stopped_by
from lws_lightning.methods import MultiTaskMethod, inference_costs, inference_seconds
from lws_lightning.records import (
    RECORD_FILE,
    BestEffortWriter,
    CurveRow,
    Evaluation,
    InferenceCost,
    Latency,
    Run,
    Status,
    curve_to_csv,
    find_run,
    insert_row,
    mark_failed_in_place,
)
from lws_lightning.run_folders import claimed_folder, overwrite_refusal, release_folder, run_folder

__all__ = ["RunRecord"]

_REFRESH_SECONDS = 10.0
_LATENCY_BATCH = 16


class RunRecord(Callback):
    """Writes `curve.csv` and `result.json` to the run folder (see `run_folder`).

    The record of a finished run is never overwritten. If the user adds this callback and the run has no other output
    location, it creates a folder in `lightning_logs/`; the one that methods add then writes nothing.

    Both files are replaced atomically at the start, at each evaluation, at the end and when an exception or interrupt
    ends the run, so that a killed run leaves its last evaluation and the status `running`. In between they are
    refreshed at most every ten seconds. Checkpoints contain the curve and the times, so that a resumed run's
    `curve.csv` is complete in any folder. A folder that cannot be written to causes one warning and does not stop the
    training. `fast_dev_run` writes nothing.

    `result.json` has the fields of `Run` (`lws_lightning.records`) and `format` 1. Non-finite numbers are stored as
    strings that `float` reads.

    Args:
        run_dir: For testing only: the folder of the run that trained the tested weights, whose `result.json` gets the
            result. None means the run folder of the Trainer.
    """

    def __init__(self, run_dir: str | None = None) -> None:
        self.run_dir = run_dir
        self._folder: Path | None = None
        self._writer = BestEffortWriter("The record of the run")
        self._described: Run | None = None
        self._phase: str | None = None
        self._since = self._written = 0.0
        self._reset()

    def _reset(self) -> None:
        self._rows: list[CurveRow] = []
        self._evaluation: Evaluation | None = None
        self._seconds = {"training": 0.0, "evaluation": 0.0}
        self._step = 0
        self._started: str | None = None
        self._costs: dict[str, InferenceCost] = {}
        self._latency: Latency | None = None

    # Checkpoints are read with `weights_only=True`, so the state consists of JSON values.

    def state_dict(self) -> dict[str, Any]:
        """Returns the curve and the times so far."""
        self._switch(self._phase)
        return {
            "rows": [row.to_json() for row in self._rows],
            "evaluation": None if self._evaluation is None else self._evaluation.to_json(),
            "seconds": dict(self._seconds),
            "step": self._step,
            "started": self._started,
            "folder": None if self._folder is None else os.fspath(self._folder.resolve()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the curve and the times."""
        evaluation = state_dict["evaluation"]
        self._rows = [CurveRow.from_json(row) for row in state_dict["rows"]]
        self._evaluation = None if evaluation is None else Evaluation.from_json(evaluation)
        self._seconds = dict(state_dict["seconds"])
        self._step = state_dict["step"]
        self._started = state_dict["started"]

    # Training.

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Discards the state of an earlier Trainer's run; a checkpoint's state is loaded later."""
        if stage == "fit":
            if trainer.global_step == 0:
                self._reset()
            self._folder = run_folder(trainer, create_default=True)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the record with the status `running`; raises ValueError if it would overwrite a finished run."""
        require_method(pl_module, self)
        if self._folder is not None and (reason := overwrite_refusal(self._folder, self._step, self._started)):
            raise ValueError(reason)
        self._started = self._started or _now()
        self._write(trainer, pl_module, "running")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock."""
        self._since = time.perf_counter()
        self._switch("training")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Stops timing an evaluation."""
        # Not in `on_validation_end`, where other callbacks still draw and save.
        if self._phase == "evaluation":
            self._switch("training")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts the step, and refreshes the files from time to time."""
        self._step = trainer.global_step
        if time.monotonic() - self._written > _REFRESH_SECONDS:
            self._write(trainer, pl_module, "running")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts timing an evaluation."""
        if self._phase is not None:
            self._switch("evaluation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Adds the evaluation to the curve."""
        if trainer.state.fn != "fit" or trainer.sanity_checking or self._folder is None:
            return
        module = require_method(pl_module, self)
        entropy = None if module.distribution is None else float(module.distribution.entropy().double().mean())
        for evaluation in module.evaluations.values():
            if evaluation.prefix != "test" and evaluation.step == trainer.global_step:
                self._evaluation = evaluation
                insert_row(self._rows, CurveRow.of(evaluation, self._seconds["training"], entropy))
        self._write(trainer, pl_module, "running")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock."""
        self._switch(None)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the final record."""
        if self._folder is not None and trainer.is_global_zero:
            module = require_method(pl_module, self)
            self._latency = Latency(_LATENCY_BATCH, inference_seconds(module, _LATENCY_BATCH))
        self._write(trainer, pl_module, "finished")
        release_folder(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Writes the last step and the reason for the end."""
        if trainer.state.fn != "fit":
            return
        self._folder = claimed_folder(trainer)  # the run may have failed before `setup`
        release_folder(trainer)
        if self._folder is None or overwrite_refusal(self._folder, self._step, self._started):
            return
        self._switch(None)
        # SIGTERM arrives as Lightning's SIGTERMException, which is a SystemExit.
        interrupted = isinstance(exception, KeyboardInterrupt | SystemExit)
        status: Status = "interrupted" if interrupted else "failed"
        message = f"{type(exception).__name__}: {exception}".removesuffix(": ")
        try:
            self._write(trainer, pl_module, status, message)
        except Exception:  # an error of a broken device must not hide the original one
            if self._described is not None and trainer.is_global_zero:
                ended = replace(self._described, status=status, message=message, ended=_now())
                self._writer.write(self._folder / RECORD_FILE, ended.text())
        if self._writer.failed and status == "failed" and trainer.is_global_zero:
            mark_failed_in_place(self._folder / RECORD_FILE)

    # Testing.

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Adds the test result to the record of its run."""
        folder = run_folder(trainer, create_default=True) if self.run_dir is None else Path(self.run_dir)
        module = require_method(pl_module, self)
        evaluation = module.evaluations.get("test")
        if folder is None or evaluation is None or not trainer.is_global_zero:
            return
        # A Trainer that only tests does not restore `global_step`; this callback's state in the checkpoint has it.
        test = replace(evaluation, step=self._step or evaluation.step)
        run = find_run(folder)
        if run is None:
            run = self._describe(trainer, module, "finished", test.step)
        elif self.run_dir is None and (other := other_run(run, trainer, module)):
            rank_zero_warn(
                f"{folder / RECORD_FILE} is the record of another run ({other}); the test result is not written there."
            )
            return
        self._writer.write(folder / RECORD_FILE, replace(run, test=test).text())

    # Writing.

    def _switch(self, phase: str | None) -> None:
        now = time.perf_counter()
        if self._phase is not None:
            self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def _write(self, trainer: Trainer, pl_module: LightningModule, status: Status, message: str = "") -> None:
        if self._folder is None or not trainer.is_global_zero:
            return
        module = require_method(pl_module, self)
        self._switch(self._phase)
        self._written = time.monotonic()
        self._described = self._describe(trainer, module, status, self._step, message)
        self._writer.write(self._folder / "curve.csv", curve_to_csv(self._rows, module.task_names))
        self._writer.write(self._folder / RECORD_FILE, self._described.text())

    def _describe(self, trainer: Trainer, module: MultiTaskMethod, status: Status, step: int, message: str = "") -> Run:
        if self._costs.keys() != set(module.task_names):  # the cost of a task does not depend on the copies it uses
            self._costs = {name: InferenceCost(**cost) for name, cost in inference_costs(module).items()}
        seconds = self._seconds["training"]
        trained = seconds > 0
        return describe_run(
            trainer,
            module,
            status=status,
            message=message,
            step=step,
            stopped_by=stopped_by(trainer, module) if status == "finished" and step < trainer.max_steps else None,
            evaluation=self._evaluation,
            test=None,
            inference=self._costs,
            latency=self._latency,
            seconds=seconds if trained else None,
            seconds_evaluation=self._seconds["evaluation"] if trained else None,
            seconds_per_step=seconds / step if trained and step else None,
            started=self._started,
            ended=None if status == "running" else _now(),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
