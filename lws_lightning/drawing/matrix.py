"""Matrices of probabilities as heat maps, in panels."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from lws_lightning.drawing.sheet import Sheet, text_width

__all__ = ["MAX_NUMBERS", "draw_panels", "name_size"]

MAX_NUMBERS = 400  # more numbers take seconds to draw and are illegible


def draw_panels(
    titles: Sequence[str],
    matrices: Sequence[np.ndarray[Any, Any]],
    row_names: Sequence[str],
    cell: float,
    number_sizes: Sequence[int],
    least: float = 0.0,
) -> tuple[Sheet, list[Axes]]:
    """Draws matrices with the same rows, and a colour bar.

    Args:
        titles: One for each matrix.
        matrices: Each `(rows, columns)` in [0, 1], the first row at the top; masked cells are grey.
        row_names: Labels at the left of the figure, one for each row or for every n-th.
        cell: Side of a cell in inches.
        number_sizes: Font size of the percentages in the cells, for each matrix; 0 omits them.
        least: Percentages of smaller values are omitted.

    Returns:
        The unfinished sheet, and its panels.
    """
    rows = len(matrices[0])
    panels = [max(cell * m.shape[1], text_width(title, 10)) for title, m in zip(titles, matrices, strict=True)]
    columns = _columns(len(panels), max(panels) + 0.3, cell * rows + 0.5)
    widths = [max(panels[column::columns]) for column in range(columns)]
    lines = math.ceil(len(panels) / columns)
    # The colour bar needs an inch.
    sheet = Sheet([*widths, 0.14], [max(cell * rows, 1.0 / lines)] * lines)
    drawn = []
    for place, (title, matrix, number_size) in enumerate(zip(titles, matrices, number_sizes, strict=True)):
        axes = sheet.axes(place // columns, place % columns, square=True)
        mesh = _draw(axes, matrix, number_size, least)
        axes.set_title(title, size=10, loc="left", pad=4)
        if place % columns == 0:
            ticks = np.arange(0, rows, math.ceil(rows / len(row_names))) + 0.5
            axes.set_yticks(ticks, row_names, size=name_size(cell))
        drawn.append(axes)
    sheet.figure.colorbar(mesh, cax=sheet.axes(slice(None), columns), ticks=[0, 0.25, 0.5, 0.75, 1]).ax.tick_params(
        labelsize=8
    )
    return sheet, drawn


def name_size(cell: float) -> int:
    """Returns the font size of names beside cells with a side of `cell` inches."""
    return 9 if cell >= 0.3 else 8 if cell > 0.2 else 7


def _draw(axes: Axes, matrix: np.ndarray[Any, Any], number_size: int, least: float) -> QuadMesh:
    rows, columns = matrix.shape
    axes.set_facecolor("#B8B8B8")
    # Edges of the mesh: grid lines at minor ticks would be several times slower.
    edge = "#DDDDDD" if rows <= 50 else "none"
    mesh = axes.pcolormesh(matrix, cmap="Blues", vmin=0, vmax=1, edgecolors=edge, linewidth=0.5)
    axes.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[])
    axes.tick_params(length=0)
    for row, column in np.ndindex(rows, columns) if number_size else ():
        value = matrix[row, column]
        if not np.ma.is_masked(value) and value >= least:
            axes.text(
                *(column + 0.5, row + 0.5, f"{100 * value:.0f}"),
                size=number_size, ha="center", va="center", color="white" if value > 0.55 else "black",
            ).set_in_layout(False)  # fmt: skip
    return mesh


def _columns(panels: int, width: float, height: float) -> int:
    """Returns a number of columns for an aspect ratio close to 3:2, without a nearly empty last row."""

    def badness(columns: int) -> float:
        rows = math.ceil(panels / columns)
        return abs(math.log(columns * width / (rows * height) / 1.5)) + 3 * (1 - panels / (rows * columns))

    return min(range(1, panels + 1), key=badness)
