"""Wrongly classified images as a figure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lws_lightning.drawing.style import literal_text, shorten

__all__ = ["WrongImage", "wrong_images_figure"]

_SIDE, _WIDTH, _HEIGHT = 0.8, 1.15, 1.22  # inches: of an image, and of the space that it has with its names
_LEFT, _TOP = 0.15, 0.62


class WrongImage(NamedTuple):
    """A wrongly classified image.

    Attributes:
        image: `(H, W, C)` uint8, C 1 or 3.
        true: Name of its class.
        predicted: Name of the class that it was taken for.
        probability: Which the network gives that class.
    """

    image: NDArray[np.uint8]
    true: str
    predicted: str
    probability: float


@literal_text()
def wrong_images_figure(rows: Sequence[tuple[str, Sequence[WrongImage]]], subtitle: str = "") -> Figure:
    """Draws wrongly classified images, each with its class above what it was taken for.

    Args:
        rows: For each task its name and its images, at least one row and image.
        subtitle: The second line.
    """
    columns = max(len(images) for _, images in rows)
    row_height = _HEIGHT + 0.25
    width, height = max(2 * _LEFT + columns * _WIDTH, 6.2), _TOP + len(rows) * row_height + 0.1
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    axes.text(_LEFT, 0.24, "Wrongly classified images", size=12, weight="bold", va="center")
    axes.text(_LEFT, 0.46, subtitle, size=9, color="#333333", va="center")
    for number, (name, images) in enumerate(rows):
        top = _TOP + number * row_height
        axes.text(_LEFT, top + 0.13, shorten(name, 60), size=9, weight="bold", va="center")
        for column, wrong in enumerate(images):
            left, upper = _LEFT + column * _WIDTH, top + 0.27
            box = (left, left + _SIDE, upper + _SIDE, upper)
            axes.imshow(_rgb(wrong.image), extent=box, interpolation="nearest", aspect="auto")
            axes.text(left, upper + _SIDE + 0.1, shorten(wrong.true, 17), size=7.5, va="center")
            taken = f"→ {shorten(wrong.predicted, 10)} ({100 * wrong.probability:.0f} %)"
            axes.text(left, upper + _SIDE + 0.24, taken, size=7.5, va="center", color="#A33000")
    axes.set(xlim=(0, width), ylim=(height, 0))  # `imshow` moves the limits
    return figure


def _rgb(image: NDArray[np.uint8]) -> NDArray[Any]:
    """Repeats the channel of a grey image; channels beyond the third are left out."""
    return np.repeat(image, 3, axis=2) if image.shape[2] < 3 else image[..., :3]
