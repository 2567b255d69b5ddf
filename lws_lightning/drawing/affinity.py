"""Task affinity: how likely two tasks share a layer, as numbers and as a figure."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from lws_lightning.drawing.matrix import MAX_NUMBERS, draw_panels, name_size
from lws_lightning.drawing.sheet import upright_if_crowded
from lws_lightning.drawing.style import literal_text, shorten

__all__ = ["affinity_figure", "affinity_of_assignment", "affinity_of_probabilities"]

_MAX_TASKS_WITH_LAYERS = 24  # with more tasks the panels of layers are illegible
_MAX_TASKS_WITH_NUMBERS = 8


def affinity_of_probabilities(probs: ArrayLike) -> NDArray[np.float64]:
    """Returns the probability that two tasks use the same copy in an assignment drawn from the search distribution.

    The choices of two tasks are independent, so it is the sum over copies of the product of both probabilities. The
    diagonal is set to 1, since a task uses the same copy as itself.

    Args:
        probs: `(L, T, max K)`; each `probs[l, t]` sums to 1, padding beyond K_l is 0.

    Returns:
        `(L, T, T)` float64, symmetric, in [0, 1] up to the rounding of `probs`.
    """
    values = np.asarray(probs, np.float64)
    affinity: NDArray[np.float64] = np.einsum("ltk,luk->ltu", values, values)
    tasks = np.arange(values.shape[1])
    affinity[:, tasks, tasks] = 1.0
    return affinity


def affinity_of_assignment(assignment: ArrayLike) -> NDArray[np.float64]:
    """Returns which tasks use the same copy: `(L, T, T)` float64, 1 or 0, for an assignment `(L, T)` int64."""
    copies = np.asarray(assignment)
    same: NDArray[np.float64] = (copies[:, :, None] == copies[:, None, :]).astype(np.float64)
    return same


@literal_text()
def affinity_figure(
    affinity: ArrayLike,
    layer_names: Sequence[str],
    task_names: Sequence[str],
    title: str = "How likely two tasks share a layer",
    subtitle: str = "",
) -> Figure:
    """Draws the affinity of tasks: the unweighted mean over layers, followed by each layer.

    All panels have the same order of tasks. The diagonal is grey. Up to 8 tasks the cells show percentages, those of
    layers only if there are not too many. With more than 24 tasks only the mean is drawn, and with very many tasks only
    some names.

    Args:
        affinity: `(L, T, T)` in [0, 1].
        layer_names: L names, input first.
        task_names: T names in the order of the rows, at least two.
        title: The first line.
        subtitle: The second line, may be empty.

    Raises:
        ValueError: If the numbers of names do not fit the affinity, or there are fewer than two tasks.
    """
    values = np.asarray(affinity, np.float64)
    layers, tasks = len(layer_names), len(task_names)
    if values.shape != (layers, tasks, tasks) or layers < 1 or tasks < 2:
        raise ValueError(
            f"{layers} layer names and {tasks} task names do not fit an affinity of the shape {values.shape}; "
            "at least two tasks are needed."
        )
    with_layers = layers > 1 and tasks <= _MAX_TASKS_WITH_LAYERS
    matrices = [values.mean(0), *values] if with_layers else [values.mean(0)]
    titles = ["mean over layers"] * (layers > 1) + [shorten(name, 20) for name in layer_names]
    cell = _cell(tasks)
    number_size = 8 if tasks <= _MAX_TASKS_WITH_NUMBERS else 0
    layer_number_size = number_size if layers * tasks * (tasks - 1) <= MAX_NUMBERS else 0
    shown = range(0, tasks, math.ceil(0.13 / cell))
    names = [shorten(task_names[task]) for task in shown]
    sheet, panels = draw_panels(
        titles[: len(matrices)],
        [np.ma.masked_array(matrix, np.eye(tasks, dtype=bool)) for matrix in matrices],
        names,
        cell,
        [number_size, *[layer_number_size] * (len(matrices) - 1)],
    )
    specs = [(axes, axes.get_subplotspec()) for axes in panels]
    corner = next(axes for axes, spec in specs if spec and spec.is_first_col() and spec.is_last_row())
    corner.set_xticks([task + 0.5 for task in shown], names, size=name_size(cell))
    upright_if_crowded(corner, cell)
    return sheet.finish(title, subtitle, *_explanation(layers, tasks, with_layers))


def _cell(tasks: int) -> float:
    """Returns the side of a cell in inches."""
    if tasks <= _MAX_TASKS_WITH_NUMBERS:
        return 0.5 if tasks <= 4 else 0.42
    if tasks <= _MAX_TASKS_WITH_LAYERS:
        return 0.2
    return 10 / tasks if tasks > 70 else max(0.14, min(0.2, 10 / tasks))


def _explanation(layers: int, tasks: int, panels: bool) -> list[str]:
    lines = []
    if layers > 1:
        lines.append(
            "Every layer counts alike in the mean."
            + (" Layers: tasks in the same order, input first." if panels else " With so many tasks only the mean.")
        )
    return [*lines, "Grey: a task with itself." + (" Numbers are percent." if tasks <= _MAX_TASKS_WITH_NUMBERS else "")]
