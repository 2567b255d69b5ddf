"""The record of a run, `result.json`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from lws_lightning.records.evaluation import Evaluation
from lws_lightning.records.identity import Identity
from lws_lightning.records.plain import Record
from lws_lightning.walking import walk

__all__ = ["RECORD_FILE", "Hardware", "InferenceCost", "Latency", "Run", "Status", "find_run", "load_runs", "read_run"]

RECORD_FILE = "result.json"
_FORMAT = 1

Status = Literal["running", "finished", "interrupted", "failed"]
"""How a run ended; one that was killed is still `running`."""


@dataclass(frozen=True)
class InferenceCost(Record):
    """What a prediction of one task costs: the parameters that it needs, and the multiply-adds for one image."""

    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class Latency(Record):
    """The median time in seconds that one task's network needs for a batch of so many images."""

    batch: int
    seconds: float


@dataclass(frozen=True)
class Hardware(Record):
    """What a run computed on: the CPU's model, the cores that it may use, torch's threads, the GPU's name or None."""

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
        data: Name of the DataModule's class, None if there was none.
        data_digest: Fingerprint of training and test images, None if the DataModule has none.
        task_names: Names of the T tasks.
        layer_names: Names of the L layers.
        weights_per_layer: K_l of each layer.
        seed: The method's seed.
        step: Training steps done.
        max_steps: Training steps wanted, -1 without a limit.
        stopped_by: What ended a finished run before `max_steps`: its method, a callback, or `trainer.max_time`.
        evaluation: The last evaluation of the training, None if there was none.
        test: What `test` measured, None if it did not run.
        identity: The options that the result depends on.
        neutral: The other options, `method` and `data`.
        defaults: The default values of the method's options.
        training_options: Which of the method's options every method has and say how it trains.
        trainer: `TRAINER_OPTIONS`, by name.
        entropies: Of the search distribution: `mean` and by name `layers` in nats, `normalized_mean` and
            `normalized_layers` in [0, 1], all means over tasks. None for fixed sharing.
        probabilities: The search distribution, by layer and task one number for each copy. None for fixed sharing.
        assignment: `(L, T)`, the most likely assignment; None where none describes the sharing.
        details: What else the method says of the sharing.
        parameters_in_use: Distinct parameters that the tasks' networks use.
        parameters_total: All parameters.
        inference: What a prediction costs, by task.
        latency: How long a prediction takes, None before the end.
        seconds: Training time, summed over resumes; this and the next two are None without training.
        seconds_evaluation: Time of the evaluations, with their pictures and checkpoints.
        seconds_per_step: Seconds for one step.
        versions: Of Python and packages.
        hardware: What it computed on.
        processes: Number of processes.
        started: When it began, UTC; None for networks that were only tested.
        ended: When it ended, UTC; None while it is running.
        folder: Where the record lies; not part of it.
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
    assignment: list[list[int]] | None
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
        """Whether it is finished and its networks have been tested."""
        return self.status == "finished" and self.test is not None

    @property
    def last_error(self) -> float | None:
        """Percent over all images: of the test, else of the last evaluation; None before the first."""
        evaluation = self.test or self.evaluation
        return None if evaluation is None else evaluation.error

    def to_json(self) -> dict[str, Any]:
        """Returns the format and all fields but the folder."""
        plain = {"format": _FORMAT, **super().to_json()}
        del plain["folder"]
        return plain

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Reads what `to_json` returned.

        Raises:
            ValueError: If it is not the record of a run, of another format, or damaged; the message says where.
        """
        if not isinstance(value, dict):
            raise ValueError("not the record of a run")
        if value.get("format") != _FORMAT:
            raise ValueError(f"format {value.get('format')} is not known, only {_FORMAT}")
        return super().from_json(value)

    def text(self) -> str:
        """Returns the content of `result.json`."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_run(path: Path) -> Run:
    """Reads a record.

    Args:
        path: A `result.json`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not the record of a run, of another format, or damaged.
    """
    return replace(Run.from_json(json.loads(path.read_text(encoding="utf-8"))), folder=path.parent)


def find_run(folder: Path) -> Run | None:
    """Reads the record in a folder; None if there is none, or it is damaged."""
    try:
        return read_run(folder / RECORD_FILE)
    except (OSError, ValueError):
        return None


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
