"""Reads the records of runs, `result.json`, and nothing else of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lws_lightning.walking import walk

__all__ = ["Measurement", "Run", "load_runs"]

_FORMAT = 1


@dataclass(frozen=True)
class Measurement:
    """What one evaluation of a run measured.

    Attributes:
        prefix: `test_curve`, `val` or `test`.
        step: Training steps of the evaluated weights.
        error: Percent over all images of all tasks together.
        error_task_mean: Percent, mean of the tasks' errors.
        images: Number of images of all tasks.
        task_errors: Percent by task name; tasks without images are left out.
    """

    prefix: str
    step: int
    error: float
    error_task_mean: float
    images: int
    task_errors: Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """The record of one run.

    Attributes:
        folder: Where it lies.
        status: `running` (or killed), `finished`, `interrupted` or `failed`.
        method: Name of the method.
        network: Name of the base network.
        data: Name of the DataModule's class, `-` if there was none.
        task_names: Names of the tasks.
        seed: The seed.
        step: Training steps done.
        max_steps: Training steps wanted, -1 without a limit.
        evaluation: The last evaluation of the training, None if there was none.
        test: What `test` measured, None if it did not run.
        parameters_in_use: Distinct parameters that the tasks' networks use.
        seconds: Training time, None if unknown.
        seconds_per_step: Seconds for one step, None if unknown.
        record: All of `result.json`.
    """

    folder: Path
    status: str
    method: str
    network: str
    data: str
    task_names: tuple[str, ...]
    seed: int
    step: int
    max_steps: int
    evaluation: Measurement | None
    test: Measurement | None
    parameters_in_use: int
    seconds: float | None
    seconds_per_step: float | None
    record: Mapping[str, Any]

    @property
    def stopped_early(self) -> bool:
        """Whether something told the run to end before its `max_steps`; see `stopped_by`."""
        noted = self.record.get("stopped_early", "early_stopping" in (self.record.get("details") or {}))
        return bool(noted) and self.status == "finished" and 0 <= self.step < self.max_steps

    @property
    def stopped_by(self) -> str:
        """What ended a run that stopped early: its method, a callback, or `trainer.max_time`."""
        by_method = "early_stopping" in (self.record.get("details") or {})
        return str(self.record.get("stopped_by") or ("its method" if by_method else "a callback"))


def load_runs(folders: Iterable[str | Path]) -> tuple[list[Run], list[str]]:
    """Finds and reads records.

    Args:
        folders: Searched for `result.json` with all that is below them; a `result.json` itself will do, too.

    Returns:
        The runs in the order of their paths, each once, and a list of sentences about what could not be read: a
        folder without a record, a damaged record, one of an unknown format.
    """
    runs: dict[Path, Run] = {}
    problems = []
    for folder in map(Path, folders):
        paths = [folder] if folder.is_file() else []
        if folder.is_dir():
            unreadable: list[OSError] = []
            paths = sorted(
                Path(place, "result.json")
                for place, files in walk(folder, on_error=unreadable.append)
                if "result.json" in files
            )
            problems += [f"{error.filename}: cannot be read ({error.strerror})." for error in unreadable]
        if not paths:
            problems.append(f"{folder}: {'no result.json in it' if folder.is_dir() else 'does not exist'}.")
        for path in paths:
            if path.resolve() in runs:
                continue
            try:
                runs[path.resolve()] = _read_run(path)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
                problems.append(f"{path}: cannot be read ({reason}).")
    return list(runs.values()), problems


def _read_run(path: Path) -> Run:
    record = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError("not the record of a run")
    if record["format"] != _FORMAT:
        raise ValueError(f"format {record['format']} is not known, only {_FORMAT}")
    return Run(
        folder=path.parent,
        status=str(record["status"]),
        method=str(record["method"]),
        network=str(record["network"]),
        data=str(record["data"] or "-"),
        task_names=tuple(map(str, record["task_names"])),
        seed=int(record["seed"]),
        step=int(record["step"]),
        max_steps=int(record["max_steps"]),
        evaluation=_measurement(record["evaluation"]),
        test=_measurement(record["test"]),
        parameters_in_use=int(record["parameters_in_use"]),
        seconds=_number(record["seconds"]),
        seconds_per_step=_number(record["seconds_per_step"]),
        record=record,
    )


def _measurement(record: Mapping[str, Any] | None) -> Measurement | None:
    if record is None:
        return None
    return Measurement(
        prefix=str(record["prefix"]),
        step=int(record["step"]),
        error=float(record["error"]),
        error_task_mean=float(record["error_task_mean"]),
        images=int(record["images"]),
        task_errors={name: float(task["error"]) for name, task in record["tasks"].items()},
    )


def _number(value: float | str | None) -> float | None:
    return None if value is None else float(value)
