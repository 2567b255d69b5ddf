"""Reads image files of any format as uint8 tensors of one size."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

__all__ = ["Decoder", "Interpolation", "ResizeMode", "check_size"]

ResizeMode = Literal["stretch", "pad", "crop"]
Interpolation = Literal["bilinear", "area"]

_LARGE = 100_000_000  # pixels; larger images are decoded one at a time, JPEG files at a reduced size
_MAX_PIXELS = 1_000_000_000  # of one image, which with some copies takes 10 GB
_LARGE_IMAGE_LOCK = threading.Lock()


@dataclass(frozen=True)
class Decoder:
    """Reads an image file as `(C, H, W)` uint8. The result depends only on the file and these options.

    The image is rotated according to its EXIF data; of an animation, the first frame is used. 16-bit grey values are
    scaled to 8 bits, transparent areas are filled with `background`, and Pillow converts all other modes. A JPEG file
    of more than 100 megapixels is decoded at a reduced size, at least twice the target.

    Args:
        size: (H, W).
        channels: 3, or 1 for grey.
        mode: `crop` scales the image to cover the size and crops it evenly on both sides; `pad` scales it to fit and
            pads it with `background`; `stretch` changes its aspect ratio.
        background: Grey value in 0..255.
        interpolation: `bilinear`, over the pixels that a new one covers and their neighbours, or `area`, the mean of
            those that it covers.
    """

    size: tuple[int, int]
    channels: int
    mode: ResizeMode
    background: int
    interpolation: Interpolation = "bilinear"

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """`(C, H, W)`."""
        return (self.channels, *self.size)

    def __call__(self, file: str) -> Tensor:
        """Reads a file.

        Raises:
            Exception: The file cannot be read as an image; Pillow raises errors of many kinds.
        """
        with _without_pillow_limit(), Image.open(file) as opened:
            large = opened.width * opened.height > _LARGE
            with _LARGE_IMAGE_LOCK if large else nullcontext():
                if large:
                    self._reduce_size(opened)
                opened.load()  # raises if the file is truncated
                with suppress(Exception):  # broken EXIF data are ignored
                    ImageOps.exif_transpose(opened, in_place=True)
                image = self._with_channels(opened)
        array = np.array(self._resized(image))  # a copy, since Pillow's memory is read-only
        return torch.from_numpy(array).view(*self.size, self.channels).permute(2, 0, 1).contiguous()

    @property
    def variant(self) -> str:
        """The options as a file name."""
        height, width = self.size
        return f"{height}x{width}x{self.channels}-{self.mode}-{self.background}"

    def describe(self) -> dict[str, Any]:
        """Returns the options as numbers, strings and lists."""
        return {
            "size": list(self.size),
            "channels": self.channels,
            "mode": self.mode,
            "background": self.background,
            "interpolation": self.interpolation,
        }

    def _reduce_size(self, opened: Image.Image) -> None:
        """Makes Pillow decode a JPEG file at a reduced size; other formats do not support it."""
        sides = f"{opened.width:,} x {opened.height:,}"
        opened.draft(None, (2 * max(self.size),) * 2)  # in either orientation
        if opened.width * opened.height > _MAX_PIXELS:
            raise ValueError(f"{sides} pixels are more than the {_MAX_PIXELS:,} allowed for one image; shrink it")

    def _with_channels(self, image: Image.Image) -> Image.Image:
        if image.mode.startswith("I") or image.mode == "F":
            image = _from_wide(image)
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            image = image.convert("RGBA")
            background = Image.new("RGBA", image.size, (self.background, self.background, self.background, 255))
            image = Image.alpha_composite(background, image)
        return image.convert("RGB" if self.channels == 3 else "L")

    def _resized(self, image: Image.Image) -> Image.Image:
        size = (self.size[1], self.size[0])  # Pillow's order
        if image.size == size:
            return image
        resampling = Image.Resampling.BOX if self.interpolation == "area" else Image.Resampling.BILINEAR
        if self.mode == "stretch":
            return image.resize(size, resampling)
        if self.mode == "crop":
            return ImageOps.fit(image, size, resampling)
        grey = self.background if self.channels == 1 else (self.background,) * 3
        return ImageOps.pad(image, size, resampling, color=grey)


class _PillowLimit:
    """Pillow's pixel limit, a protection against untrusted files, and the number of threads that decode without it."""

    lock = threading.Lock()
    users = 0
    value: int | None = None


@contextmanager
def _without_pillow_limit() -> Iterator[None]:
    """Lifts Pillow's limit, which all threads share, while images are decoded here."""
    with _PillowLimit.lock:
        if _PillowLimit.users == 0:
            _PillowLimit.value, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        _PillowLimit.users += 1
    try:
        yield
    finally:
        with _PillowLimit.lock:
            _PillowLimit.users -= 1
            if _PillowLimit.users == 0:
                Image.MAX_IMAGE_PIXELS = _PillowLimit.value


def _from_wide(image: Image.Image) -> Image.Image:
    """Scales grey values of more than 8 bits to 8 bits; Pillow's own conversion would clip them at 255."""
    values = np.asarray(image).astype(np.float64)
    largest = 1.0 if image.mode == "F" else 65535.0
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= largest):
        raise ValueError(f"grey values of mode {image.mode} outside of 0 to {largest:g}")
    return Image.fromarray(np.round(values * (255 / largest)).astype(np.uint8))


def check_size(dataset: str, image_size: int | Sequence[int]) -> tuple[int, int]:
    """Returns the option `image_size` as (H, W).

    Raises:
        ValueError: It is not one or two positive integers.
    """
    size = [image_size, image_size] if isinstance(image_size, int) else list(image_size)
    if len(size) != 2 or any(isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in size):
        raise ValueError(
            f"{dataset}: image_size must be a whole number of pixels, or [height, width], got {image_size!r}."
        )
    return size[0], size[1]
