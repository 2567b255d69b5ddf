"""Figure of a search distribution."""

from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from lws_lightning.drawing.assignment import check_names
from lws_lightning.drawing.matrix import MAX_NUMBERS, draw_panels
from lws_lightning.drawing.style import copy_letter, literal_text, shorten

__all__ = ["probabilities_figure"]


@literal_text()
def probabilities_figure(
    probs: ArrayLike,
    layer_names: Sequence[str],
    task_names: Sequence[str],
    weights_per_layer: Sequence[int],
) -> Figure:
    """Draws the search distribution, one heat map of tasks by copies for each layer.

    The most likely copy of each task is outlined. Percentages are omitted below 0.5 and in large panels.

    Args:
        probs: `(L, T, max K)`, padding beyond K_l is ignored.
        layer_names: L names, input first.
        task_names: T names.
        weights_per_layer: K_l for each of the L layers.

    Raises:
        ValueError: If the numbers of names do not fit the probabilities.
    """
    values = np.asarray(probs, np.float64)
    check_names(values.shape[:2], layer_names, task_names, weights_per_layer)
    cells = len(task_names) * max(weights_per_layer)
    cell, number_size = (0.42, 9) if cells <= 100 else (0.3, 7) if cells <= MAX_NUMBERS else (0.21, 0)
    matrices = [layer[:, :size] for layer, size in zip(values, weights_per_layer, strict=True)]
    sheet, panels = draw_panels(
        [shorten(name) for name in layer_names],
        matrices,
        [shorten(name) for name in task_names],
        cell,
        [number_size] * len(matrices),
        least=0.005,
    )
    for axes, matrix in zip(panels, matrices, strict=True):
        copies = range(matrix.shape[1])
        axes.set_xticks([copy + 0.5 for copy in copies], [copy_letter(copy) for copy in copies], size=8)
        corners = [(int(copy), task) for task, copy in enumerate(matrix.argmax(1))]
        squares = [[(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)] for x, y in corners]
        axes.add_collection(PolyCollection(squares, facecolor="none", edgecolor="#D55E00", linewidth=1.4, zorder=3))
    numbers = " Numbers are percent; below 0.5 left blank." if number_size else ""
    return sheet.finish("How likely each task uses each copy", f"Most likely copy outlined.{numbers}")
