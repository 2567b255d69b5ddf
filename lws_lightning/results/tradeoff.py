"""Error against the parameters in use."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from lws_lightning.drawing import literal_text
from lws_lightning.results.drawing import Style, count_along, legend_panel
from lws_lightning.results.rows import Row, deviation

__all__ = ["Point", "price_curves", "tradeoff_figure", "tradeoff_points"]


@dataclass(frozen=True)
class Point:
    """A row as a point.

    Attributes:
        row: The row.
        parameters: Parameters in use, mean over its runs.
        error: Percent over all images, mean over its runs.
        deviations: Standard deviations of both (n - 1); None for one run.
    """

    row: Row
    parameters: float
    error: float
    deviations: tuple[float | None, float | None]


def tradeoff_points(rows: Sequence[Row]) -> list[Point]:
    """Returns a point for each row without a diverged run; none if all use the same number of parameters."""
    points = []
    for row in rows:
        counts, errors = [float(run.parameters_in_use) for run in row.runs], row.errors("error")
        if not row.diverged:
            spread = deviation(counts), deviation(errors)
            points.append(Point(row, statistics.fmean(counts), statistics.fmean(errors), spread))
    return points if len({point.parameters for point in points}) > 1 else []


def price_curves(points: Sequence[Point]) -> list[list[Point]]:
    """Returns groups of at least two points that differ only in `weight_price`, by increasing price."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        options = {name: value for name, value in point.row.options.items() if name != "weight_price"}
        groups.setdefault(f"{point.row.method} {sorted(options.items())}", []).append(point)
    curves = [sorted(group, key=_price) for group in groups.values()]
    return [curve for curve in curves if len(curve) > 1 and len(set(map(_price, curve))) == len(curve)]


@literal_text()
def tradeoff_figure(points: Sequence[Point], styles: Mapping[str, Style], title: str, subtitle: str) -> Figure:
    """Draws the error against the parameters in use, with deviations of both; lines connect the prices of a method."""
    labels = [f"{point.row.letter} {point.row.label}, n = {len(point.row.runs)}" for point in points]
    dots: list[dict[str, Any]] = [
        {"color": style.colour, "marker": style.marker or "o", "linestyle": "", "markersize": 6}
        for style in (styles[point.row.letter] for point in points)
    ]
    sheet, axes = legend_panel(labels, dots, "error over all images (%)")
    for curve in price_curves(points):
        xs, ys = [point.parameters for point in curve], [point.error for point in curve]
        axes.plot(xs, ys, color=styles[curve[0].row.letter].colour, linewidth=1.0, alpha=0.6)
    for point, dot in zip(points, dots, strict=True):
        xerr, yerr = (value or 0.0 for value in point.deviations)
        axes.errorbar(point.parameters, point.error, yerr=yerr, xerr=xerr, elinewidth=0.9, capsize=2, **dot)
    axes.set_xlim(left=0)
    axes.margins(x=0.08, y=0.12)
    count_along(axes, "parameters in use, all tasks")
    return sheet.finish(title, subtitle)


def _price(point: Point) -> float:
    price = point.row.options.get("weight_price", 0.0)
    return float(price) if isinstance(price, int | float) and math.isfinite(price) else 0.0
