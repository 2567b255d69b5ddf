"""Rendering of figures to files and arrays."""

import io
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.image import imsave

__all__ = ["array_png", "picture_array", "picture_png", "picture_svg"]


def picture_png(figure: Figure, dpi: int = 110) -> bytes:
    """Renders a figure as PNG."""
    content = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(content, dpi=dpi, format="png")
    return content.getvalue()


def picture_svg(figure: Figure) -> str:
    """Renders a figure as SVG, deterministically and with text as outlines."""
    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "lws_lightning", "svg.fonttype": "path"}):
        FigureCanvasSVG(figure).print_svg(content, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    return content.getvalue().decode()


def picture_array(figure: Figure, dpi: int = 110) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Renders a figure as `(height, width, 3)` uint8."""
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def array_png(picture: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """Encodes the result of `picture_array` as PNG."""
    content = io.BytesIO()
    imsave(content, picture, format="png")
    return content.getvalue()
