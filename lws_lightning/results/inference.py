"""What a prediction of one task costs, by row."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from lws_lightning.results.cells import mean_cell
from lws_lightning.results.grouping import Row, Section
from lws_lightning.results.runs import Run

__all__ = ["INFERENCE_EXPLAINED", "inference_cells", "inference_quantities"]

INFERENCE_EXPLAINED = (
    "What a prediction of one task costs, mean over tasks and runs: the parameters that it needs, the multiply-adds of "
    "convolutions and matrix products for one image, and the time for a batch of images on the run's machine. Runs "
    "that share a machine are slower."
)


def inference_cells(section: Section) -> tuple[list[str], list[list[str]]] | None:
    """Returns header and cells of a section's table of inference costs, the first two columns being text.

    Returns:
        None if no run tells any, as those of older versions.
    """
    body = []
    for row in section.rows:
        values = inference_quantities(row)
        cells = [
            mean_cell(values["inference_parameters"], "{:,.0f}"),
            mean_cell([None if v is None else v / 1e6 for v in values["inference_multiply_adds"]], "{:,.3g}"),
            mean_cell([None if v is None else v * 1e3 for v in values["latency_seconds"]], "{:,.3g}"),
            _batch(row),
        ]
        body.append([row.letter, row.label, *cells])
    if all(cell == "-" for cells in body for cell in cells[2:]):
        return None
    return ["row", "method", "parameters", "million multiply-adds", "ms a batch", "batch"], body


def inference_quantities(row: Row) -> dict[str, list[float | None]]:
    """Returns for each run of a row its costs, None where its record does not tell them.

    Returns:
        `inference_parameters` and `inference_multiply_adds` as means over tasks, `latency_seconds` for one batch.
    """
    return {
        "inference_parameters": [_of_tasks(run, "parameters") for run in row.runs],
        "inference_multiply_adds": [_of_tasks(run, "multiply_adds") for run in row.runs],
        "latency_seconds": [_latency(run, "seconds") for run in row.runs],
    }


def _of_tasks(run: Run, quantity: str) -> float | None:
    def mean() -> float:
        costs: Mapping[str, Mapping[str, Any]] = run.record["inference"]
        return statistics.fmean(float(cost[quantity]) for cost in costs.values())

    return _known(mean)


def _known(read: Callable[[], float]) -> float | None:
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError, statistics.StatisticsError):
        return None


def _latency(run: Run, quantity: str) -> float | None:
    return _known(lambda: float(run.record["latency"][quantity]))


def _batch(row: Row) -> str:
    sizes = {_latency(run, "batch") for run in row.runs}
    size = sizes.pop() if len(sizes) == 1 else None
    return "-" if size is None else f"{size:.0f}"
