"""Reads all images of the tasks once, and finds those that cannot be read."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import PIL
import torch
from lightning.pytorch.utilities import rank_zero_only
from PIL import UnidentifiedImageError
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from lws_lightning.data.cache import ArrayCache, fingerprint

__all__ = ["Decode", "ReadImages", "read_folders", "try_decoding", "usable_memory"]

Decode = Callable[[str], Tensor]
"""Reads a file as an image `(C, H, W)` uint8; raises an exception of any kind where it cannot."""

_CHUNK = 256  # images between two movements of the progress bar
_READABLE = "readable"


@dataclass(frozen=True)
class ReadImages:
    """The images of one folder.

    Attributes:
        broken: Place in the list of files -> why the file cannot be read.
        pixels: `(N, C, H, W)` uint8, zero where broken; N is 0 without `keep`.
    """

    broken: dict[int, str]
    pixels: Tensor


def read_folders(
    dataset: str,
    folders: Mapping[Path, Sequence[str]],
    decode: Decode,
    image_shape: Sequence[int],
    variant: str,
    keep: bool,
    cache: ArrayCache | None,
) -> list[ReadImages]:
    """Reads images in several threads, or takes from the cache what an earlier run found.

    Args:
        dataset: Name of the data set, for the progress bar.
        folders: Folder -> the paths of its images.
        decode: Reads an image.
        image_shape: `(C, H, W)` of what it returns.
        variant: What pixels are cached under; names the options of `decode`.
        keep: Whether to return the pixels. Otherwise the images are only checked.
        cache: Keeps which images can be read, and the pixels where `keep`. None: nothing is cached.

    Returns:
        One for each folder.
    """
    shapes = {folder: (len(files) if keep else 0, *image_shape) for folder, files in folders.items()}
    marks = {folder: _mark(folder, files) for folder, files in folders.items()}
    found = {}
    if cache is not None:
        for folder, files in folders.items():
            cached = _from_cache(cache, folder, files, marks[folder], decode, variant, shapes[folder])
            if cached is not None:
                found[folder] = cached
    absent = [folder for folder in folders if folder not in found]
    # None: hidden outside a terminal.
    hidden = True if getattr(rank_zero_only, "rank", 0) or not absent else None
    title = f"{dataset}: {'decoding' if keep else 'checking'}"
    total = sum(len(folders[folder]) for folder in absent)
    with (
        tqdm(total=total, desc=title, unit="image", disable=hidden) as bar,
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
    ):
        for folder in absent:
            files = folders[folder]
            pixels = np.zeros(shapes[folder], np.uint8)
            broken = _decode(files, decode, pixels if keep else None, pool, bar)
            found[folder] = ReadImages(broken, torch.from_numpy(pixels))
            if cache is not None:
                flags = np.ones(len(files), np.uint8)
                flags[list(broken)] = 0
                cache.save(folder / _READABLE, marks[folder], flags)
                if keep:
                    cache.save(folder / variant, marks[folder], pixels)
    return [found[folder] for folder in folders]


def usable_memory() -> int | None:
    """Returns how many bytes this process may still use, on its machine and in its control group; None: unknown."""
    limits = [int(line.split()[1]) * 1024 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:")]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        values = [line.strip() for path in (limit, used) for line in _lines(path)[:1]]
        if len(values) == 2 and all(value.isdigit() for value in values):
            limits.append(max(0, int(values[0]) - int(values[1])))
    return min(limits, default=None)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _mark(folder: Path, files: Sequence[str]) -> str:
    """Returns what changes when an image does, or the program that decodes it."""
    # A broken link is among the files, too; reading it fails later.
    return f"{fingerprint((Path(file) for file in files if Path(file).exists()), folder)} Pillow {PIL.__version__}"


def _from_cache(
    cache: ArrayCache, folder: Path, files: Sequence[str], mark: str, decode: Decode, variant: str, shape: Sequence[int]
) -> ReadImages | None:
    flags = cache.load(folder / _READABLE, mark, (len(files),))
    pixels = cache.load(folder / variant, mark, tuple(shape)) if shape[0] else np.zeros(shape, np.uint8)
    if flags is None or pixels is None:
        return None
    broken = {}
    for index in np.flatnonzero(flags == 0).tolist():
        outcome = try_decoding(decode, files[index])  # to say why
        if not isinstance(outcome, str):  # it is readable after all: a permission was granted, say
            return None
        broken[index] = outcome
    return ReadImages(broken, torch.from_numpy(pixels))


def _decode(
    files: Sequence[str], decode: Decode, out: np.ndarray | None, pool: ThreadPoolExecutor, bar: tqdm
) -> dict[int, str]:
    """Decodes files into `out`; returns which failed and why."""
    broken = {}
    for start in range(0, len(files), _CHUNK):
        chunk = files[start : start + _CHUNK]
        for index, outcome in enumerate(pool.map(partial(try_decoding, decode), chunk), start=start):
            if isinstance(outcome, str):
                broken[index] = outcome
            elif out is not None:
                out[index] = outcome.numpy()
        bar.update(len(chunk))
    return broken


def try_decoding(decode: Decode, file: str) -> Tensor | str:
    """Returns the image, or why it cannot be read."""
    try:
        return decode(file)
    except MemoryError:
        raise
    except UnidentifiedImageError:
        return "not an image" if Path(file).stat().st_size else "an empty file"
    except Exception as error:  # a damaged file raises exceptions of any kind
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
