"""Makes the run folder a record: `curve.csv` and `result.json`."""

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from lws_lightning.callbacks.checks import require_method
from lws_lightning.callbacks.description import describe_run, identity_of
from lws_lightning.callbacks.stopping import stopped_by
from lws_lightning.methods import MultiTaskMethod, inference_costs, inference_seconds
from lws_lightning.records import (
    RECORD_FILE,
    CarefulWriter,
    CurveRow,
    Evaluation,
    InferenceCost,
    Latency,
    Run,
    Status,
    changed_options,
    curve_to_csv,
    find_run,
    mark_failed_in_place,
    put_row,
    reason_to_spare,
    release_folder,
    run_folder,
    taken_folder,
)

__all__ = ["RunRecord"]

_REFRESH_SECONDS = 10.0
_LATENCY_BATCH = 16


class RunRecord(Callback):
    """Writes `curve.csv` and `result.json` into the run folder (see `run_folder`).

    The record of a finished run is never overwritten. Given by hand, this callback makes a folder in `lightning_logs/`
    where there is no other place; the one that methods bring leaves nothing then.

    Both are replaced atomically at the start, at each evaluation, at the end and when an exception or an interrupt ends
    the run, so that a killed run leaves its last evaluation and the status `running`. In between they are refreshed at
    most every ten seconds, so that others see how far the run is. Checkpoints carry the curve and the seconds: a
    resumed run's `curve.csv` is complete, wherever it is written. A folder that cannot be written is warned of once
    and does not stop the training. `fast_dev_run` writes nothing.

    `result.json` is a `Run` (`lws_lightning.records`), which names its fields, with `format` 1. Numbers that are not
    finite are strings there, which `float` reads.

    Args:
        run_dir: For testing only: the folder of the run that the tested weights come from. The result is put into its
            `result.json`. None means the run folder of the Trainer.
    """

    def __init__(self, run_dir: str | None = None) -> None:
        self.run_dir = run_dir
        self._folder: Path | None = None
        self._writer = CarefulWriter("The record of the run")
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

    # What checkpoints carry: plain values, because they are read with `weights_only=True`.

    def state_dict(self) -> dict[str, Any]:
        """Returns the curve and the seconds so far."""
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
        """Goes on from the curve and the seconds of a checkpoint."""
        evaluation = state_dict["evaluation"]
        self._rows = [CurveRow.from_json(row) for row in state_dict["rows"]]
        self._evaluation = None if evaluation is None else Evaluation.from_json(evaluation)
        self._seconds = dict(state_dict["seconds"])
        self._step = state_dict["step"]
        self._started = state_dict["started"]

    # Training.

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forgets an earlier run of another Trainer; a checkpoint's state is loaded after this."""
        if stage == "fit" and trainer.global_step == 0:
            self._reset()
        if stage == "fit":
            self._folder = run_folder(trainer, anyway=True)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the record with the status `running`; raises ValueError if that of a finished run is in the way."""
        require_method(pl_module, self)
        if self._folder is not None and (reason := reason_to_spare(self._folder, self._step, self._started)):
            raise ValueError(reason)
        self._started = self._started or _now()
        self._write(trainer, pl_module, "running")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock."""
        self._since = time.perf_counter()
        self._switch("training")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Ends the time of an evaluation."""
        # Not at its end, because other callbacks draw and save there.
        if self._phase == "evaluation":
            self._switch("training")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts, and now and then tells others."""
        self._step = trainer.global_step
        if time.monotonic() - self._written > _REFRESH_SECONDS:
            self._write(trainer, pl_module, "running")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the time of an evaluation."""
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
                put_row(self._rows, CurveRow.of(evaluation, self._seconds["training"], entropy))
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
        """Writes how far the run came and why it ended."""
        if trainer.state.fn != "fit":
            return
        self._folder = taken_folder(trainer)  # the start may have failed before `setup`
        release_folder(trainer)
        if self._folder is None or reason_to_spare(self._folder, self._step, self._started):
            return
        self._switch(None)
        # SIGTERM arrives as Lightning's SIGTERMException, which is a SystemExit.
        stopped = isinstance(exception, KeyboardInterrupt | SystemExit)
        status: Status = "interrupted" if stopped else "failed"
        message = f"{type(exception).__name__}: {exception}".removesuffix(": ")
        try:
            self._write(trainer, pl_module, status, message)
        except Exception:  # a broken device must not hide what broke it
            if self._described is not None and trainer.is_global_zero:
                ended = replace(self._described, status=status, message=message, ended=_now())
                self._writer.write(self._folder / RECORD_FILE, ended.text())
        if self._writer.failed and status == "failed" and trainer.is_global_zero:
            mark_failed_in_place(self._folder / RECORD_FILE)

    # Testing.

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts the test's result into the record of the run it belongs to."""
        folder = run_folder(trainer, anyway=True) if self.run_dir is None else Path(self.run_dir)
        module = require_method(pl_module, self)
        evaluation = module.evaluations.get("test")
        if folder is None or evaluation is None or not trainer.is_global_zero:
            return
        # A Trainer that only tests does not restore `global_step`; this callback's state in the checkpoint knows it.
        test = replace(evaluation, step=self._step or evaluation.step)
        run = find_run(folder)
        if run is None:
            run = self._describe(trainer, module, "finished", test.step)
        elif self.run_dir is None and (other := _other_run(run, trainer, module)):
            rank_zero_warn(
                f"{folder / RECORD_FILE} is the record of another run ({other}); "
                "the test's result is not written there."
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
        if self._costs.keys() != set(module.task_names):  # which copy a task uses changes, but not what a copy costs
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


def _other_run(run: Run, trainer: Trainer, module: MultiTaskMethod) -> str:
    """Says in what the run of a record is not the one whose networks are tested, empty if it may be.

    Options of the start leave no trace in networks that are trained, and evaluations do not depend on those of batches.
    """
    data, own = getattr(trainer, "datamodule", None), identity_of(trainer, module)
    without = module.start_options | getattr(data, "batch_options", frozenset()) - {"seed"}
    before = {
        "data": run.data,
        "method": run.method,
        "network": run.network,
        **run.identity.data,
        **run.identity.method,
    }
    now = {"data": data and type(data).__name__, "method": module.method_name, "network": module.network_name}
    changed = changed_options(before, {**now, **own.data, **own.method}).items()
    return ", ".join(f"{name} {old}, not {new}" for name, (old, new) in changed if name not in without)
