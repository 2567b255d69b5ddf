"""Matrices of probabilities as heat maps, several of them in one figure."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

__all__ = ["MAX_NUMBERS", "draw_colour_bar", "draw_matrix"]

MAX_NUMBERS = 400  # more numbers take seconds to draw and cannot be read


def draw_matrix(
    axes: Axes, values: np.ndarray[Any, Any], number_size: int = 0, least: float = 0.0, edges: bool = True
) -> QuadMesh:
    """Draws values with the first row above, and no ticks.

    Args:
        axes: Square ones of a `Sheet`.
        values: `(rows, columns)` in [0, 1]; what is masked stays as the background is.
        number_size: Points of the percent in each cell, 0 leaves the numbers out.
        least: Numbers of smaller values are left out.
        edges: Whether the cells have edges.
    """
    rows, columns = values.shape
    # One mesh with edges; grid lines at minor ticks would be several times slower.
    mesh = axes.pcolormesh(
        values, cmap="Blues", vmin=0, vmax=1, edgecolors="#DDDDDD" if edges else "none", linewidth=0.5
    )
    axes.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[])
    axes.tick_params(length=0)
    for row, column in np.ndindex(rows, columns) if number_size else ():
        value = values[row, column]
        if not np.ma.is_masked(value) and value >= least:
            axes.text(
                *(column + 0.5, row + 0.5, f"{100 * value:.0f}"),
                size=number_size, ha="center", va="center", color="white" if value > 0.55 else "black",
            ).set_in_layout(False)  # fmt: skip
    return mesh


def draw_colour_bar(axes: Axes, mesh: QuadMesh) -> None:
    """Draws the scale of the colours into axes of their own."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.colorbar(mesh, cax=axes, ticks=[0, 0.25, 0.5, 0.75, 1]).ax.tick_params(labelsize=8)
