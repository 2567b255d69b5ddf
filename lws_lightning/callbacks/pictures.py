"""Pictures of which tasks share which weights. Pure functions, nothing global (no pyplot)."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from lws_lightning.callbacks.drawing import (
    PALE,
    copy_colour,
    copy_letter,
    ink_on,
    literal_text,
    shorten,
    text_width,
    tint,
)

__all__ = ["assignment_figure", "groups_text", "probabilities_figure"]

_MAX_NUMBERS = 400  # a panel with more numbers takes seconds to draw and cannot be read


@literal_text()
def assignment_figure(
    assignment: Tensor,
    layer_names: Sequence[str],
    task_names: Sequence[str],
    weights_per_layer: Sequence[int],
    title: str = "Which tasks share weights",
) -> Figure:
    """Draws which copy each task uses at each layer (paper, first figure).

    A column is a task's network with its input at the bottom; a row is a layer. Same colour and letter in a row
    is the same weights. A copy that only one task uses is pale.

    Args:
        assignment: `(L, T)` int64.
        layer_names: L names, input first.
        task_names: T names.
        weights_per_layer: K_l for each of the L layers.
        title: The first line.

    Returns:
        A figure that belongs to no window and no global state.

    Raises:
        ValueError: If the numbers of names do not fit the assignment.
    """
    rows = _checked_assignment(assignment, layer_names, task_names, weights_per_layer)
    layers, tasks = len(rows), len(task_names)
    names = [shorten(name) for name in task_names]
    used = [Counter(row) for row in rows]
    labels = [shorten(name) for name in layer_names]
    details = [
        f"{len(count)} of {size} {'copy' if size == 1 else 'copies'} used"
        for count, size in zip(used, weights_per_layer, strict=True)
    ]
    longest = max(text_width(name, 9) for name in names)
    cell = min(max(0.34, longest + 0.12), 1.1) if longest <= 1.0 else 0.34
    if tasks <= 8:
        cell = max(cell, 0.6)
    upright = longest > cell - 0.08
    row_height, gap = 0.46, 0.1
    left = 0.25 + max([text_width(text, 10) for text in labels] + [text_width(text, 8) for text in details])
    bottom = 0.35 + (longest if upright else 0.2)
    body = layers * row_height + (layers - 1) * gap
    caption = [
        "Same colour and letter in a row: the same weights.",
        "Pale: a copy that only one task uses.",
        "The input enters at the bottom; output layers, never shared, are not drawn.",
    ]
    # Bold letters are wider.
    widest = max(1.12 * text_width(title, 12), *(text_width(text, 9) for text in caption))
    width = max(left + tasks * cell + 0.25, 0.3 + widest)
    height = bottom + body + 1.05
    start = left + max(0.0, (width - left - 0.25 - tasks * cell) / 2)

    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    axes.text(0.15, height - 0.12, title, size=12, weight="bold", va="top")
    axes.text(0.15, height - 0.4, "\n".join(caption), size=9, va="top", color="#333333", linespacing=1.25)
    letter_size = 11 if cell >= 0.34 and max(map(max, rows)) < 26 else 9
    for layer, row in enumerate(rows):
        low = bottom + layer * (row_height + gap)
        axes.text(start - 0.1, low + row_height * 0.66, labels[layer], size=10, ha="right", va="center")
        axes.text(
            start - 0.1, low + row_height * 0.26, details[layer], size=8, ha="right", va="center", color="#555555"
        )
        boxes = []
        for task, copy in enumerate(row):
            colour = tint(copy_colour(copy), 1.0 if used[layer][copy] > 1 else PALE)
            x = start + task * cell
            boxes.append(Rectangle((x, low), cell, row_height, facecolor=colour, edgecolor="white", linewidth=1.5))
            axes.text(
                x + cell / 2,
                low + row_height / 2,
                copy_letter(copy),
                size=letter_size,
                weight="bold",
                ha="center",
                va="center_baseline",
                color=ink_on(colour),
            )
        axes.add_collection(PatchCollection(boxes, match_original=True))
        axes.add_patch(
            FancyBboxPatch(
                (start, low),
                tasks * cell,
                row_height,
                boxstyle="round,pad=0,rounding_size=0.05",
                fill=False,
                edgecolor="#333333",
                linewidth=1.2,
            )
        )
    for task, name in enumerate(names):
        axes.text(
            start + (task + 0.5) * cell,
            bottom - 0.1,
            name,
            size=9,
            rotation=90 if upright else 0,
            ha="center",
            va="top",
        )
    return figure


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
    _check_names(values.shape[:2], layer_names, task_names, weights_per_layer)
    tasks = len(task_names)
    copies = max(weights_per_layer)
    names = [shorten(name) for name in task_names]
    titles = [shorten(name) for name in layer_names]
    cell = 0.42 if tasks * copies <= 100 else 0.3 if tasks * copies <= _MAX_NUMBERS else 0.21
    label_size = 9 if cell > 0.25 else 8
    labels_width = max(text_width(name, label_size) for name in names) + 0.25
    widths = [
        max(size * cell, text_width(title, 10)) + 0.3 for size, title in zip(weights_per_layer, titles, strict=True)
    ]
    panel_height = tasks * cell + 0.6
    grid = _grid(widths, labels_width, panel_height)
    numbers = tasks * copies <= _MAX_NUMBERS
    subtitle = "Most likely copy outlined." + (" Numbers are percent; below 0.5 left blank." if numbers else "")
    body_width = labels_width + max(sum(widths[layer] for layer in row) for row in grid)
    width = max(body_width + 0.75, text_width(subtitle, 9) + 0.4)
    bar_height = max(tasks * cell, 1.0)
    height = 0.95 + max(len(grid) * panel_height, bar_height + 0.35)

    figure = Figure(figsize=(width, height))
    figure.text(
        0.15 / width, 1 - 0.12 / height, "How likely each task uses each copy", size=12, weight="bold", va="top"
    )
    figure.text(0.15 / width, 1 - 0.4 / height, subtitle, size=9, va="top", color="#333333")
    mesh = None
    for row, members in enumerate(grid):
        x = labels_width
        top = height - 0.95 - row * panel_height
        for layer in members:
            size = weights_per_layer[layer]
            axes = figure.add_axes(
                (x / width, (top - tasks * cell) / height, size * cell / width, tasks * cell / height)
            )
            panel = values[layer, :, :size]
            mesh = _draw_panel(axes, panel, 0 if not numbers else 9 if cell > 0.4 else 7)
            axes.set_title(titles[layer], size=10, loc="left", pad=4)
            if layer == members[0]:
                axes.set_yticks(np.arange(tasks) + 0.5, names, size=label_size)
            else:
                axes.set_yticks([])
            axes.tick_params(length=0)
            x += widths[layer]
    assert mesh is not None
    bar = figure.add_axes(
        ((body_width + 0.05) / width, (height - 0.95 - bar_height) / height, 0.14 / width, bar_height / height)
    )
    figure.colorbar(mesh, cax=bar, ticks=[0, 0.25, 0.5, 0.75, 1]).ax.tick_params(labelsize=8)
    return figure


def groups_text(assignment: Tensor, layer_names: Sequence[str], task_names: Sequence[str]) -> str:
    """Says in Markdown, by layer, which tasks share weights.

    Args:
        assignment: `(L, T)` int64.
        layer_names: L names, input first.
        task_names: T names.

    Returns:
        A heading and a list of groups, the largest first, for each layer; tasks that share with nobody come
        last, in one line.
    """
    lines = []
    for name, row in zip(layer_names, assignment.tolist(), strict=True):
        groups: dict[int, list[str]] = {}
        for task, copy in zip(task_names, row, strict=True):
            groups.setdefault(copy, []).append(_code(task))
        lines += [f"### {_code(name)}", ""]
        shared = {copy: members for copy, members in groups.items() if len(members) > 1}
        for copy, members in sorted(shared.items(), key=lambda group: (-len(group[1]), group[0])):
            lines.append(f"- **{copy_letter(copy)}**, {len(members)} tasks: {', '.join(members)}")
        alone = [f"{members[0]} ({copy_letter(copy)})" for copy, members in groups.items() if len(members) == 1]
        if alone:
            lines.append(f"- not shared: {', '.join(alone)}")
        lines.append("")
    return "\n".join(lines)


def _code(name: str) -> str:
    """Quotes a name as Markdown code, where no character but the backtick means anything."""
    return f"`{name.replace('`', chr(39))}`"


def _grid(widths: Sequence[float], labels_width: float, height: float) -> list[list[int]]:
    """Splits panels into rows: close to 3:2 as a whole, and without a nearly empty last row."""
    panels = len(widths)

    def split(columns: int) -> list[list[int]]:
        return [list(range(first, min(first + columns, panels))) for first in range(0, panels, columns)]

    def badness(columns: int) -> float:
        rows = split(columns)
        width = labels_width + max(sum(widths[panel] for panel in row) for row in rows)
        empty = 1 - panels / (len(rows) * columns)
        return abs(math.log(width / (len(rows) * height) / 1.5)) + 3 * empty

    return split(min(range(1, panels + 1), key=badness))


def _draw_panel(axes: Axes, panel: np.ndarray[Any, Any], number_size: int) -> QuadMesh:
    """Draws one layer's `(T, K_l)` probabilities; `number_size` 0 leaves the numbers out."""
    tasks, copies = panel.shape
    # One mesh with edges; grid lines at minor ticks would be several times slower.
    mesh = axes.pcolormesh(panel, cmap="Blues", vmin=0, vmax=1, edgecolors="#DDDDDD", linewidth=0.5)
    axes.set(xlim=(0, copies), ylim=(tasks, 0))
    axes.set_xticks(np.arange(copies) + 0.5, [copy_letter(copy) for copy in range(copies)], size=8)
    modes = [(int(copy), task) for task, copy in enumerate(panel.argmax(1))]
    squares = [[(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)] for x, y in modes]
    axes.add_collection(PolyCollection(squares, facecolor="none", edgecolor="#D55E00", linewidth=1.4, zorder=3))
    for task, row in enumerate(panel if number_size else ()):
        for copy, value in enumerate(row):
            if value >= 0.005:
                colour = "white" if value > 0.55 else "black"
                axes.text(
                    copy + 0.5,
                    task + 0.5,
                    f"{100 * value:.0f}",
                    size=number_size,
                    ha="center",
                    va="center",
                    color=colour,
                )
    return mesh


def _checked_assignment(
    assignment: Tensor, layer_names: Sequence[str], task_names: Sequence[str], weights_per_layer: Sequence[int]
) -> list[list[int]]:
    _check_names(tuple(assignment.shape), layer_names, task_names, weights_per_layer)
    return [[int(copy) for copy in row] for row in assignment.tolist()]


def _check_names(
    shape: tuple[int, ...], layer_names: Sequence[str], task_names: Sequence[str], weights_per_layer: Sequence[int]
) -> None:
    expected = (len(layer_names), len(task_names))
    if tuple(shape) != expected or len(weights_per_layer) != expected[0] or 0 in expected:
        raise ValueError(
            f"{expected[0]} layer names, {expected[1]} task names and {len(weights_per_layer)} weights_per_layer "
            f"do not fit the shape {tuple(shape)}."
        )
