"""Finds image files and reads them as they were read in training."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lws_lightning.batches import PredictionBatch
from lws_lightning.data import IMAGE_SUFFIXES, Decoder, ResizeMode, try_decoding
from lws_lightning.methods import DataRecord

__all__ = ["ImageFiles", "decoder_for", "find_images"]

_DEFAULT_MODE: ResizeMode = "stretch"
_WHITE = 255


def find_images(given: Sequence[str]) -> list[str]:
    """Finds the images meant by files, folders and patterns.

    Args:
        given: A file, whatever its name; a folder, in which images are found at any depth by the ends of their names;
            or a pattern with `*`, `?`, `[...]` or `**`, whose matches are taken likewise. A folder's hidden files are
            left out.

    Returns:
        Paths in the order given, those of a folder or pattern sorted, each once.

    Raises:
        FileNotFoundError: If there is no such file or folder, or nothing matches a pattern.
        ValueError: If there is no image in a folder.
    """
    found: list[str] = []
    for entry in given:
        if os.path.exists(entry):  # noqa: PTH110 (a file may be called "a[1].png")
            found += _images_of(entry)
            continue
        matches = sorted(glob.glob(entry, recursive=True)) if glob.has_magic(entry) else []  # noqa: PTH207
        if not matches:
            raise FileNotFoundError(f"--images: there is no {entry}.")
        files = [match for match in matches if not Path(match).is_dir()]
        folders = [match for match in matches if Path(match).is_dir()]
        # "**" matches folders and what is in them.
        found += files or [image for folder in folders for image in _images_of(folder)]
    return list(dict.fromkeys(found))


def _images_of(entry: str) -> list[str]:
    if not Path(entry).is_dir():
        return [entry]
    images = []
    for folder, subfolders, files in os.walk(entry):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        images += [
            os.path.join(folder, name)  # noqa: PTH118 (as given, without "./" taken away)
            for name in sorted(files)
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122
        ]
    if not images:
        raise ValueError(f"--images: there are no images in {entry} (by the ends of their names: .png, .jpg, ...).")
    return images


def decoder_for(record: DataRecord, image_shape: Sequence[int]) -> Decoder:
    """Makes what reads an image file as the training did.

    Where the record does not say how images of another size were resized, because they never were, they are stretched.

    Args:
        record: What a checkpoint says of its data.
        image_shape: `(C, H, W)`.

    Raises:
        ValueError: If images were made in a way that this version does not know.
    """
    channels, height, width = image_shape
    known = record.preprocessing or {}
    mode, interpolation = known.get("mode", _DEFAULT_MODE), known.get("interpolation", "bilinear")
    if channels not in (1, 3) or mode not in get_args(ResizeMode) or interpolation != "bilinear":
        raise ValueError(
            f"Images of {channels} channels, mode {mode!r} and interpolation {interpolation!r} cannot be made from "
            "files by this version."
        )
    return Decoder((height, width), channels, mode, int(known.get("background", _WHITE)))


class ImageFiles(Dataset[tuple[str, Tensor | str]]):
    """Image files, each with its pixels or the reason why it cannot be read.

    Args:
        files: Their paths.
        decoder: Reads one.
        tasks: The tasks whose networks are to see them.
    """

    def __init__(self, files: Sequence[str], decoder: Decoder, tasks: Sequence[int]) -> None:
        self.files, self.decoder, self.tasks = list(files), decoder, tuple(tasks)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[str, Tensor | str]:
        file = self.files[index]
        return file, try_decoding(self.decoder, file)

    def collate(self, items: Sequence[tuple[str, Tensor | str]]) -> PredictionBatch:
        """Makes a batch of those that can be read."""
        readable = [(file, image) for file, image in items if isinstance(image, Tensor)]
        images = torch.empty(len(readable), *self.decoder.image_shape, dtype=torch.uint8)
        for row, (_, image) in zip(images, readable, strict=True):
            row.copy_(image)
        broken = tuple((file, reason) for file, reason in items if isinstance(reason, str))
        return PredictionBatch(images, tuple(file for file, _ in readable), self.tasks, broken)
