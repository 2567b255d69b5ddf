"""The evaluations of a run, as plain values and as a CSV table."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from lws_lightning.callbacks.protocol import DistributionLike, EvaluationLike

__all__ = ["curve_csv", "curve_row", "entropies", "evaluation_record", "probabilities", "put_row", "rows_of_csv"]

_COLUMNS = ("step", "seconds", "prefix", "error", "error_task_mean", "loss", "entropy_mean")


def evaluation_record(evaluation: EvaluationLike) -> dict[str, Any]:
    """Returns an evaluation as plain values; `images` counts those of all tasks."""
    tasks = {name: {"error": float(task.error), "images": int(task.images)} for name, task in evaluation.tasks.items()}
    return {
        "prefix": evaluation.prefix,
        "step": int(evaluation.step),
        "error": float(evaluation.error),
        "error_task_mean": float(evaluation.error_task_mean),
        "loss": float(evaluation.loss),
        "images": sum(task["images"] for task in tasks.values()),
        "tasks": tasks,
    }


def curve_row(record: dict[str, Any], seconds: float, entropy_mean: float | None) -> dict[str, Any]:
    """Makes a row of the curve.

    Args:
        record: What `evaluation_record` returned.
        seconds: Training time so far.
        entropy_mean: In nats, None for fixed sharing.

    Returns:
        The columns of `curve.csv`, those of the tasks as one dict under `tasks`.
    """
    row = {name: record[name] for name in ("step", "prefix", "error", "error_task_mean", "loss")}
    tasks = {name: task["error"] for name, task in record["tasks"].items()}
    return {**row, "seconds": seconds, "entropy_mean": entropy_mean, "tasks": tasks}


def put_row(rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Adds a row in the order of steps; one of the same step and prefix is replaced."""
    rows[:] = [old for old in rows if (old["step"], old["prefix"]) != (row["step"], row["prefix"])]
    rows.append(row)
    rows.sort(key=lambda each: each["step"])


def curve_csv(rows: Sequence[dict[str, Any]], task_names: Sequence[str]) -> str:
    """Writes the curve as CSV.

    Args:
        rows: What `curve_row` returned, in order.
        task_names: Their columns are called `error/<task>`; a task without images in a row has an empty cell.

    Returns:
        A header and a line for each row, lines end in a line feed.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"error/{name}" for name in task_names)])
    for row in rows:
        values = [row[name] for name in _COLUMNS] + [row["tasks"].get(name) for name in task_names]
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in values])
    return text.getvalue()


def rows_of_csv(text: str) -> list[dict[str, Any]]:
    """Reads what `curve_csv` wrote.

    Raises:
        ValueError: If it is not such a table.
    """
    rows = []
    for line in csv.DictReader(io.StringIO(text)):
        try:
            numbers = {name: float(line[name]) for name in _COLUMNS if name not in ("step", "prefix", "entropy_mean")}
            rows.append(
                {
                    "step": int(line["step"]),
                    "prefix": line["prefix"],
                    **numbers,
                    "entropy_mean": float(line["entropy_mean"]) if line["entropy_mean"] else None,
                    "tasks": {
                        name.removeprefix("error/"): float(value)
                        for name, value in line.items()
                        if name.startswith("error/") and value
                    },
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"This is not the curve of a run: {error!r}") from error
    return rows


def entropies(distribution: DistributionLike | None, layer_names: Sequence[str]) -> dict[str, Any] | None:
    """Returns the entropies of a search distribution, None for fixed sharing.

    Returns:
        `mean` in nats, `layers` by name in nats, `normalized_mean` and `normalized_layers` in [0, 1]; all are means
        over tasks.
    """
    if distribution is None:
        return None
    nats = distribution.entropy().double().mean(1)
    normalized = distribution.normalized_entropy().double().mean(1)
    return {
        "mean": float(nats.mean()),
        "layers": dict(zip(layer_names, nats.tolist(), strict=True)),
        "normalized_mean": float(normalized.mean()),
        "normalized_layers": dict(zip(layer_names, normalized.tolist(), strict=True)),
    }


def probabilities(
    distribution: DistributionLike | None, weights_per_layer: Sequence[int]
) -> list[list[list[float]]] | None:
    """Returns the probabilities of a search distribution as plain values, None for fixed sharing.

    Returns:
        By layer and task K_l numbers without padding, rounded to six significant digits: their affinity is then known
        to 1e-6, and the record of 50 tasks with 20 copies stays short.
    """
    if distribution is None:
        return None
    by_layer = zip(distribution.probs.double().tolist(), weights_per_layer, strict=True)
    return [[[float(f"{value:.6g}") for value in task[:size]] for task in tasks] for tasks, size in by_layer]
