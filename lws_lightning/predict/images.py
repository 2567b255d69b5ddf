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
from lws_lightning.data import Decoder, Interpolation, ResizeMode, count_unread, is_ignored, is_image, try_decoding
from lws_lightning.methods import DataRecord
from lws_lightning.walking import links_to_parent, walk

__all__ = ["ImageFiles", "decoder_for", "find_images"]

_DEFAULT_MODE: ResizeMode = "stretch"
_WHITE = 255


def find_images(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Finds the images given by files, folders and patterns.

    Args:
        given: A file, whatever its name; a folder, which is searched recursively for images by file extension; or a
            pattern with `*`, `?`, `[...]` or `**`, whose matches are files or folders. Links are followed. Hidden and
            system files (`is_ignored`) are skipped, unless they are named explicitly.

    Returns:
        Paths in the order given, those of a folder or pattern sorted, without duplicates; and the other files in the
        folders.

    Raises:
        FileNotFoundError: If there is no such file or folder, or nothing matches a pattern.
        ValueError: If there is no image in a folder.
        OSError: If a folder cannot be read.
    """
    found: list[str] = []
    others: list[str] = []
    for entry in given:
        # A file called "a[1].png" is not a pattern.
        matches = [entry] if os.path.exists(entry) or not glob.has_magic(entry) else _matches(entry)  # noqa: PTH110
        if not any(map(os.path.exists, matches)):
            raise FileNotFoundError(f"--images: there is no {entry}.")
        images: list[str] = []
        other_files: list[str] = []
        for match in matches:
            for file in _files_of(match):
                (images if file == match or is_image(file) else other_files).append(file)
        if not images:
            raise ValueError(
                f"--images: there are no images in {entry} (by file extension: .png, .jpg, ...)"
                f"{f'; {count_unread(other_files)}' if other_files else ''}."
            )
        found += images
        others += other_files
    return list(dict.fromkeys(found)), list(dict.fromkeys(file for file in others if file not in set(found)))


def _files_of(entry: str) -> list[str]:
    """Returns a file itself, or all files in a folder and its subfolders."""
    if not Path(entry).is_dir():
        return [entry]
    # Not pathlib, which would remove a leading "./".
    return [os.path.join(place, name) for place, names in walk(entry, is_ignored) for name in names]  # noqa: PTH118


def _matches(pattern: str) -> list[str]:
    """Returns the matches of a pattern, sorted, without hidden and system files and links to parents."""
    literal = set(Path(pattern).parts)
    matches = {
        match
        for match in _expanded(pattern.replace(os.sep, "/"))
        if not any(is_ignored(name) and name not in literal for name in Path(match).parts)
        and not links_to_parent(match)
    }
    return sorted(matches)


def _expanded(pattern: str) -> Iterator[str]:
    """Expands a pattern as `glob` does, except that `**` follows links without cycles."""
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
        for place, _ in walk(base or ".", is_ignored):
            inside = place if base else os.path.relpath(place)
            yield from _expanded(after if inside == "." else f"{glob.escape(inside)}/{after}")


def decoder_for(record: DataRecord, image_shape: Sequence[int]) -> Decoder:
    """Returns a decoder that reads image files as in training.

    If training resized no images, those of another size are stretched.

    Args:
        record: What a checkpoint records of its data.
        image_shape: `(C, H, W)`.

    Raises:
        ValueError: If this version does not know the preprocessing.
    """
    channels, height, width = image_shape
    preprocessing = record.preprocessing or {}
    mode = preprocessing.get("mode", _DEFAULT_MODE)
    interpolation = preprocessing.get("interpolation", "bilinear")
    if channels not in (1, 3) or mode not in get_args(ResizeMode) or interpolation not in get_args(Interpolation):
        raise ValueError(
            f"This version cannot read image files with {channels} channels, mode {mode!r} and interpolation "
            f"{interpolation!r}."
        )
    background = int(preprocessing.get("background", _WHITE))
    return Decoder((height, width), channels, mode, background, interpolation)


class ImageFiles(Dataset[tuple[str, Tensor | str]]):
    """Image files, each with its pixels or the reason why it cannot be read.

    Args:
        files: Their paths.
        decoder: Reads a file.
        tasks: The tasks to predict.
    """

    def __init__(self, files: Sequence[str], decoder: Decoder, tasks: Sequence[int]) -> None:
        self.files, self.decoder, self.tasks = list(files), decoder, tuple(tasks)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[str, Tensor | str]:
        file = self.files[index]
        return file, try_decoding(self.decoder, file)

    def collate(self, items: Sequence[tuple[str, Tensor | str]]) -> PredictionBatch:
        """Returns a batch of the readable images; the others are listed in it with the reason."""
        readable = [(file, image) for file, image in items if isinstance(image, Tensor)]
        images = torch.empty(len(readable), *self.decoder.image_shape, dtype=torch.uint8)
        for row, (_, image) in zip(images, readable, strict=True):
            row.copy_(image)
        broken = tuple((file, reason) for file, reason in items if isinstance(reason, str))
        return PredictionBatch(images, tuple(file for file, _ in readable), self.tasks, broken)
