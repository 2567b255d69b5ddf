"""The evaluations during training, and `curve.csv`, which holds them."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from lws_lightning.records.evaluation import Evaluation
from lws_lightning.records.json_values import Record

__all__ = ["CurveRow", "curve_from_csv", "curve_to_csv", "insert_row"]

_COLUMNS = ("step", "seconds", "prefix", "error", "error_task_mean", "loss", "entropy_mean")
_TASK_PREFIX = "error/"


@dataclass(frozen=True)
class CurveRow(Record):
    """A row of the curve: an evaluation without its numbers of images.

    Attributes:
        step: Training steps completed.
        seconds: Training time so far.
        prefix: `test_curve` or `val`.
        error: Percent over all images.
        error_task_mean: Percent, mean of the tasks' errors.
        loss: Mean cross-entropy in nats.
        entropy_mean: Of the search distribution, in nats; None for fixed sharing.
        task_errors: Percent by task name; tasks without images are omitted.
    """

    step: int
    seconds: float
    prefix: str
    error: float
    error_task_mean: float
    loss: float
    entropy_mean: float | None
    task_errors: dict[str, float]

    @classmethod
    def of(cls, evaluation: Evaluation, seconds: float, entropy_mean: float | None) -> Self:
        """Makes the row of an evaluation."""
        return cls(
            evaluation.step,
            seconds,
            evaluation.prefix,
            evaluation.error,
            evaluation.error_task_mean,
            evaluation.loss,
            entropy_mean,
            {name: task.error for name, task in evaluation.tasks.items()},
        )


def insert_row(rows: list[CurveRow], row: CurveRow) -> None:
    """Inserts a row in the order of steps; replaces one with the same step and prefix."""
    rows[:] = [old for old in rows if (old.step, old.prefix) != (row.step, row.prefix)]
    rows.append(row)
    rows.sort(key=lambda row: row.step)


def curve_to_csv(rows: Sequence[CurveRow], task_names: Sequence[str]) -> str:
    """Writes the curve as CSV.

    Args:
        rows: In order.
        task_names: Their columns are called `error/<task>`; a task without images has an empty cell.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"{_TASK_PREFIX}{name}" for name in task_names)])
    for row in rows:
        values = [getattr(row, name) for name in _COLUMNS] + [row.task_errors.get(name) for name in task_names]
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in values])
    return text.getvalue()


def curve_from_csv(text: str) -> list[CurveRow]:
    """Reads the output of `curve_to_csv`.

    Raises:
        ValueError: If the text is not a curve.
    """
    rows = []
    for line in csv.DictReader(io.StringIO(text)):
        try:
            cells = {name: value or None for name, value in line.items()}
            errors = {
                name.removeprefix(_TASK_PREFIX): value
                for name, value in cells.items()
                if name.startswith(_TASK_PREFIX) and value
            }
            rows.append(CurveRow.from_json({**cells, "step": int(line["step"]), "task_errors": errors}))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"This is not the curve of a run: {error!r}") from error
    return rows
