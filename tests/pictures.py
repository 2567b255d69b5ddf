"""Callbacks draw pictures of a kind once and then show them again: drawing took half of the time of all tests."""

import numpy as np
import torch

from lws_lightning.callbacks import error_monitor, sharing_monitor

_DRAWN, _RENDERED = {}, {}


def reuse_pictures():
    """Lets the callbacks of this process draw anew only what differs in more than values.

    Names, layers, copies and numbers of tasks and classes make another picture, which is really drawn. Probabilities,
    assignments and counts do not; `tests/drawing` and `tests/results` draw those.
    """
    for name in ("assignment_figure", "probabilities_figure", "affinity_figure"):
        _replace(sharing_monitor, name, _reused(getattr(sharing_monitor, name), _without_values))
    _replace(error_monitor, "confusion_figure", _reused(error_monitor.confusion_figure, _of_confusions))
    _replace(error_monitor, "wrong_images_figure", _reused(error_monitor.wrong_images_figure, _of_wrong_images))
    array = _rendered_once(sharing_monitor.picture_array)
    for module in (sharing_monitor, error_monitor):
        _replace(module, "picture_array", array)


def forget_pictures():
    """Lets the next picture of every kind be drawn anew."""
    _DRAWN.clear()
    _RENDERED.clear()


def _replace(module, name, function):
    assert hasattr(module, name)
    setattr(module, name, function)


def _reused(figure, kind):
    def reused(*arguments, **options):
        key = figure, kind(*arguments, **options)
        if key not in _DRAWN:
            _DRAWN[key] = figure(*arguments, **options)
        return _DRAWN[key]

    return reused


def _rendered_once(render):
    def rendered(figure):
        key = render, id(figure)  # of a figure that is kept
        if key not in _RENDERED:
            _RENDERED[key] = render(figure)
        return _RENDERED[key]

    return rendered


def _without_values(*arguments, **options):
    return tuple(map(_kind, arguments)), tuple((name, _kind(value)) for name, value in sorted(options.items()))


def _kind(value):
    if isinstance(value, torch.Tensor | np.ndarray):
        return tuple(value.shape), value.dtype
    if isinstance(value, list | tuple):
        return tuple(map(_kind, value))
    return value if value is None or isinstance(value, str | int) else type(value)


def _of_confusions(matrix, images, names, title, accuracy, subtitle):
    return len(matrix), tuple(names), title, subtitle


def _of_wrong_images(rows, subtitle):
    return tuple((name, len(images), images[0].image.shape) for name, images in rows), subtitle
