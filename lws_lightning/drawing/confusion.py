"""The confusion matrix of a task as a figure."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from lws_lightning.drawing.matrix import MAX_NUMBERS, draw_panels, name_size
from lws_lightning.drawing.sheet import upright_if_crowded
from lws_lightning.drawing.style import literal_text, shorten

__all__ = ["confusion_figure"]


@literal_text()
def confusion_figure(counts: ArrayLike, images: ArrayLike, names: Sequence[str], title: str, *lines: str) -> Figure:
    """Draws which classes of a task are taken for which, as percentages of the images of each true class.

    Up to 20 classes the cells show the percentages. Classes without images are grey.

    Args:
        counts: `(classes, classes)`, true classes in rows.
        images: `(classes,)`, of each true class; more than the sum of its row if predicted classes are left out.
        names: Of the classes.
        title: The first line.
        lines: Lines below it.
    """
    values, totals = np.asarray(counts, np.float64), np.asarray(images, np.float64)[:, None]
    shares = np.ma.masked_array(values / np.maximum(totals, 1), np.broadcast_to(totals == 0, values.shape))
    shown = [shorten(name, 20) for name in names]
    cell = 0.42 if len(shown) <= 12 else 0.26
    number_size = (8 if cell > 0.3 else 6) if values.size <= MAX_NUMBERS else 0
    sheet, (axes,) = draw_panels([""], [shares], shown, cell, [number_size], least=0.005)
    axes.set_xticks([place + 0.5 for place in range(len(shown))], shown, size=name_size(cell))
    upright_if_crowded(axes, cell)
    axes.set_xlabel("taken for", size=9)
    axes.set_ylabel("true class", size=9)
    return sheet.finish(title, *lines)
