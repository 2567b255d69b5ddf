"""Draws curves and group sizes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lws_lightning.drawing import Sheet, inches, ink_on, literal_text, shorten, upright_if_crowded
from lws_lightning.results.curves import Band
from lws_lightning.results.group_sizes import size_bins, sizes_text
from lws_lightning.results.rows import Section

__all__ = [
    "Line",
    "Style",
    "count_along",
    "entropy_figure",
    "error_figure",
    "group_sizes_figure",
    "legend_panel",
    "row_styles",
]

# Okabe and Ito's colour-blind safe colours; dashes and markers distinguish the lines in greyscale.
_KNOWN = {
    "full": ("#D55E00", (0, (5, 2))),
    "none": ("#009E73", (0, (6, 2, 1, 2))),
    "prior": ("#CC79A7", (0, (1, 1.2))),
    "learned": ("#0072B2", (0, ())),
}
_OTHERS = ("#E69F00", "#56B4E9", "#000000", "#882255", "#999933", "#661100")
_MARKERS = ("", "s", "^", "D", "v", "P", "X", "<", ">", "o")
_WIDTH, _HEIGHT = 4.4, 2.6  # inches of the axes: on a phone, 9 points are still 8 pixels high
_SLOT = 0.75  # inches of a bar and the gap beside it
_GREY = "#555555"


@dataclass(frozen=True)
class Style:
    """The style of a row's lines, the same in all figures of a report."""

    colour: str
    dashes: tuple[int, tuple[float, ...]]
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Options of a matplotlib line."""
        return {
            "color": self.colour,
            "linestyle": self.dashes,
            "marker": self.marker,
            "linewidth": 1.8,
            "markersize": 5,
        }


@dataclass(frozen=True)
class Line:
    """One row in a figure.

    Attributes:
        label: For the legend.
        style: Its style.
        band: Mean and spread.
        runs: The values of each run by step, drawn as thin lines; may be empty.
    """

    label: str
    style: Style
    band: Band
    runs: Sequence[Mapping[int, float]] = ()


def row_styles(sections: Sequence[Section]) -> dict[str, Style]:
    """Returns a style by row letter: one colour and dash for each method, one marker for each of its variants."""
    methods = {row.method for section in sections for row in section.rows}
    others = sorted(methods - set(_KNOWN))
    method_styles = dict(_KNOWN) | {m: (_OTHERS[i % len(_OTHERS)], (0, (3, 1 + i % 3))) for i, m in enumerate(others)}
    chosen = {}
    for section in sections:
        seen: dict[tuple[str, str], int] = {}
        for row in section.rows:
            number = seen.setdefault((row.network, row.method), 0)
            seen[row.network, row.method] += 1
            colour, dashes = method_styles[row.method]
            chosen[row.letter] = Style(colour, dashes, _MARKERS[number % len(_MARKERS)])
    return chosen


@literal_text()
def error_figure(lines: Sequence[Line], title: str, subtitle: str) -> tuple[Figure, bool]:
    """Draws the error in percent during training, a line for each row.

    Returns:
        The figure, and whether values lie above the axis: its range ignores the first tenth of the training, which
        would flatten the rest.
    """
    sheet, axes = _panel(lines, "error over all images (%)")
    last = max(line.band.steps[-1] for line in lines)
    ends = [
        value
        for line in lines
        for step, low, high in zip(line.band.steps, line.band.low, line.band.high, strict=True)
        if step >= last / 10
        for value in (low, high)
        if math.isfinite(value)
    ]
    for line in lines:
        _draw(axes, line)
    cut = False
    if ends:
        margin = 0.06 * max(max(ends) - min(ends), 0.5)
        axes.set_ylim(max(0.0, min(ends) - margin), max(ends) + margin)
        everything = [value for line in lines for value in (*line.band.high, *line.band.mean)]
        cut = any(value > max(ends) + margin for value in everything if math.isfinite(value))
    return sheet.finish(title, subtitle), cut


@literal_text()
def entropy_figure(lines: Sequence[Line], uniform: Mapping[str, float], title: str, subtitle: str) -> Figure:
    """Draws the mean entropy of the search distributions during training.

    Args:
        lines: One for each learned row, with its runs; entropies in nats.
        uniform: By name, the entropy of a uniform distribution in nats, drawn as a horizontal line.
        title: The title.
        subtitle: The line below it.
    """
    sheet, axes = _panel(lines, "mean entropy (nats)")
    top = max([*uniform.values(), *(v for line in lines for v in line.band.high if math.isfinite(v)), 0.1])
    axes.set_ylim(0, 1.14 * top)
    for line in lines:
        for run in line.runs:
            axes.plot(list(run), list(run.values()), color=line.style.colour, linewidth=0.7, alpha=0.45)
        _draw(axes, line, band=False)
    labelled: list[float] = []
    for name, level in sorted(uniform.items(), key=lambda item: -item[1]):
        axes.axhline(level, color=_GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
        if all(abs(level - other) > 0.08 * top for other in labelled):
            labelled.append(level)
            text = f"{name}: {level:.2f}"
            axes.annotate(
                text, (1, level), (-2, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
                size=8, ha="right", va="bottom", color=_GREY,
            )  # fmt: skip
    return sheet.finish(title, subtitle)


@literal_text()
def group_sizes_figure(
    shares: Sequence[Sequence[float]], layer_names: Sequence[str], title: str, subtitle: str
) -> Figure:
    """Draws the sizes of the groups of tasks that share weights, a stacked bar for each layer, input first.

    `shares` is the result of `group_shares`, percent of shape `(L, T)`.
    """
    bins = size_bins(len(shares[0]))
    sheet = Sheet([len(layer_names) * _SLOT], [_HEIGHT])
    axes = sheet.axes()
    colours = [mpl.colormaps["Blues"](0.12 + 0.83 * i / max(1, len(bins) - 1)) for i in range(len(bins))]
    base = [0.0] * len(shares)
    for (first, last), colour in zip(bins, colours, strict=True):
        heights = [sum(layer[first - 1 : last]) for layer in shares]
        axes.bar(range(len(shares)), heights, 0.78, bottom=base, color=colour, edgecolor="white", linewidth=0.8)
        for x, (low, height) in enumerate(zip(base, heights, strict=True)):
            if height >= 6:
                ink = ink_on(to_rgb(colour))
                axes.text(x, low + height / 2, f"{height:.0f}", size=8, ha="center", va="center", color=ink)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    axes.set_xlim(-0.5, len(shares) - 0.5)
    axes.set_ylim(0, 100)
    axes.set_xticks(range(len(shares)), [shorten(name, 20) for name in layer_names])
    axes.set_xlabel("layer, input first", size=9)
    axes.set_ylabel("tasks (%)", size=9)
    _style(axes)
    axes.grid(visible=False)
    upright_if_crowded(axes, _SLOT)
    axes.legend(
        [Patch(color=colour) for colour in colours[::-1]], [sizes_text(b, len(shares[0])) for b in bins[::-1]],
        title="share in a group of", loc="upper left", bbox_to_anchor=(1.02, 1.02), fontsize=9, title_fontsize=9,
        frameon=False, alignment="left", borderaxespad=0,
    )  # fmt: skip
    return sheet.finish(title, subtitle)


def legend_panel(labels: Sequence[str], handles: Sequence[Mapping[str, Any]], label: str) -> tuple[Sheet, Axes]:
    """Creates axes with a legend below them.

    `handles` are options of `Line2D` for each of the labels, `label` is the label of the vertical axis.
    """
    sheet = Sheet([_WIDTH], [_HEIGHT])
    axes = sheet.axes()
    axes.set_ylabel(label, size=9)
    _style(axes)
    lines = [Line2D([], [], **options) for options in handles]

    def legend(columns: int) -> Legend:
        return sheet.figure.legend(
            lines, [shorten(text, 70) for text in labels], loc="outside lower center", ncols=columns, fontsize=9,
            frameon=False, handlelength=2.6, columnspacing=1.2, labelspacing=0.3, borderpad=0, borderaxespad=0.4,
        )  # fmt: skip

    single_column = legend(1)
    columns = int(_WIDTH / inches(single_column)[0])
    if columns > 1:
        single_column.remove()
        legend(min(columns, len(labels)))
    return sheet, axes


def _panel(lines: Sequence[Line], label: str) -> tuple[Sheet, Axes]:
    """Creates axes over training steps with a legend below them."""
    sheet, axes = legend_panel([line.label for line in lines], [line.style.line for line in lines], label)
    count_along(axes, "training step")
    last = max(line.band.steps[-1] for line in lines)
    axes.set_xlim(0, 1.01 * max(last, 1))
    return sheet, axes


def count_along(axes: Axes, label: str) -> None:
    """Labels the horizontal axis, with a few round integers as ticks."""
    axes.set_xlabel(label, size=9)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _draw(axes: Axes, line: Line, band: bool = True) -> None:
    steps = line.band.steps
    every = max(1, len(steps) // 8)
    if band:
        axes.fill_between(steps, line.band.low, line.band.high, color=line.style.colour, alpha=0.16, linewidth=0)
    marker = "." if len(steps) == 1 and not line.style.marker else line.style.marker
    axes.plot(steps, line.band.mean, markevery=every, **(line.style.line | {"marker": marker}))


def _style(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
