"""Brings the values of an image's channels to a common scale before the network sees them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Normalization", "make_normalization"]

_IMAGENET = {
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}  # of images in [0, 1], as torchvision has them


@dataclass(frozen=True)
class Normalization:
    """`(value / 255 - mean) / std`, channel by channel.

    Args:
        mean: One value for each channel, on the scale from 0 to 1.
        std: Likewise, positive.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def changes(self) -> bool:
        """Whether it does more than bring bytes to [0, 1], which every method does by itself."""
        return any(self.mean) or any(value != 1 for value in self.std)

    def __call__(self, images: Tensor) -> Tensor:
        """Normalises images.

        Args:
            images: `(..., C, H, W)` uint8 in [0, 255], or floating point in [0, 1].

        Returns:
            The same shape, at least float32.
        """
        values = images / 255 if images.dtype == torch.uint8 else images
        mean, std = (torch.tensor(v, dtype=values.dtype, device=images.device) for v in (self.mean, self.std))
        return (values - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)


def make_normalization(dataset: str, option: str | Mapping[str, Sequence[float]], channels: int) -> Normalization:
    """Reads the option `normalization`.

    Args:
        dataset: Name of the data set, for messages.
        option: `none`, `imagenet`, or `{mean: [...], std: [...]}`.
        channels: C.

    Raises:
        ValueError: The option is none of these, or does not fit the channels.
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
        raise ValueError(f"{where}: std must be positive, got {list(std)}.")
    return Normalization(mean, std)


def _values(where: str, name: str, given: Any, channels: int) -> tuple[float, ...]:
    values = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise ValueError(f"{where}: {name} must be numbers, got {given!r}.")
    if len(values) != channels:
        raise ValueError(f"{where}: {name} must have a value for each of the {channels} channels, got {given!r}.")
    return tuple(float(value) for value in values)
