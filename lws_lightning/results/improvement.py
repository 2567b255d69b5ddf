"""By how much rows are better than no sharing: by task, and in the mean (the field's delta_p)."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lws_lightning.results.row_tables import MAX_TASKS
from lws_lightning.results.rows import Member, Row, Section, deviation, training_differences
from lws_lightning.results.table import Column, Table

__all__ = ["Improvement", "improvement_table", "improvements"]

_CAPTION = (
    "Relative change of the accuracy against the row without sharing, in percent, by task and as the mean over tasks "
    "(Δp, Vandenhende et al. 2021): positive is better. Mean ± standard deviation (n - 1) over the row's runs, against "
    "the mean accuracy of the other row's."
)


@dataclass(frozen=True)
class Improvement:
    """A row against the row without sharing.

    Attributes:
        row: The row.
        baseline: The row without sharing.
        tasks: By name, for each run of the row in percent: `100 (a - b) / b` with the run's accuracy a and the
            baseline's mean accuracy b. Tasks without images or with b = 0 are omitted.
    """

    row: Row
    baseline: Row
    tasks: dict[str, list[float]]

    @property
    def means(self) -> list[float]:
        """Delta_p of each run: the mean over tasks; empty without tasks."""
        return [statistics.fmean(values) for values in zip(*self.tasks.values(), strict=True)]


def improvements(section: Section) -> list[Improvement]:
    """Compares each row with the row without sharing of the same network that was evaluated alike.

    If there is more than one of these, it is the first of those whose training options differ least. Rows without one
    are omitted, and so are rows that have diverged.

    Args:
        section: Rows of one data set.
    """
    found = []
    for row in section.rows:
        candidates = [
            other
            for other in section.rows
            if other.method == "none" and other.network == row.network and other.key == row.key and not other.diverged
        ]
        if row in candidates or row.diverged or not candidates:
            continue
        baseline = min(candidates, key=lambda other: len(training_differences([row, other])))
        tasks = {}
        for task in section.task_names:
            own, reference = (_accuracies(task, each) for each in (row, baseline))
            if own and reference and (mean := statistics.fmean(reference)) > 0:
                tasks[task] = [100 * (accuracy - mean) / mean for accuracy in own]
        if tasks:
            found.append(Improvement(row, baseline, tasks))
    return found


def improvement_table(section: Section, found: Sequence[Improvement]) -> Table[Improvement]:
    """Returns the improvements for readers (up to 8 tasks have a column each) and for CSV.

    Args:
        section: The rows.
        found: The result of `improvements`.
    """
    shown = len(section.task_names) <= MAX_TASKS
    columns: list[Column[Improvement]] = [
        Column("row", lambda each: each.row.letter, "row", text=True),
        Column("label", lambda each: each.row.label, "method", text=True),
        Column("data", lambda each: section.data),
        Column("data_options", lambda each: section.variant),
        Column("network", lambda each: each.row.network),
        Column("baseline", lambda each: each.baseline.letter, "against", text=True),
        Column("n", lambda each: len(each.row.members), "n"),
        Column("delta_p/mean", lambda each: statistics.fmean(each.means)),
        Column("delta_p/deviation", lambda each: deviation(each.means)),
        Column("delta_p", lambda each: each.means, "Δp", _spread, csv=False),
    ]
    for task in section.task_names:
        columns += [
            Column(f"change/{task}/mean", partial(_mean_of, task)),
            Column(f"change/{task}", partial(_values_of, task), task if shown else "", _spread, csv=False),
        ]
    return Table(found, columns, _CAPTION)


def _accuracies(task: str, row: Row) -> list[float]:
    """Returns the accuracy of a task in percent for each run, or nothing if a run has no images of it."""
    errors = [_error(task, member) for member in row.members]
    known = [100 - error for error in errors if error is not None]
    return known if len(known) == len(errors) else []


def _error(task: str, member: Member) -> float | None:
    evaluation = member.evaluation.tasks.get(task)
    return None if evaluation is None else evaluation.error


def _values_of(task: str, each: Improvement) -> list[float] | None:
    return each.tasks.get(task)


def _mean_of(task: str, each: Improvement) -> float | None:
    values = each.tasks.get(task)
    return None if values is None else statistics.fmean(values)


def _spread(values: Sequence[float]) -> str:
    spread = deviation(values)
    return f"{statistics.fmean(values):+.2f}" + ("" if spread is None else f" ± {spread:.2f}")
