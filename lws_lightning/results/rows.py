"""The rows of a report: which runs they average, how they were measured, and which runs are left out."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lws_lightning.records import Evaluation, Run

__all__ = ["Key", "LeftOut", "Member", "Row", "Section", "deviation", "seeds_text", "training_differences"]

_METHODS = ("full", "none", "prior", "learned")
_LABELS = {"test_curve": "test curve", "val": "validation", "test": "test"}


class Key(NamedTuple):
    """How a run was evaluated; only runs with the same key are averaged."""

    prefix: str
    step: int
    images: int

    def __str__(self) -> str:
        return f"{_LABELS.get(self.prefix, self.prefix)} at step {self.step:,}, {self.images:,} images"


class Member(NamedTuple):
    """A run of a row and its evaluation."""

    run: Run
    evaluation: Evaluation

    @property
    def key(self) -> Key:
        """How the run was evaluated; one that stopped early counts as evaluated at its `max_steps`."""
        run, evaluation = self
        stopped_early = run.stopped_by is not None and evaluation.step == run.step
        return Key(evaluation.prefix, run.max_steps if stopped_early else evaluation.step, evaluation.images)


@dataclass(frozen=True)
class LeftOut:
    """A run that is in no row.

    Attributes:
        run: The run.
        reason: The reason, without a full stop.
        other: The run that replaces it, None if there is none.
    """

    run: Run
    reason: str
    other: Run | None = None

    def text(self, folder_name: Callable[[Path], str] = str) -> str:
        """Returns the reason as a sentence; `folder_name` returns the displayed name of a folder."""
        replacement = f" in {folder_name(self.other.folder)}, which is later" if self.other else ""
        return f"{folder_name(self.run.folder)}: {self.reason}{replacement}."


@dataclass(frozen=True)
class Row:
    """Runs that differ only in the seed.

    Attributes:
        letter: A, B, ..., unique in a report.
        network: Name of the base network.
        method: Name of the method.
        variant: The options in which the rows of this method differ, as text, empty if there is one row only.
        options: The options of the method that a result depends on, without those that are None, and the precision.
        members: One run for each seed, in the order of seeds.
    """

    letter: str
    network: str
    method: str
    variant: str
    options: Mapping[str, Any]
    members: tuple[Member, ...]

    @property
    def label(self) -> str:
        """The method with its variant."""
        return f"{self.method} ({self.variant})" if self.variant else self.method

    @property
    def changed_options(self) -> dict[str, Any]:
        """The options with other values than the defaults, except K_l."""
        defaults = self.runs[0].defaults
        names = self.options.keys() & defaults.keys() - {"weights_per_layer"}
        return {name: self.options[name] for name in sorted(names) if self.options[name] != defaults[name]}

    @property
    def learned(self) -> bool:
        """Whether the method searches for the sharing."""
        return self.method.startswith("learned")

    @property
    def key(self) -> Key:
        """How its runs were evaluated."""
        return self.members[0].key

    @property
    def runs(self) -> tuple[Run, ...]:
        """Its runs."""
        return tuple(member.run for member in self.members)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Their seeds, ascending."""
        return tuple(run.seed for run in self.runs)

    @property
    def diverged(self) -> tuple[Run, ...]:
        """The runs whose error is not finite."""
        return tuple(run for run, evaluation in self.members if not math.isfinite(evaluation.error))

    def errors(self, average: str) -> list[float]:
        """Returns each run's `error` or `error_task_mean` in percent, in the order of members."""
        return [float(getattr(evaluation, average)) for _, evaluation in self.members]


@dataclass(frozen=True)
class Section:
    """The rows of one data set.

    Attributes:
        data: Name of the DataModule's class.
        variant: The options of the data in which the sections of this data set differ, as text.
        task_names: Names of the tasks.
        rows: Rows in the order network, method, options; empty if no run is finished.
        key: How most rows were evaluated, None without rows.
        left_out: The runs in no row.
        notes: Sentences about the runs as a whole.
    """

    data: str
    variant: str
    task_names: tuple[str, ...]
    rows: tuple[Row, ...]
    key: Key | None
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """The data set, its variant and its number of tasks."""
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.data}{variant}, {len(self.task_names)} task{'s' * (len(self.task_names) != 1)}"

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks of the rows, without duplicates."""
        return tuple(dict.fromkeys(row.network for row in self.rows))


def seeds_text(seeds: Iterable[int]) -> str:
    """Returns seeds as text such as `0-4, 7`."""
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and seed == spans[-1][1] + 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ", ".join(str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in spans)


def deviation(values: Sequence[float]) -> float | None:
    """Returns the standard deviation with n - 1, None for one value, nan where a value is not finite."""
    if len(values) < 2:
        return None
    # Not `statistics.stdev`: it raises where a run diverged to nan.
    mean = statistics.fmean(values)
    return float((sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5)


def training_differences(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Returns the values, one for each row, of each training option (such as `lr`) or precision that differs."""
    names = {"precision"}.union(*(run.training_options for row in rows for run in row.runs))
    options = {name: [row.options.get(name) for row in rows] for name in sorted(names)}
    return {name: values for name, values in options.items() if any(value != values[0] for value in values)}
