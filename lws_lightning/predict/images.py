"""Finds image files and reads them as they were read in training."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lws_lightning.batches import PredictionBatch
from lws_lightning.data import Decoder, ResizeMode, is_image, is_passed_over, kinds_of, try_decoding
from lws_lightning.methods import DataRecord
from lws_lightning.walking import leads_back, walk

__all__ = ["ImageFiles", "decoder_for", "find_images"]

_DEFAULT_MODE: ResizeMode = "stretch"
_WHITE = 255


def find_images(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Finds the images meant by files, folders and patterns.

    Args:
        given: A file, whatever its name; a folder, in which images are found at any depth by the ends of their names;
            or a pattern with `*`, `?`, `[...]` or `**`, whose matches are taken likewise. Links are followed. What is
            hidden or there for the system alone (`is_passed_over`) is left out, unless it is named itself.

    Returns:
        Paths in the order given, those of a folder or pattern sorted, each once; and the files in the folders that are
        no images by the ends of their names.

    Raises:
        FileNotFoundError: If there is no such file or folder, or nothing matches a pattern.
        ValueError: If there is no image in a folder.
        OSError: If a folder cannot be read.
    """
    found: list[str] = []
    others: list[str] = []
    for entry in given:
        # A file may be called "a[1].png", which is no pattern then.
        matches = [entry] if os.path.exists(entry) or not glob.has_magic(entry) else _matches(entry)  # noqa: PTH110
        if not any(map(os.path.exists, matches)):
            raise FileNotFoundError(f"--images: there is no {entry}.")
        images: list[str] = []
        passed: list[str] = []
        for match in matches:
            for file in _files_of(match):
                (images if file == match or is_image(file) else passed).append(file)
        if not images:
            raise ValueError(
                f"--images: there are no images in {entry} (by the ends of their names: .png, .jpg, ...)"
                f"{f'; {kinds_of(passed)}' if passed else ''}."
            )
        found += images
        others += passed
    return list(dict.fromkeys(found)), list(dict.fromkeys(file for file in others if file not in set(found)))


def _files_of(entry: str) -> list[str]:
    """Returns a file itself, and of a folder all files in it at any depth."""
    if not Path(entry).is_dir():
        return [entry]
    # As given, without "./" taken away.
    return [os.path.join(place, name) for place, names in walk(entry, is_passed_over) for name in names]  # noqa: PTH118


def _matches(pattern: str) -> list[str]:
    """Returns what matches a pattern, sorted, without what is passed over and links that lead back."""
    literal = set(Path(pattern).parts)
    found = {
        match
        for match in _expanded(pattern.replace(os.sep, "/"))
        if not any(is_passed_over(part) and part not in literal for part in Path(match).parts) and not leads_back(match)
    }
    return sorted(found)


def _expanded(pattern: str) -> Iterator[str]:
    """Expands a pattern as `glob` does, but for `**`, which does not go in circles where links do."""
    if pattern == "**" or pattern.endswith("/**"):
        pattern += "/*"
    before, recursive, after = f"/{pattern}".partition("/**/")
    if not recursive:
        yield from glob.glob(pattern)  # noqa: PTH207
        return
    before = before[1:] or pattern[: pattern.startswith("/")]
    for base in _expanded(before) if before else [""]:
        if not Path(base).is_dir():
            continue
        for place, _ in walk(base or ".", is_passed_over):
            inside = place if base else os.path.relpath(place)
            yield from _expanded(after if inside == "." else f"{glob.escape(inside)}/{after}")


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
