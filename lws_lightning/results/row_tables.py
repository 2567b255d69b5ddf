"""Tables of rows and of their runs: errors, training, cost of a prediction."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lws_lightning.results.rows import Member, Row, Section, deviation, training_differences
from lws_lightning.results.table import Column, Table

__all__ = ["cost_table", "error_table", "foot_notes", "row_table", "run_table"]

Values = Sequence[float | None]
_RunOfRow = tuple[Row, Member]

MAX_TASKS = 8  # more tasks have columns only in CSV
_MARKS = "*†‡§¶"
_COSTS = ("inference_parameters", "inference_multiply_adds", "latency_seconds")


class _Quantity(NamedTuple):
    """A measured quantity of a run, None if it was not measured; `format` takes the values of all runs of a row."""

    name: str
    value: Callable[[Member], float | None]
    heading: str
    format: Callable[[Values], str]

    def values(self, row: Row) -> list[float | None]:
        return [self.value(member) for member in row.members]

    def run_column(self) -> Column[_RunOfRow]:
        return Column(self.name, lambda item: self.value(item[1]))

    def row_columns(self) -> list[Column[Row]]:
        def known(row: Row) -> list[float]:
            return [value for value in self.values(row) if value is not None]

        return [
            Column(f"{self.name}/mean", lambda row: statistics.fmean(known(row)) if known(row) else None),
            Column(f"{self.name}/deviation", lambda row: deviation(known(row))),
            Column(f"{self.name}/n", lambda row: len(known(row))),
            Column(self.name, self.values, self.heading, self.format, csv=False),
        ]


def row_table(section: Section, folder_name: Callable[[Path], str] = str) -> Table[Row]:
    """Returns all columns about the rows of a section.

    For each quantity CSV has its mean, deviation (n - 1, None for one run) and n, the number of runs that have it;
    readers see `mean ± deviation`, the value of a single run, or a dash if not all runs of a row have it.
    `folder_name` returns the displayed name of a folder.
    """
    marks = _marks(section)

    def marked(row: Row) -> str:
        return f"{row.label} {marks.get(row.letter, '')}".strip()

    columns: list[Column[Row]] = [
        *_origin_columns(section),
        Column("label", lambda row: row.label, "method", text=True, csv=False),
        Column("marked", marked, "method", text=True, csv=False),
        Column("measured", lambda row: row.key.prefix),
        Column("step", lambda row: row.key.step),
        Column("images", lambda row: row.key.images),
        Column("n", lambda row: len(row.members), "n"),
        Column("diverged", lambda row: len(row.diverged)),
        Column("seeds", lambda row: list(row.seeds)),
        Column("runs", lambda row: [folder_name(run.folder) for run in row.runs]),
        Column("batch", _batch, "batch", csv=False),
    ]
    for quantity in _quantities(section):
        columns += quantity.row_columns()
    return Table(section.rows, columns)


def error_table(section: Section) -> Table[Row]:
    """Returns the errors and the cost of training; up to 8 tasks have a column each."""
    tasks = section.task_names if len(section.task_names) <= MAX_TASKS else ()
    measured = ("error_task_mean", "error", "parameters_in_use", "seconds", "seconds_per_step")
    caption = f"Error in percent: {section.key}. Mean ± standard deviation (n - 1) over n runs."
    names = ("row", "network", "marked", "n", *(f"error/{task}" for task in tasks), *measured)
    return row_table(section).select(names, caption)


def cost_table(section: Section) -> Table[Row] | None:
    """Returns the cost of a prediction, None if no run has measured it."""
    if not any(run.inference or run.latency for row in section.rows for run in row.runs):
        return None
    caption = (
        "What a prediction of one task costs, mean over tasks and runs: the parameters that it needs, the "
        "multiply-adds of convolutions and matrix products for one image, and the time for a batch of images on the "
        "run's machine. Runs that share a machine are slower."
    )
    return row_table(section).select(("row", "label", *_COSTS, "batch"), caption)


def run_table(section: Section, folder_name: Callable[[Path], str] = str) -> Table[_RunOfRow]:
    """Returns the quantities of each run, for further statistics."""
    columns: list[Column[_RunOfRow]] = [
        *(_as_run_column(column) for column in _origin_columns(section)),
        Column("seed", lambda item: item[1].run.seed),
        Column("run", lambda item: folder_name(item[1].run.folder)),
        Column("measured", lambda item: item[1].evaluation.prefix),
        Column("step", lambda item: item[1].evaluation.step),
        Column("images", lambda item: item[1].evaluation.images),
        *(quantity.run_column() for quantity in _quantities(section)),
    ]
    return Table([(row, member) for row in section.rows for member in row.members], columns)


def foot_notes(section: Section) -> list[str]:
    """Explains the marks in a section's table: rows that were evaluated differently from most."""
    marks = _marks(section)
    texts = {mark: str(row.key) for row in section.rows if (mark := marks.get(row.letter))}
    return [f"{mark} {text}, not to be compared with the other rows." for mark, text in texts.items()]


