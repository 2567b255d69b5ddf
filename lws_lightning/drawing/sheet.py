"""A figure that is as large as its axes and texts need."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

__all__ = ["Sheet", "inches", "text_width", "upright_if_crowded"]

_MARGIN = 0.15  # inches around title and subtitle
_TEXTS = 8.0  # inches, enough for all texts beside the axes while these are measured


class Sheet:
    """A grid of axes with given sizes; matplotlib's constrained layout places the texts around them.

    The layout divides a given figure among axes and texts. Here the axes' sizes are given, since cells and letters in
    them have to be legible: `finish` measures what the texts take and makes the figure as large as both.

    Args:
        widths: Inches of each column of axes, without labels and titles.
        heights: Inches of each row.
    """

    def __init__(self, widths: Sequence[float], heights: Sequence[float]) -> None:
        self._widths, self._heights = list(widths), list(heights)
        self._square: list[Axes] = []
        self._engine = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0, hspace=0)
        size = sum(widths) + _TEXTS, sum(heights) + _TEXTS
        self.figure = Figure(figsize=size, layout=self._engine)
        self._grid = self.figure.add_gridspec(
            len(heights), len(widths), width_ratios=self._widths, height_ratios=self._heights
        )

    def axes(self, row: int | slice = 0, column: int = 0, square: bool = False) -> Axes:
        """Makes axes.

        Args:
            row: Of the grid, or a slice of all rows.
            column: Of the grid.
            square: Whether a unit is as long down as across; the axes may then be smaller than their place.
        """
        axes = self.figure.add_subplot(self._grid[row, column])
        if square:
            self._square.append(axes)
        return axes

    def finish(self, title: str, *lines: str) -> Figure:
        """Writes the title above all axes and sizes the figure; a legend of the figure has its place below them.

        Args:
            title: The first line, bold.
            lines: Lines below it; empty ones are left out.

        Returns:
            The figure; its layout is final.
        """
        figure = self.figure
        texts = [
            figure.text(0, 0, title, size=12, weight="bold", va="top"),
            figure.text(0, 0, "\n".join(filter(None, lines)), size=9, va="top", color="#333333", linespacing=1.25),
        ]
        sizes = [inches(text) for text in texts]
        head = sum(height for _, height in sizes) + 2 * _MARGIN
        self._engine.execute(figure)
        body = max(self._around(0, self._widths), *(2 * _MARGIN + inches(legend)[0] for legend in figure.legends), 0.0)
        width = max(body, *(2 * _MARGIN + across for across, _ in sizes))
        height = head + self._around(1, self._heights)
        figure.set_size_inches(width, height)
        top = 0.8 * _MARGIN
        for text, (_, down) in zip(texts, sizes, strict=True):
            text.set_position((_MARGIN / width, 1 - top / height))
            top += down + 0.5 * _MARGIN
        self._engine.set(rect=(0, 0, body / width, 1 - head / height))
        self._engine.execute(figure)
        figure.set_layout_engine("none")
        for axes in self._square:  # not before: the layout would take the place that is left for its own
            axes.set_aspect("equal", anchor="NW")
        return figure

    def _around(self, axis: int, wanted: Sequence[float]) -> float:
        """Returns the inches of axes of the wanted sizes and all that is around them, across (0) or down (1)."""
        whole = float(self.figure.get_size_inches()[axis])
        specs = [(axes, axes.get_subplotspec()) for axes in self.figure.axes]
        # The layout divides what the texts leave in proportion to the wanted sizes.
        axes, place = next(
            (axes, span.start)
            for axes, spec in specs
            if spec is not None and len(span := (spec.colspan, spec.rowspan)[axis]) == 1
        )
        given = whole * float(axes.get_position(original=True).size[axis]) / wanted[place]
        return whole + (1 - given) * sum(wanted)


def inches(artist: Artist) -> tuple[float, float]:
    """Returns width and height of what an artist draws."""
    figure = artist.get_figure()
    assert figure is not None
    box = artist.get_window_extent()
    return box.width / figure.dpi, box.height / figure.dpi


def text_width(text: str, size: float) -> float:
    """Returns the inches of a line of text; a layout does not count the width of titles."""
    return inches(Figure().text(0, 0, text, size=size))[0]


def upright_if_crowded(axes: Axes, width: float) -> None:
    """Turns the labels of the horizontal axis where one is wider than its place in inches."""
    labels = axes.get_xticklabels()
    if any(inches(label)[0] > width - 0.08 for label in labels):
        axes.tick_params(axis="x", labelrotation=90)
