"""What a prediction of one task costs, by row."""

import statistics

from lws_lightning.records import Run
from lws_lightning.results.cells import mean_cell
from lws_lightning.results.grouping import Row, Section

__all__ = ["INFERENCE_EXPLAINED", "inference_cells", "inference_quantities"]

INFERENCE_EXPLAINED = (
    "What a prediction of one task costs, mean over tasks and runs: the parameters that it needs, the multiply-adds of "
    "convolutions and matrix products for one image, and the time for a batch of images on the run's machine. Runs "
    "that share a machine are slower."
)


def inference_cells(section: Section) -> tuple[list[str], list[list[str]]] | None:
    """Returns header and cells of a section's table of inference costs, the first two columns being text.

    Returns:
        None if there is none to show, as without tasks.
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
    """Returns for each run of a row its costs, None where its record has none.

    Returns:
        `inference_parameters` and `inference_multiply_adds` as means over tasks, `latency_seconds` for one batch.
    """
    return {
        "inference_parameters": [_of_tasks(run, "parameters") for run in row.runs],
        "inference_multiply_adds": [_of_tasks(run, "multiply_adds") for run in row.runs],
        "latency_seconds": [None if run.latency is None else run.latency.seconds for run in row.runs],
    }


def _of_tasks(run: Run, quantity: str) -> float | None:
    costs = [float(getattr(cost, quantity)) for cost in run.inference.values()]
    return statistics.fmean(costs) if costs else None


def _batch(row: Row) -> str:
    sizes = {None if run.latency is None else run.latency.batch for run in row.runs}
    size = sizes.pop() if len(sizes) == 1 else None
    return "-" if size is None else str(size)
