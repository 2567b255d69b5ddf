"""Times a few steps of each contender in a process of its own: `python -m lws_lightning.compare.timing FOLDER...`.

FOLDERs hold a `run.yaml` each, whose run has the callback `StepClock`. The first run is also tested and exported,
so that what cannot be measured or written is found before hours of training.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lws_lightning.compare.plan import Timing
from lws_lightning.records import find_run, write_atomically
from lws_lightning.sweep import CONFIG_FILE, SweepRun, environment_of_run, plan_runs, save_config
from lws_lightning.sweep.outcome import LOG_FILE

__all__ = ["STEPS", "TRIAL_EVALUATIONS", "StepClock", "measure"]

STEPS = 12
TRIAL_EVALUATIONS = 2
_WARM_UP = 2
_RESULT, _CLOCK = "timing.json", "clock.json"
_STARTED = time.perf_counter()


class StepClock(Callback):
    """Writes the mean seconds of a training step after the first few, and those of the first evaluation.

    The file is `clock.json` in the Trainer's `default_root_dir`.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._steps: list[float] = []
        self._evaluation: float | None = None

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Notes the end of an evaluation, after what other callbacks do then."""
        if self._since is None and self._steps and self._evaluation is None:
            self._evaluation = time.perf_counter() - self._evaluation_since

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Notes the time since the last step, with the loading of the batch."""
        now = time.perf_counter()
        if self._since is not None:
            self._steps.append(now - self._since)
        self._since = now

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leaves out the step that follows an evaluation."""
        self._since, self._evaluation_since = None, time.perf_counter()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the file; without steps and evaluations that could be timed, as of a linear probe, it has zeros."""
        steps = self._steps[_WARM_UP:]
        clock = {"step": sum(steps) / len(steps) if steps else 0.0, "evaluation": self._evaluation or 0.0}
        write_atomically(Path(trainer.default_root_dir) / _CLOCK, json.dumps(clock))


def measure(
    configs: Mapping[Path, Mapping[str, Any]], folder: Path, jobs: int
) -> tuple[dict[str, Timing], float, float]:
    """Times each contender, as many at a time as will train at a time.

    Args:
        configs: The complete options of each contender, with `STEPS` steps, by the path of its file.
        folder: For files that are needed meanwhile.
        jobs: Runs at a time.

    Returns:
        Seconds by contender; those of a run beside its steps and evaluations; those of exporting one task.

    Raises:
        ValueError: If a contender cannot be trained, tested or exported; the message is its last line.
    """
    processes, folders = [], [folder / str(number) for number in range(jobs)]
    for out in folders:
        runs = plan_runs({path: _for_trial(config) for path, config in configs.items()}, [0], out)
        for run in runs:
            save_config(run)
        processes.append(_start(runs, out, jobs))
    try:
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
    for out, code in zip(folders, codes, strict=True):
        if code:
            lines = (out / LOG_FILE).read_text(encoding="utf-8", errors="replace").split("\n")
            said = next((line for line in reversed(lines) if line.strip()), f"status {code}")
            raise ValueError(f"a trial of a few steps failed: {said.removeprefix('lws fit: ')}")
    results = [json.loads((out / _RESULT).read_text()) for out in folders]
    parts = [field.name for field in fields(Timing)]
    slowest = {
        path.stem: Timing(**{part: max(result["timings"][path.stem][part] for result in results) for part in parts})
        for path in configs
    }
    return slowest, max(result["overhead"] for result in results), max(result["export"] for result in results)


def _for_trial(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a configuration with the clock."""
    callbacks = [*config["trainer"]["callbacks"], {"class_path": "lws_lightning.compare.timing.StepClock"}]
    return {**config, "trainer": {**config["trainer"], "callbacks": callbacks}}


def _start(runs: Sequence[SweepRun], out: Path, jobs: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "lws_lightning.compare.timing", *(str(run.folder) for run in runs)]
    with (out / LOG_FILE).open("wb") as log:
        # In a new session, as a run will be: some systems share the processor evenly between sessions.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment_of_run(jobs),
            start_new_session=True,
        )


def _measure(folders: Sequence[Path]) -> dict[str, Any]:
    """Trains all runs, and tests and exports the first."""
    from lws_lightning.export import export_task
    from lws_lightning.methods import method_from_checkpoint

    timings: dict[str, dict[str, float]] = {}
    overhead = export = 0.0
    for folder in folders:
        _run_lws("fit", folder)
        run = find_run(folder)
        assert run is not None
        clock, evaluations = json.loads((folder / _CLOCK).read_text()), run.seconds_evaluation or 0.0
        of_steps = STEPS * clock["step"] if clock["step"] else run.seconds or 0.0
        timed = TRIAL_EVALUATIONS if clock["step"] else 0
        once = max(0.0, evaluations - timed * clock["evaluation"]) + (0.0 if clock["step"] else of_steps)
        timings[folder.parent.name] = Timing(clock["step"], clock["evaluation"], once).to_json()
        if folder == folders[0] and folder.parents[2].name == "0":
            checkpoint = folder / "checkpoints" / "best.ckpt"
            _run_lws("test", folder, "--ckpt_path", str(checkpoint), "--trainer.logger", "false")
            overhead = time.perf_counter() - _STARTED - of_steps - evaluations
            started = time.perf_counter()
            method = method_from_checkpoint(checkpoint, trust_network=True)
            for format, suffix in (("onnx", ".onnx"), ("pt2", ".pt2")):
                export_task(method, 0, format, folder / f"trial{suffix}", checkpoint)
            export = time.perf_counter() - started
    return {"timings": timings, "overhead": overhead, "export": export}


def _run_lws(subcommand: str, folder: Path, *options: str) -> None:
    from lws_lightning.cli import main

    sys.argv[1:] = [subcommand, "--config", str(folder / CONFIG_FILE), *options]
    main()


if __name__ == "__main__":
    places = [Path(argument) for argument in sys.argv[1:]]
    write_atomically(places[0].parents[2] / _RESULT, json.dumps(_measure(places)))
