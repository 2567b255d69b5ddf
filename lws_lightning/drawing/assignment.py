"""Which tasks share which weights, as a figure and as text."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from lws_lightning.drawing.sheet import Sheet, upright_if_crowded
from lws_lightning.drawing.style import PALE, copy_colour, copy_letter, ink_on, literal_text, shorten, tint

__all__ = ["assignment_figure", "check_names", "groups_text"]

_ROW, _GAP = 0.46, 0.1  # height of a layer's row and the gap between rows, in inches
_PITCH = _ROW + _GAP
DECIDED = 0.9
"""A choice of a copy with a smaller probability is drawn as open."""


@literal_text()
def assignment_figure(
    assignment: ArrayLike,
    layer_names: Sequence[str],
    task_names: Sequence[str],
    weights_per_layer: Sequence[int],
    title: str = "Which tasks share weights",
    probabilities: ArrayLike | None = None,
) -> Figure:
    """Draws which copy each task uses at each layer (paper, first figure).

    A column is a task's network with its input at the bottom; a row is a layer. The same colour and letter in a row
    mean the same weights. A copy that only one task uses is pale. Where a search has not decided, the cell fades with
    the probability of its copy, and its letter has a question mark.

    Args:
        assignment: `(L, T)` int64.
        layer_names: L names, input first.
        task_names: T names.
        weights_per_layer: K_l for each of the L layers.
        title: The first line.
        probabilities: `(L, T)` in [0, 1], that of the drawn copy; None: all are decided.

    Raises:
        ValueError: If the numbers of names do not fit the assignment.
    """
    sure = np.ones(np.shape(assignment)) if probabilities is None else np.asarray(probabilities, np.float64)
    copies = np.asarray(assignment)
    check_names(copies.shape, layer_names, task_names, weights_per_layer)
    layers, tasks = copies.shape
    cell = 0.34 if tasks > 8 else 0.6 if tasks > 4 else 0.9
    sheet = Sheet([tasks * cell], [layers * _PITCH - _GAP])
    axes = sheet.axes()
    axes.set(xlim=(0, tasks), ylim=(0, layers * _PITCH - _GAP), frame_on=False, yticks=[])
    letter_size = 11 if int(copies.max()) < 26 else 9
    for layer, row in enumerate(copies.tolist()):
        low, used = layer * _PITCH, Counter(row)
        size = weights_per_layer[layer]
        for text, height, style in (
            (shorten(layer_names[layer]), 0.66, {"size": 10}),
            (f"{len(used)} of {size} {'copy' if size == 1 else 'copies'} used", 0.26, {"size": 8, "color": "#555555"}),
        ):
            place = (0, low + height * _ROW)
            axes.annotate(text, place, (-7, 0), textcoords="offset points", ha="right", va="center", **style)
        boxes = []
        for task, copy in enumerate(row):
            open_choice = sure[layer, task] < DECIDED
            strength = (1.0 if used[copy] > 1 else PALE) * (sure[layer, task] if open_choice else 1.0)
            colour = tint(copy_colour(copy), strength)
            boxes.append(Rectangle((task, low), 1, _ROW, facecolor=colour, edgecolor="white", linewidth=1.5))
            axes.text(
                *(task + 0.5, low + _ROW / 2, f"{copy_letter(copy)}{'?' * bool(open_choice)}"),
                size=letter_size, weight="bold", ha="center", va="center_baseline", color=ink_on(colour),
            ).set_in_layout(False)  # fmt: skip
        axes.add_collection(PatchCollection(boxes, match_original=True))
        axes.add_patch(Rectangle((0, low), tasks, _ROW, fill=False, edgecolor="#333333", linewidth=1.2, clip_on=False))
    axes.set_xticks([task + 0.5 for task in range(tasks)], [shorten(name) for name in task_names], size=9)
    axes.tick_params(length=0)
    upright_if_crowded(axes, cell)
    return sheet.finish(
        title,
        "Same colour and letter in a row: the same weights.",
        "Pale: a copy that only one task uses.",
        f"?: not decided (below {100 * DECIDED:.0f} %), the fainter the less likely." if (sure < DECIDED).any() else "",
        "The input enters at the bottom; output layers, never shared, are not drawn.",
    )


def groups_text(assignment: ArrayLike, layer_names: Sequence[str], task_names: Sequence[str]) -> str:
    """Returns Markdown with a heading and the groups of tasks that share weights for each layer, largest first.

    Tasks that share with no other come last, in one line.

    Args:
        assignment: `(L, T)` int64.
        layer_names: L names, input first.
        task_names: T names.
    """
    lines = []
    for name, row in zip(layer_names, np.asarray(assignment).tolist(), strict=True):
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
    """Quotes a name as Markdown code, in which only backticks are special."""
    return f"`{name.replace('`', chr(39))}`"


def check_names(
    shape: tuple[int, ...], layer_names: Sequence[str], task_names: Sequence[str], weights_per_layer: Sequence[int]
) -> None:
    """Raises ValueError if the names do not fit a shape `(L, T)`."""
    expected = (len(layer_names), len(task_names))
    if shape != expected or len(weights_per_layer) != expected[0] or 0 in expected:
        raise ValueError(
            f"{expected[0]} layer names, {expected[1]} task names and {len(weights_per_layer)} weights_per_layer "
            f"do not fit the shape {shape}."
        )
