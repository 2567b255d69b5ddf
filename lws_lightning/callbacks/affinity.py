"""Task affinity: how likely two tasks share a layer, as numbers and as a picture. No pyplot, nothing global."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from torch import Tensor

from lws_lightning.callbacks.drawing import literal_text, shorten, text_width

__all__ = ["affinity_figure", "affinity_of_assignment", "affinity_of_probabilities"]

_MAX_LAYERS_OF = 24  # with more tasks the panel of a layer cannot be read
_MAX_NUMBERS_OF = 8
_MAX_NUMBERS = 400  # more take seconds to draw
_OTHERS = 0.3  # inches between panels
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
    names = [shorten(name) for name in task_names]
    titles = [shorten(name, 20) for name in layer_names] if layers > 1 and tasks <= _MAX_LAYERS_OF else []
    cell, size = _cell(tasks)
    side = tasks * cell
    small = max(tasks * (min(0.75 * cell, 0.42) if tasks <= _MAX_NUMBERS_OF else 0.5 * cell), 1.2)
    number_size = 8 if tasks <= _MAX_NUMBERS_OF else 0
    many = layers * tasks * (tasks - 1) > _MAX_NUMBERS
    longest = max(text_width(name, size) for name in names)
    upright = longest > cell - 0.08
    left, under = longest + 0.25, (longest if upright else 0.15) + 0.2
    panel = max(small, max((text_width(text, 9) for text in titles), default=0.0)) + _OTHERS
    columns = _columns(len(titles), left + side, side + under, panel, small + 0.4)
    rows = math.ceil(len(titles) / columns) if titles else 0
    lines = [subtitle] * bool(subtitle) + _explained(layers, tasks, bool(titles))
    head = 0.42 + 0.16 * len(lines) + 0.42
    body_width = left + side + 0.25 + columns * panel * bool(titles)
    body = max(side + under, rows * (small + 0.4))
    widest = max(1.12 * text_width(title, 12), *(text_width(line, 9) for line in lines))
    width, height = max(body_width + 0.7, widest + 0.35), head + body + 0.1

    figure = Figure(figsize=(width, height))
    figure.text(0.15 / width, 1 - 0.12 / height, title, size=12, weight="bold", va="top")
    figure.text(
        *(0.15 / width, 1 - 0.4 / height, "\n".join(lines)),
        size=9, va="top", color="#333333", linespacing=1.25,
    )  # fmt: skip

    def axes_at(x: float, top: float, length: float) -> Axes:
        return figure.add_axes((x / width, (height - top - length) / height, length / width, length / height))

    axes = axes_at(left, head, side)
    mesh = _draw(axes, values.mean(0), number_size)
    axes.set_title(shorten(layer_names[0]) if layers == 1 else "mean over layers", size=10, loc="left", pad=4)
    shown = range(0, tasks, math.ceil(0.13 / cell))
    ticks, labels = [task + 0.5 for task in shown], [names[task] for task in shown]
    axes.set_yticks(ticks, labels, size=size)
    axes.set_xticks(ticks, labels, size=size, rotation=90 if upright else 0)
    for layer, text in enumerate(titles):
        x = left + side + 0.25 + layer % columns * panel
        axes = axes_at(x, head + layer // columns * (small + 0.4), small)
        _draw(axes, values[layer], 0 if many else number_size)
        axes.set_title(text, size=9, loc="left", pad=4)
    length = max(side, 1.2)
    bar = figure.add_axes((body_width / width, (height - head - length) / height, 0.14 / width, length / height))
    figure.colorbar(mesh, cax=bar, ticks=[0, 0.25, 0.5, 0.75, 1]).ax.tick_params(labelsize=8)
    return figure


def _cell(tasks: int) -> tuple[float, int]:
    """Returns the side of a cell of the mean in inches, and the size of the names in points."""
    if tasks <= 4:
        return 0.6, 9
    if tasks <= _MAX_NUMBERS_OF:
        return 0.45, 9
    return (0.24, 8) if tasks <= _MAX_LAYERS_OF else (max(0.14, min(0.2, 10 / tasks)) if tasks <= 70 else 10 / tasks, 7)


def _columns(panels: int, width: float, height: float, panel_width: float, panel_height: float) -> int:
    """Arranges the layers beside the mean so that the whole is close to 16:10, without a nearly empty last row."""

    def badness(columns: int) -> float:
        rows = math.ceil(panels / columns)
        across, down = width + columns * panel_width + 0.7, max(height, rows * panel_height) + 1
        return abs(math.log(across / down / 1.6)) + (1 - panels / (rows * columns))

    return min(range(1, panels + 1), key=badness, default=1)


def _explained(layers: int, tasks: int, panels: bool) -> list[str]:
    lines = []
    if layers > 1:
        lines.append(
            "Every layer counts alike in the mean."
            + (" Layers: tasks in the same order, input first." if panels else " With so many tasks only the mean.")
        )
    return [*lines, "Grey: a task with itself." + (" Numbers are percent." if tasks <= _MAX_NUMBERS_OF else "")]


def _draw(axes: Axes, values: np.ndarray[Any, Any], number_size: int) -> QuadMesh:
    """Draws one `(T, T)` matrix; `number_size` 0 leaves the numbers out."""
    tasks = len(values)
    others = np.ma.masked_array(values, np.eye(tasks, dtype=bool))
    axes.set_facecolor(_ITSELF)
    edges = "#DDDDDD" if tasks <= _MAX_LAYERS_OF else "none"
    mesh = axes.pcolormesh(others, cmap="Blues", vmin=0, vmax=1, edgecolors=edges, linewidth=0.5)
    axes.set(xlim=(0, tasks), ylim=(tasks, 0), xticks=[], yticks=[])
    axes.tick_params(length=0)
    for row, column in np.ndindex(tasks, tasks) if number_size else ():
        if row != column:
            value = values[row, column]
            axes.text(
                *(column + 0.5, row + 0.5, f"{100 * value:.0f}"),
                size=number_size, ha="center", va="center", color="white" if value > 0.55 else "black",
            )  # fmt: skip
    return mesh
