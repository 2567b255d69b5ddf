"""The option `normalization`: mean and standard deviation of each channel."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["read_normalization"]

_IMAGENET = {
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}  # of images in [0, 1], as in torchvision


def read_normalization(
    dataset: str, option: str | Mapping[str, Sequence[float]], channels: int
) -> tuple[list[float], list[float]]:
    """Reads the option `normalization`.

    Args:
        dataset: Name of the data set, for messages.
        option: `none`, `imagenet`, or `{mean: [...], std: [...]}`.
        channels: C.

    Returns:
        C means and C positive standard deviations, of values in [0, 1].

    Raises:
        ValueError: The option has another form, or does not match the channels.
    """
    where = f"{dataset}: normalization"
    if isinstance(option, str):
        if option not in ("none", "imagenet"):
            raise ValueError(f"{where} must be none, imagenet or {{mean: [...], std: [...]}}, got {option!r}.")
        if option == "imagenet" and channels != 3:
            raise ValueError(f"{where}: imagenet is for 3 channels, but channels is {channels}; give a mean and a std.")
        option = _IMAGENET if option == "imagenet" else {"mean": [0.0] * channels, "std": [1.0] * channels}
    if set(option) != {"mean", "std"}:
        raise ValueError(f"{where} must have a mean and a std, got {', '.join(map(str, option)) or 'neither'}.")
    mean, std = (_values(where, name, option[name], channels) for name in ("mean", "std"))
    if min(std) <= 0:
        raise ValueError(f"{where}: std must be positive, got {std}.")
    return mean, std


def _values(where: str, name: str, option: Any, channels: int) -> list[float]:
    values = list(option) if isinstance(option, Sequence) and not isinstance(option, str) else [option]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise ValueError(f"{where}: {name} must be numbers, got {option!r}.")
    if len(values) != channels:
        raise ValueError(f"{where}: {name} must have a value for each of the {channels} channels, got {option!r}.")
    return [float(value) for value in values]
