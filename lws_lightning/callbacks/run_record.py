"""Makes the run folder a record: `curve.csv` and `result.json`."""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from lws_lightning.callbacks.curve import (
    curve_csv,
    curve_row,
    entropies,
    evaluation_record,
    probabilities,
    put_row,
)
from lws_lightning.callbacks.environment import data_digest, hardware, plain, versions
from lws_lightning.callbacks.folder import (
    CarefulWriter,
    release_folder,
    run_folder,
    say_failed_in_place,
    taken_folder,
    why_spared,
)
from lws_lightning.callbacks.protocol import SharingModule, as_sharing_module
from lws_lightning.callbacks.stopping import stopped_by
from lws_lightning.methods.inference import inference_costs, inference_seconds

__all__ = ["RunRecord"]

_REFRESH_SECONDS = 10.0
_LATENCY_BATCH = 16
_IDENTITY = ("method", "network", "data", "seed", "task_names", "layer_names", "weights_per_layer")


class RunRecord(Callback):
    """Writes `curve.csv` and `result.json` into the run folder (see `run_folder`).

    The record of a finished run is never overwritten. Given by hand, this callback makes a folder in `lightning_logs/`
    where there is no other place; the one that methods bring leaves nothing then.

    Both are replaced atomically at the start, at each evaluation, at the end and when an exception or an interrupt ends
    the run, so that a killed run leaves its last evaluation and the status `running`. In between they are refreshed at
    most every ten seconds, so that others see how far the run is. Checkpoints carry the curve and the seconds: a
    resumed run's `curve.csv` is complete, wherever it is written. A folder that cannot be written is warned of once
    and does not stop the training. `fast_dev_run` writes nothing.

    `result.json` (`format` 1) holds

    - `status` (`running`, `finished`, `interrupted` or `failed`) and `message`, the exception;
    - `method`, `network`, `data`, `task_names`, `layer_names`, `weights_per_layer`, `seed`, `step`, `max_steps`,
      `stopped_early` and `stopped_by` (whether and what ended it before: a rule, a callback, `trainer.max_time`);
    - `evaluation` (the last of the curve) and `test`, each with errors in percent and numbers of images, or null;
    - `entropies` and `probabilities` (the search distribution, by layer and task one number a copy, to six digits;
      both null for fixed sharing), `assignment` (null where none describes the sharing), `details` (what else a method
      says of it), `parameters_in_use`, `parameters_total`;
    - `inference`, by task the `parameters` that its prediction needs and the `multiply_adds` for one image;
    - `latency`, the median `seconds` that one task's network needs for a `batch` of images, null before the end;
    - `seconds` (training), `seconds_evaluation` (with the pictures and checkpoints of an evaluation) and
      `seconds_per_step`, summed over resumes, null without training;
    - `versions`, `hardware`, `precision`, `processes`, `hparams`, `started`, `ended` (UTC).

    Numbers that are not finite are strings there, which `float` reads.

    Args:
        run_dir: For testing only: the folder of the run that the tested weights come from. The result is put into its
            `result.json`. None means the run folder of the Trainer.
    """

    def __init__(self, run_dir: str | None = None) -> None:
        self.run_dir = run_dir
        self._folder: Path | None = None
        self._writer = CarefulWriter("The record of the run")
        self._payload: dict[str, Any] = {}
        self._phase: str | None = None
        self._since = self._written = 0.0
        self._reset()

    def _reset(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._evaluation: dict[str, Any] | None = None
        self._seconds = {"training": 0.0, "evaluation": 0.0}
        self._step = 0
        self._started: str | None = None
        self._costs: dict[str, dict[str, int]] | None = None
        self._latency: dict[str, float] | None = None

    # What checkpoints carry: plain values, because they are read with `weights_only=True`.

    def state_dict(self) -> dict[str, Any]:
        """Returns the curve and the seconds so far."""
        self._switch(self._phase)
        return {
            "rows": [dict(row) for row in self._rows],
            "evaluation": self._evaluation,
            "seconds": dict(self._seconds),
            "step": self._step,
            "started": self._started,
            "folder": None if self._folder is None else os.fspath(self._folder.resolve()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from the curve and the seconds of a checkpoint."""
        self._rows = [dict(row) for row in state_dict["rows"]]
        self._evaluation = state_dict["evaluation"]
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
        as_sharing_module(pl_module, type(self).__name__)
        if self._folder is not None and (reason := why_spared(self._folder, self._step, self._started)):
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
        module = as_sharing_module(pl_module, type(self).__name__)
        entropy = None if module.distribution is None else float(module.distribution.entropy().double().mean())
        for evaluation in module.evaluations.values():
            if evaluation.prefix != "test" and evaluation.step == trainer.global_step:
                self._evaluation = evaluation_record(evaluation)
                put_row(self._rows, curve_row(self._evaluation, self._seconds["training"], entropy))
        self._write(trainer, pl_module, "running")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock."""
        self._switch(None)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the final record."""
        if self._folder is not None and trainer.is_global_zero:
            module = as_sharing_module(pl_module, type(self).__name__)
            self._latency = {"batch": _LATENCY_BATCH, "seconds": inference_seconds(module, _LATENCY_BATCH)}
        self._write(trainer, pl_module, "finished")
        release_folder(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Writes how far the run came and why it ended."""
        if trainer.state.fn != "fit":
            return
        self._folder = taken_folder(trainer)  # the start may have failed before `setup`
        release_folder(trainer)
        if self._folder is None or why_spared(self._folder, self._step, self._started):
            return
        self._switch(None)
        # SIGTERM arrives as Lightning's SIGTERMException, which is a SystemExit.
        stopped = isinstance(exception, KeyboardInterrupt | SystemExit)
        status = "interrupted" if stopped else "failed"
        message = f"{type(exception).__name__}: {exception}".removesuffix(": ")
        try:
            self._write(trainer, pl_module, status, message)
        except Exception:  # a broken device must not hide what broke it
            self._payload.update(status=status, message=message, ended=_now())
            if trainer.is_global_zero:
                self._writer.write(self._folder / "result.json", _json(self._payload))
        if self._writer.failed and status == "failed" and trainer.is_global_zero:
            say_failed_in_place(self._folder / "result.json")

    # Testing.

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts the test's result into the record of the run it belongs to."""
        folder = run_folder(trainer, anyway=True) if self.run_dir is None else Path(self.run_dir)
        module = as_sharing_module(pl_module, type(self).__name__)
        evaluation = module.evaluations.get("test")
        if folder is None or evaluation is None or not trainer.is_global_zero:
            return
        test = evaluation_record(evaluation)
        # A Trainer that only tests does not restore `global_step`; this callback's state in the checkpoint knows it.
        test["step"] = self._step or test["step"]
        path = folder / "result.json"
        fresh = self._describe(trainer, module, "finished", step=test["step"]) | {"test": test}
        record = _read(path)
        if record is None:
            self._writer.write(path, _json(fresh))
        elif self.run_dir is not None or all(record.get(key) == fresh[key] for key in _IDENTITY):
            self._writer.write(path, _json({**record, "test": test}))
        else:
            rank_zero_warn(f"{path} is the record of another run; the test's result is not written there.")

    # Writing.

    def _switch(self, phase: str | None) -> None:
        now = time.perf_counter()
        if self._phase is not None:
            self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def _write(self, trainer: Trainer, pl_module: LightningModule, status: str, message: str = "") -> None:
        if self._folder is None or not trainer.is_global_zero:
            return
        module = as_sharing_module(pl_module, type(self).__name__)
        self._switch(self._phase)
        self._written = time.monotonic()
        self._payload = self._describe(trainer, module, status, step=self._step, message=message)
        self._writer.write(self._folder / "curve.csv", curve_csv(self._rows, module.task_names))
        self._writer.write(self._folder / "result.json", _json(self._payload))

    def _inference_costs(self, module: SharingModule) -> dict[str, dict[str, int]]:
        if self._costs is None or self._costs.keys() != set(module.task_names):
            self._costs = inference_costs(module)
        return self._costs

    def _describe(
        self, trainer: Trainer, module: SharingModule, status: str, step: int, message: str = ""
    ) -> dict[str, Any]:
        seconds = self._seconds["training"]
        trained = seconds > 0
        data = getattr(trainer, "datamodule", None)
        stopped = stopped_by(trainer, module) if status == "finished" and step < trainer.max_steps else None
        return {
            "format": 1,
            "status": status,
            "message": message,
            "method": module.method_name,
            "network": module.network_name,
            "data": None if data is None else type(data).__name__,
            "data_digest": data_digest(data),
            "task_names": list(module.task_names),
            "layer_names": list(module.layer_names),
            "weights_per_layer": [int(size) for size in module.weights_per_layer],
            "seed": int(module.seed),
            "step": step,
            "max_steps": trainer.max_steps,
            "stopped_early": stopped is not None,
            "stopped_by": stopped,
            "evaluation": self._evaluation,
            "test": None,
            "entropies": entropies(module.distribution, module.layer_names),
            "probabilities": probabilities(module.distribution, module.weights_per_layer),
            "assignment": None if module.assignment is None else module.assignment.tolist(),
            "details": module.details(),
            "parameters_in_use": module.network.parameters_in_use(module.assignment),
            "parameters_total": sum(parameter.numel() for parameter in module.network.parameters()),
            "inference": self._inference_costs(module),
            "latency": self._latency,
            "seconds": seconds if trained else None,
            "seconds_evaluation": self._seconds["evaluation"] if trained else None,
            "seconds_per_step": seconds / step if trained and step else None,
            "versions": versions(),
            "hardware": hardware(trainer.strategy.root_device),
            "precision": str(trainer.precision),
            "processes": trainer.world_size,
            "hparams": plain(getattr(module, "hparams", {})),
            "started": self._started,
            "ended": None if status == "running" else _now(),
        }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _json(record: dict[str, Any]) -> str:
    return json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _read(path: Path) -> dict[str, Any] | None:
    """Reads a record, None where there is none or it is damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None
