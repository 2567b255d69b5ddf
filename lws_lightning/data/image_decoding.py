"""From an image file of any kind to bytes of one size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

__all__ = ["Decoder", "ResizeMode", "check_size"]

ResizeMode = Literal["stretch", "pad", "crop"]


@dataclass(frozen=True)
class Decoder:
    """Reads an image file as `(C, H, W)` uint8. What it returns depends on the file and these options alone.

    The image is turned as its EXIF data say; of an animation the first frame counts. 16-bit grey values are scaled to
    8 bits, transparent parts are laid over `background`, and every other kind of image is converted by Pillow.

    Args:
        size: (H, W).
        channels: 3, or 1 for grey.
        mode: `crop` scales until the image covers the size and cuts off what is over, alike on both sides; `pad` scales
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
        with Image.open(file) as opened:
            opened.load()  # raises where the file is cut short
            image = self._with_channels(ImageOps.exif_transpose(opened))
        array = np.array(self._resized(image))  # a copy, since Pillow's own memory is read-only
        return torch.from_numpy(array).view(*self.size, self.channels).permute(2, 0, 1).contiguous()

    def describe(self) -> dict[str, Any]:
        """Returns the options as plain values."""
        return {
            "size": list(self.size),
            "channels": self.channels,
            "mode": self.mode,
            "background": self.background,
            "interpolation": "bilinear",
        }

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


def _from_wide(image: Image.Image) -> Image.Image:
    """Turns grey values of more than 8 bits into 8 bits, where Pillow's own conversion would cut them off at 255."""
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
