"""The record of a run, `result.json`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from lws_lightning.records.decisions import Decisions
from lws_lightning.records.evaluation import Evaluation
from lws_lightning.records.identity import Identity
from lws_lightning.records.json_values import Record, to_json_value
from lws_lightning.walking import walk

__all__ = ["RECORD_FILE", "Hardware", "InferenceCost", "Latency", "Run", "Status", "find_run", "load_runs", "read_run"]

RECORD_FILE = "result.json"
_FORMAT = 1

Status = Literal["running", "finished", "interrupted", "failed"]
"""How a run ended; a killed run is still `running`."""


@dataclass(frozen=True)
class InferenceCost(Record):
    """The cost of one task's prediction: the parameters that it needs, and the multiply-adds for one image."""

    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class Latency(Record):
    """The median time in seconds that one task's network needs for a batch of `batch` images."""

    batch: int
    seconds: float


@dataclass(frozen=True)
class Hardware(Record):
    """The hardware of a run: CPU model, usable cores, torch's threads, and the GPU's name or None."""

    cpu: str
    cores: int | None
    threads: int
    gpu: str | None


@dataclass(frozen=True, kw_only=True)
class Run(Record):
    """The record of one run.

    Attributes:
        status: How it ended.
        message: The exception that ended it, otherwise empty.
        method: Name of the method.
        network: Name of the base network.
        data: Class name of the DataModule, None without one.
        data_digest: Fingerprint of training and test images, None if the DataModule has none.
        task_names: Names of the T tasks.
        layer_names: Names of the L layers.
        weights_per_layer: K_l of each layer.
        seed: The method's seed.
        step: Training steps completed.
        max_steps: Limit of training steps, -1 without one.
        stopped_by: What ended a finished run before `max_steps`: its method, a callback, or `trainer.max_time`.
        evaluation: The last evaluation during training, None if there was none.
        test: The result of `test`, None if it did not run.
        identity: The options that the result depends on.
        neutral: The other options, `method` and `data`.
        defaults: The default values of the method's options.
        training_options: The method's options that all methods have and that control training.
        trainer: `TRAINER_OPTIONS`, by name.
        entropies: Of the search distribution: `mean` and by name `layers` in nats, `normalized_mean` and
            `normalized_layers` in [0, 1], all means over tasks. None for fixed sharing.
        probabilities: The search distribution, by layer, task and copy. None for fixed sharing.
        assignment: `(L, T)`, the most likely assignment; empty where tasks mix instead of choosing copies.
        details: Other information that the method gives about the sharing.
        parameters_in_use: Distinct parameters that the tasks' networks use.
        parameters_total: All parameters.
        inference: Cost of a prediction, by task.
        latency: Time of a prediction, None before the end.
        seconds: Training time, summed over resumes; this and the next two are None without training.
        seconds_evaluation: Time of the evaluations, with their pictures and checkpoints.
        seconds_per_step: Training time of one step.
        versions: Of Python and packages.
        hardware: The hardware that it ran on.
        processes: Number of processes.
        started: Start time, UTC; None for networks that were only tested.
        ended: End time, UTC; None while it is running.
        folder: The folder of the record; not stored in it.
    """

    status: Status
    message: str
    method: str
    network: str
    data: str | None
    data_digest: str | None
    task_names: list[str]
    layer_names: list[str]
    weights_per_layer: list[int]
    seed: int
    step: int
    max_steps: int
    stopped_by: str | None
    evaluation: Evaluation | None
    test: Evaluation | None
    identity: Identity
    neutral: dict[str, dict[str, Any]]
    defaults: dict[str, Any]
    training_options: list[str]
    trainer: dict[str, Any]
    entropies: dict[str, Any] | None
    probabilities: list[list[list[float]]] | None
    assignment: list[list[int]]
    details: dict[str, Any]
    parameters_in_use: int
    parameters_total: int
    inference: dict[str, InferenceCost]
    latency: Latency | None
    seconds: float | None
    seconds_evaluation: float | None
    seconds_per_step: float | None
    versions: dict[str, str]
    hardware: Hardware
    processes: int
    started: str | None
    ended: str | None
    folder: Path = Path()

    @property
    def complete(self) -> bool:
        """Whether the run is finished and its networks have been tested."""
        return self.status == "finished" and self.test is not None

    @property
    def last_error(self) -> float | None:
        """Percent over all images in the test, else in the last evaluation; None before the first."""
        evaluation = self.test or self.evaluation
        return None if evaluation is None else evaluation.error

    @property
    def decisions(self) -> Decisions | None:
        """How far the search has come, None without a search."""
        return Decisions.of(self.probabilities)

    def to_json(self) -> dict[str, Any]:
        """Returns the format, all fields except the folder, and the decisions for readers of the file."""
        values = {"format": _FORMAT, **super().to_json(), "decisions": to_json_value(self.decisions)}
        del values["folder"]
        return values

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Reads the result of `to_json`.

        Raises:
            ValueError: If it is not the record of a run, has another format, or is damaged; the message says where.
        """
        if not isinstance(value, dict):
            raise ValueError("not the record of a run")
        if value.get("format") != _FORMAT:
            raise ValueError(f"unknown format {value.get('format')}, only {_FORMAT} is supported")
        return super().from_json(value)

    def text(self) -> str:
        """Returns the content of `result.json`."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_run(path: Path) -> Run:
    """Reads a `result.json`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not the record of a run, has another format, or is damaged.
    """
    return replace(Run.from_json(json.loads(path.read_text(encoding="utf-8"))), folder=path.parent)


def find_run(folder: Path) -> Run | None:
    """Reads the record in a folder; None if it is missing or damaged."""
    try:
        return read_run(folder / RECORD_FILE)
    except (OSError, ValueError):
        return None


def load_runs(folders: Iterable[str | Path]) -> tuple[list[Run], list[str]]:
    """Finds and reads records.

    Args:
        folders: Searched recursively for `result.json`; a `result.json` itself is accepted, too.

    Returns:
        The runs in the order of their paths, without duplicates, and a sentence for each problem: a folder without a
        record, a damaged record, an unknown format.
    """
    runs: dict[Path, Run] = {}
    problems = []
    for folder in map(Path, folders):
        paths = [folder] if folder.is_file() else []
        if folder.is_dir():
            unreadable: list[OSError] = []
            paths = sorted(
                Path(place, RECORD_FILE)
                for place, files in walk(folder, on_error=unreadable.append)
                if RECORD_FILE in files
            )
            problems += [f"{error.filename}: cannot be read ({error.strerror})." for error in unreadable]
        if not paths:
            problems.append(f"{folder}: {f'no {RECORD_FILE} in it' if folder.is_dir() else 'does not exist'}.")
        for path in paths:
            if path.resolve() in runs:
                continue
            try:
                runs[path.resolve()] = read_run(path)
            except (OSError, ValueError) as error:
                problems.append(f"{path}: cannot be read ({error}).")
    return list(runs.values()), problems
