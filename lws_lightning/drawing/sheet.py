"""A figure that is sized to fit its axes and texts."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

__all__ = ["Sheet", "inches", "text_width", "upright_if_crowded"]

_MARGIN = 0.15  # inches around title and subtitle
_SPACE_FOR_TEXTS = 8.0  # inches, enough for all texts around the axes while they are measured


class Sheet:
    """A grid of axes of given sizes; matplotlib's constrained layout places the texts around them.

    The layout divides a figure of given size among axes and texts. Here the axes have given sizes, so that their cells
    and letters are legible: `finish` measures the texts and sizes the figure to fit both.

    Args:
        widths: Width of each column of axes in inches, without labels and titles.
        heights: Height of each row in inches.
    """

    def __init__(self, widths: Sequence[float], heights: Sequence[float]) -> None:
        self._widths, self._heights = list(widths), list(heights)
        self._square: list[Axes] = []
        self._engine = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0, hspace=0)
        size = sum(widths) + _SPACE_FOR_TEXTS, sum(heights) + _SPACE_FOR_TEXTS
        self.figure = Figure(figsize=size, layout=self._engine)
        self._grid = self.figure.add_gridspec(
            len(heights), len(widths), width_ratios=self._widths, height_ratios=self._heights
        )

    def axes(self, row: int | slice = 0, column: int = 0, square: bool = False) -> Axes:
        """Creates axes.

        Args:
            row: Row of the grid, or a slice of rows.
            column: Column of the grid.
            square: Whether the aspect ratio of data units is 1; the axes may then be smaller than their grid cell.
        """
        axes = self.figure.add_subplot(self._grid[row, column])
        if square:
            self._square.append(axes)
        return axes

    def finish(self, title: str, *lines: str) -> Figure:
        """Writes the title above all axes, sizes the figure and fixes its layout; a figure legend is below the axes.

        Args:
            title: The first line, bold.
            lines: Lines below it; empty ones are omitted.
        """
        figure = self.figure
        texts = [
            figure.text(0, 0, title, size=12, weight="bold", va="top"),
            figure.text(0, 0, "\n".join(filter(None, lines)), size=9, va="top", color="#333333", linespacing=1.25),
        ]
        sizes = [inches(text) for text in texts]
        head = sum(height for _, height in sizes) + 2 * _MARGIN
        self._engine.execute(figure)
        legends = [2 * _MARGIN + inches(legend)[0] for legend in figure.legends]
        body = max(self._size_with_texts(0, self._widths), *legends, 0.0)
        width = max(body, *(2 * _MARGIN + text_width for text_width, _ in sizes))
        height = head + self._size_with_texts(1, self._heights)
        figure.set_size_inches(width, height)
        top = 0.8 * _MARGIN
        for text, (_, text_height) in zip(texts, sizes, strict=True):
            text.set_position((_MARGIN / width, 1 - top / height))
            top += text_height + 0.5 * _MARGIN
        self._engine.set(rect=(0, 0, body / width, 1 - head / height))
        self._engine.execute(figure)
        figure.set_layout_engine("none")
        for axes in self._square:  # not earlier: the layout would use the remaining space
            axes.set_aspect("equal", anchor="NW")
        return figure

    def _size_with_texts(self, axis: int, sizes: Sequence[float]) -> float:
        """Returns the width (axis 0) or height (1) in inches of axes of the given sizes with the texts around them."""
        whole = float(self.figure.get_size_inches()[axis])
        specs = [(axes, axes.get_subplotspec()) for axes in self.figure.axes]
        # The layout divides the space that the texts leave in proportion to the given sizes.
        axes, index = next(
            (axes, span.start)
            for axes, spec in specs
            if spec is not None and len(span := (spec.colspan, spec.rowspan)[axis]) == 1
        )
        scale = whole * float(axes.get_position(original=True).size[axis]) / sizes[index]
        return whole + (1 - scale) * sum(sizes)


def inches(artist: Artist) -> tuple[float, float]:
    """Returns the width and height of an artist."""
    figure = artist.get_figure()
    assert figure is not None
    box = artist.get_window_extent()
    return box.width / figure.dpi, box.height / figure.dpi


def text_width(text: str, size: float) -> float:
    """Returns the width of a line of text in inches; the layout ignores the width of titles."""
    return inches(Figure().text(0, 0, text, size=size))[0]


def upright_if_crowded(axes: Axes, width: float) -> None:
    """Rotates the labels of the horizontal axis if one is wider than `width` inches."""
    labels = axes.get_xticklabels()
    if any(inches(label)[0] > width - 0.08 for label in labels):
        axes.tick_params(axis="x", labelrotation=90)
