"""Numbers of several runs as the text of one cell."""

import statistics
from collections.abc import Sequence

from lws_lightning.results.grouping import deviation

__all__ = ["mean_cell", "mean_deviation_cell"]


def mean_deviation_cell(values: Sequence[float | None]) -> str:
    """Returns `mean ± deviation`, one value as it is, a dash if one is missing."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "-"
    spread = deviation(known)
    mean = f"{statistics.fmean(known):.2f}"
    return mean if spread is None else f"{mean} ± {spread:.2f}"


def mean_cell(values: Sequence[float | None], form: str) -> str:
    """Returns the mean in a format, a dash if a value is missing."""
    known = [value for value in values if value is not None]
    return form.format(statistics.fmean(known)) if known and len(known) == len(values) else "-"
