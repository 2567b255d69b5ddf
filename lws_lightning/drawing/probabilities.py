"""Picture of a search distribution."""

from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from torch import Tensor

from lws_lightning.drawing.assignment import check_names
from lws_lightning.drawing.matrix import MAX_NUMBERS, draw_colour_bar, draw_matrix
from lws_lightning.drawing.sheet import Sheet, grid_columns, text_width
from lws_lightning.drawing.style import copy_letter, literal_text, shorten

__all__ = ["probabilities_figure"]


@literal_text()
def probabilities_figure(
    probs: Tensor,
    layer_names: Sequence[str],
    task_names: Sequence[str],
    weights_per_layer: Sequence[int],
) -> Figure:
    """Draws the search distribution, one heat map of tasks by copies for each layer.

    The most likely copy of each task is outlined. Numbers are percent, left out below 0.5 and where a panel is
    too large for them.

    Args:
        probs: `(L, T, max K)`, padding beyond K_l is ignored.
        layer_names: L names, input first.
        task_names: T names.
        weights_per_layer: K_l for each of the L layers.

    Returns:
        A figure that belongs to no window and no global state.

    Raises:
        ValueError: If the numbers of names do not fit the probabilities.
    """
    values = probs.detach().double().cpu().numpy()
    check_names(values.shape[:2], layer_names, task_names, weights_per_layer)
    layers, tasks, cells = len(layer_names), len(task_names), len(task_names) * max(weights_per_layer)
    cell, number_size = (0.42, 9) if cells <= 100 else (0.3, 7) if cells <= MAX_NUMBERS else (0.21, 0)
    columns = grid_columns(layers, cell * max(weights_per_layer) + 0.3, cell * tasks + 0.6)
    rows = [range(first, min(first + columns, layers)) for first in range(0, layers, columns)]
    titles = [shorten(name) for name in layer_names]
    panels = [max(size * cell, text_width(title, 10)) for size, title in zip(weights_per_layer, titles, strict=True)]
    widths = [max(panels[column::columns]) for column in range(columns)]

    # The bar of colours needs an inch.
    sheet = Sheet([*widths, 0.14], [max(cell * tasks, 1.0 / len(rows))] * len(rows))
    for row, members in enumerate(rows):
        for layer in members:
            axes = sheet.axes(row, layer - members.start, square=True)
            panel = values[layer, :, : weights_per_layer[layer]]
            mesh = draw_matrix(axes, panel, number_size, least=0.005)
            axes.set_title(titles[layer], size=10, loc="left", pad=4)
            axes.set_xticks(np.arange(panel.shape[1]) + 0.5, map(copy_letter, range(panel.shape[1])), size=8)
            if layer == members.start:
                names = [shorten(name) for name in task_names]
                axes.set_yticks(np.arange(tasks) + 0.5, names, size=9 if number_size else 8)
            modes = [(int(copy), task) for task, copy in enumerate(panel.argmax(1))]
            squares = [[(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)] for x, y in modes]
            axes.add_collection(PolyCollection(squares, facecolor="none", edgecolor="#D55E00", linewidth=1.4, zorder=3))
    draw_colour_bar(sheet.axes(slice(None), columns), mesh)
    numbers = " Numbers are percent; below 0.5 left blank." if number_size else ""
    return sheet.finish("How likely each task uses each copy", f"Most likely copy outlined.{numbers}")
