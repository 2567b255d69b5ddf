"""Reads image files of any kind as bytes of one size."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

__all__ = ["Decoder", "ResizeMode", "check_size"]

ResizeMode = Literal["stretch", "pad", "crop"]

_LARGE = 100_000_000  # pixels; larger images are decoded one at a time, JPEG files at a reduced size
_MOST = 1_000_000_000  # pixels of one image, which with some copies take 10 GB
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Decoder:
    """Reads an image file as `(C, H, W)` uint8. What it returns depends on the file and these options alone.

    The image is rotated according to its EXIF data; of an animation, the first frame is used. 16-bit grey values are
    scaled to 8 bits, transparent areas are laid over `background`, and every other kind of image is converted by
    Pillow. A JPEG file of more than 100 megapixels is made smaller while it is decoded, to at least twice the size.

    Args:
        size: (H, W).
        channels: 3, or 1 for grey.
        mode: `crop` scales until the image covers the size and cuts off the rest, evenly on both sides; `pad` scales
            until the image fits in and surrounds it with `background`; `stretch` changes its proportions.
        background: Grey value in 0..255.
    """

    size: tuple[int, int]
    channels: int
    mode: ResizeMode
    background: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """`(C, H, W)`."""
        return (self.channels, *self.size)

    def __call__(self, file: str) -> Tensor:
        """Reads a file.

        Raises:
            Exception: The file cannot be read as an image; Pillow raises errors of many kinds.
        """
        with _own_limit(), Image.open(file) as opened:
            large = opened.width * opened.height > _LARGE
            with _ONE_AT_A_TIME if large else nullcontext():
                if large:
                    self._make_smaller(opened)
                opened.load()  # raises where the file is cut short
                with suppress(Exception):  # broken EXIF data are ignored
                    ImageOps.exif_transpose(opened, in_place=True)
                image = self._with_channels(opened)
        array = np.array(self._resized(image))  # a copy, since Pillow's own memory is read-only
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
            "interpolation": "bilinear",
        }

    def _make_smaller(self, opened: Image.Image) -> None:
        """Lets a JPEG file be decoded at a reduced size; other kinds cannot be."""
        sides = f"{opened.width:,} x {opened.height:,}"
        opened.draft(None, (2 * max(self.size),) * 2)  # turned or not
        if opened.width * opened.height > _MOST:
            raise ValueError(f"{sides} pixels are more than the {_MOST:,} allowed for one image; make it smaller")

    def _with_channels(self, image: Image.Image) -> Image.Image:
        if image.mode.startswith("I") or image.mode == "F":
            image = _from_wide(image)
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            image = image.convert("RGBA")
            behind = Image.new("RGBA", image.size, (self.background, self.background, self.background, 255))
            image = Image.alpha_composite(behind, image)
        return image.convert("RGB" if self.channels == 3 else "L")

    def _resized(self, image: Image.Image) -> Image.Image:
        size = (self.size[1], self.size[0])  # Pillow's order
        if image.size == size:
            return image
        if self.mode == "stretch":
            return image.resize(size, Image.Resampling.BILINEAR)
        if self.mode == "crop":
            return ImageOps.fit(image, size, Image.Resampling.BILINEAR)
        grey = self.background if self.channels == 1 else (self.background,) * 3
        return ImageOps.pad(image, size, Image.Resampling.BILINEAR, color=grey)


class _PillowsLimit:
    """Pillow's limit of pixels, a protection against untrusted files, and how many threads decode without it."""

    lock = threading.Lock()
    users = 0
    value: int | None = None


@contextmanager
def _own_limit() -> Iterator[None]:
    """Lifts Pillow's limit, which all threads share, as long as images are decoded here."""
    with _PillowsLimit.lock:
        if _PillowsLimit.users == 0:
            _PillowsLimit.value, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        _PillowsLimit.users += 1
    try:
        yield
    finally:
        with _PillowsLimit.lock:
            _PillowsLimit.users -= 1
            if _PillowsLimit.users == 0:
                Image.MAX_IMAGE_PIXELS = _PillowsLimit.value


def _from_wide(image: Image.Image) -> Image.Image:
    """Scales grey values of more than 8 bits to 8 bits, which Pillow's own conversion would clip at 255."""
    values = np.asarray(image).astype(np.float64)
    largest = 1.0 if image.mode == "F" else 65535.0
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= largest):
        raise ValueError(f"grey values of mode {image.mode} outside of 0 to {largest:g}")
    return Image.fromarray(np.round(values * (255 / largest)).astype(np.uint8))


def check_size(dataset: str, image_size: int | Sequence[int]) -> tuple[int, int]:
    """Returns (H, W).

    Raises:
        ValueError: The option `image_size` is neither a number nor two, or one is not positive.
    """
    size = [image_size, image_size] if isinstance(image_size, int) else list(image_size)
    if len(size) != 2 or any(isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in size):
        raise ValueError(
            f"{dataset}: image_size must be a whole number of pixels, or [height, width], got {image_size!r}."
        )
    return size[0], size[1]