def _marks(section: Section) -> dict[str, str]:
    odd = [key for key in dict.fromkeys(row.key for row in section.rows) if key != section.key]
    marks = {key: _MARKS[i % len(_MARKS)] * (i // len(_MARKS) + 1) for i, key in enumerate(odd)}
    return {row.letter: marks[row.key] for row in section.rows if row.key in marks}


def _origin_columns(section: Section) -> list[Column[Row]]:
    training = _training_texts(section)
    return [
        Column("row", lambda row: row.letter, "row", text=True),
        Column("data", lambda row: section.data),
        Column("data_options", lambda row: section.variant),
        Column("network", lambda row: row.network, "network", text=True),
        Column("method", lambda row: row.method),
        Column("options", _options_text),
        Column("training", lambda row: training[row.letter]),
    ]


def _training_texts(section: Section) -> dict[str, str]:
    """Returns the row's values of the training options in which any rows of its network differ, by letter."""
    texts: dict[str, list[str]] = {row.letter: [] for row in section.rows}
    for network in section.networks:
        rows = [row for row in section.rows if row.network == network]
        for name, values in training_differences(rows).items():
            for row, value in zip(rows, values, strict=True):
                texts[row.letter].append(f"{name}={'none' if value is None else value}")
    return {letter: ", ".join(values) for letter, values in texts.items()}


def _options_text(row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.changed_options.items())


def _as_run_column(column: Column[Row]) -> Column[_RunOfRow]:
    return Column(column.name, lambda item: column.value(item[0]))


def _quantities(section: Section) -> list[_Quantity]:
    whole = _mean("{:,.0f}")
    parameters, multiply_adds, latency = _COSTS
    return [
        _Quantity("error", lambda member: member.evaluation.error, "all images", _spread),
        _Quantity("error_task_mean", lambda member: member.evaluation.error_task_mean, "task mean", _spread),
        _Quantity("parameters_in_use", lambda member: member.run.parameters_in_use, "parameters", whole),
        _Quantity("seconds", lambda member: member.run.seconds, "seconds", whole),
        _Quantity("seconds_per_step", lambda member: member.run.seconds_per_step, "s/step", _mean("{:.3g}")),
        _Quantity(parameters, partial(_task_mean, "parameters"), "parameters", whole),
        _Quantity(multiply_adds, partial(_task_mean, "multiply_adds"), "million multiply-adds", _mean("{:,.3g}", 1e-6)),
        _Quantity(latency, _latency_seconds, "ms a batch", _mean("{:,.3g}", 1e3)),
        *(_Quantity(f"error/{task}", partial(_task_error, task), task, _spread) for task in section.task_names),
    ]


def _task_error(task: str, member: Member) -> float | None:
    evaluation = member.evaluation.tasks.get(task)
    return None if evaluation is None else evaluation.error


def _task_mean(cost: str, member: Member) -> float | None:
    """Returns a cost of a prediction, mean over tasks."""
    costs = [float(getattr(of_task, cost)) for of_task in member.run.inference.values()]
    return statistics.fmean(costs) if costs else None


def _latency_seconds(member: Member) -> float | None:
    return None if member.run.latency is None else member.run.latency.seconds


def _batch(row: Row) -> int | None:
    sizes = {None if run.latency is None else run.latency.batch for run in row.runs}
    return sizes.pop() if len(sizes) == 1 else None


def _spread(values: Values) -> str:
    """Returns `mean ± deviation`, a single value alone, a dash if one is missing."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "-"
    spread = deviation(known)
    return f"{statistics.fmean(known):.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def _mean(format: str, factor: float = 1.0) -> Callable[[Values], str]:
    """Returns a function that formats the mean of values times a factor, as a dash if one is missing."""

    def text(values: Values) -> str:
        known = [factor * value for value in values if value is not None]
        return format.format(statistics.fmean(known)) if len(known) == len(values) else "-"

    return text
