"""Task affinity: how likely two tasks share a layer, as numbers and as a picture."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from torch import Tensor

from lws_lightning.drawing.matrix import MAX_NUMBERS, draw_colour_bar, draw_matrix
from lws_lightning.drawing.sheet import Sheet, grid_columns, text_width, upright_if_crowded
from lws_lightning.drawing.style import literal_text, shorten

__all__ = ["affinity_figure", "affinity_of_assignment", "affinity_of_probabilities"]

_MAX_LAYERS_OF = 24  # with more tasks the panel of a layer cannot be read
_MAX_NUMBERS_OF = 8
_ITSELF = "#B8B8B8"


def affinity_of_probabilities(probs: Tensor) -> Tensor:
    """Returns the probability that two tasks use the same copy in an assignment drawn from the search distribution.

    The choices of two tasks are independent, so it is the sum over copies of the product of both probabilities. A task
    uses the same copy as itself: the diagonal is 1, which the sum is not.

    Args:
        probs: `(L, T, max K)`, each `probs[l, t]` sums to 1, padding beyond K_l is 0.

    Returns:
        `(L, T, T)` float64 on the CPU, symmetric, in [0, 1] up to the rounding of `probs`.
    """
    values = probs.detach().double().cpu()
    affinity = values @ values.transpose(1, 2)
    affinity.diagonal(dim1=1, dim2=2).fill_(1.0)
    return affinity


def affinity_of_assignment(assignment: Tensor) -> Tensor:
    """Says which tasks use the same copy.

    Args:
        assignment: `(L, T)` int64.

    Returns:
        `(L, T, T)` float64, 1 where two tasks share the layer and 0 elsewhere; the diagonal is 1.
    """
    return (assignment[:, :, None] == assignment[:, None, :]).double()


@literal_text()
def affinity_figure(
    affinity: Tensor,
    layer_names: Sequence[str],
    task_names: Sequence[str],
    title: str = "How likely two tasks share a layer",
    subtitle: str = "",
) -> Figure:
    """Draws the affinity of tasks: the mean over layers, in which each layer counts alike, and beside it each layer.

    All panels have the same order of tasks. The diagonal is grey. Up to 8 tasks the cells hold percent, those of
    the layers where these are not too many. With more than 24 tasks only the mean is drawn, and of very many tasks not
    every name. A single layer is its own mean.

    Args:
        affinity: `(L, T, T)` in [0, 1].
        layer_names: L names, input first.
        task_names: T names in the order of the rows, at least two.
        title: The first line.
        subtitle: The second line, may be empty.

    Returns:
        A figure that belongs to no window and no global state.

    Raises:
        ValueError: If the numbers of names do not fit the affinity, or there are fewer than two tasks.
    """
    layers, tasks = len(layer_names), len(task_names)
    if tuple(affinity.shape) != (layers, tasks, tasks) or layers < 1 or tasks < 2:
        raise ValueError(
            f"{layers} layer names and {tasks} task names do not fit an affinity of the shape {tuple(affinity.shape)}; "
            "at least two tasks are needed."
        )
    values = affinity.detach().double().cpu().numpy()
    panels = layers if layers > 1 and tasks <= _MAX_LAYERS_OF else 0
    cell, name_size = _cell(tasks)
    number_size = 8 if tasks <= _MAX_NUMBERS_OF else 0
    many = layers * tasks * (tasks - 1) > MAX_NUMBERS
    side = tasks * cell
    small = max(tasks * (min(0.75 * cell, 0.42) if number_size else 0.5 * cell), 1.2)
    first = shorten(layer_names[0]) if layers == 1 else "mean over layers"
    titles = [shorten(name, 20) for name in layer_names]
    columns = grid_columns(panels, small + 0.3, small + 0.4, beside=side + 1.5) if panels else 0
    rows = math.ceil(panels / columns) if panels else 1
    shown = range(0, tasks, math.ceil(0.13 / cell))
    names = [shorten(task_names[task]) for task in shown]
    below = max(text_width(name, name_size) for name in names) if rows > 1 else 0.0

    width = max(small, *(text_width(title, 9) for title in titles))
    sheet = Sheet(
        [max(side, text_width(first, 10)), *[width] * columns, 0.14],
        [max(small, (side + below) / rows) if panels else side] * rows,
    )
    mean = sheet.axes(slice(None), square=True)
    mesh = _draw(mean, values.mean(0), number_size)
    mean.set_title(first, size=10, loc="left", pad=4)
    mean.set_yticks([task + 0.5 for task in shown], names, size=name_size)
    if rows == 1:
        _name_columns(mean, shown, names, name_size, cell)
    for layer in range(panels):
        axes = sheet.axes(layer // columns, 1 + layer % columns, square=True)
        _draw(axes, values[layer], 0 if many else number_size)
        axes.set_title(titles[layer], size=9, loc="left", pad=4)
    draw_colour_bar(sheet.axes(slice(None), -1), mesh)
    figure = sheet.finish(title, subtitle, *_explained(layers, tasks, panels > 0))
    if rows > 1:  # these names stand beside the lower panels; the layout would put them below all
        _name_columns(mean, shown, names, name_size, cell)
    return figure


def _name_columns(axes: Axes, shown: Sequence[int], names: Sequence[str], size: int, cell: float) -> None:
    axes.set_xticks([task + 0.5 for task in shown], names, size=size)
    upright_if_crowded(axes, cell)


def _cell(tasks: int) -> tuple[float, int]:
    """Returns the side of a cell of the mean in inches, and the size of the names in points."""
    if tasks <= _MAX_NUMBERS_OF:
        return 0.6 if tasks <= 4 else 0.45, 9
    if tasks <= _MAX_LAYERS_OF:
        return 0.24, 8
    return (10 / tasks if tasks > 70 else max(0.14, min(0.2, 10 / tasks))), 7


def _explained(layers: int, tasks: int, panels: bool) -> list[str]:
    lines = []
    if layers > 1:
        lines.append(
            "Every layer counts alike in the mean."
            + (" Layers: tasks in the same order, input first." if panels else " With so many tasks only the mean.")
        )
    return [*lines, "Grey: a task with itself." + (" Numbers are percent." if tasks <= _MAX_NUMBERS_OF else "")]


def _draw(axes: Axes, values: np.ndarray[Any, Any], number_size: int) -> QuadMesh:
    """Draws one `(T, T)` matrix without its diagonal."""
    axes.set_facecolor(_ITSELF)
    others = np.ma.masked_array(values, np.eye(len(values), dtype=bool))
    return draw_matrix(axes, others, number_size, edges=len(values) <= _MAX_LAYERS_OF)
