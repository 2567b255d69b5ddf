"""Reads all images of the tasks once, and finds unreadable ones."""

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
"""Reads a file as an image `(C, H, W)` uint8; raises an exception of any kind if it cannot."""

_CHUNK = 256  # images between two updates of the progress bar
_READABLE = "readable"


@dataclass(frozen=True)
class ReadImages:
    """The images of one folder.

    Attributes:
        broken: Index in the list of files -> why the file cannot be read.
        pixels: `(N, C, H, W)` uint8, zero if broken; N is 0 without `keep`.
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
    """Reads images in threads, or from the cache of an earlier run.

    Args:
        dataset: Name of the data set, for the progress bar.
        folders: Folder -> the paths of its images.
        decode: Reads an image.
        image_shape: `(C, H, W)` of its result.
        variant: Cache key of the pixels, which identifies the options of `decode`.
        keep: Whether to return the pixels. Otherwise the images are only checked.
        cache: Stores which images can be read, and with `keep` the pixels. None: nothing is cached.

    Returns:
        One for each folder.
    """
    shapes = {folder: (len(files) if keep else 0, *image_shape) for folder, files in folders.items()}
    states = {folder: _state(folder, files) for folder, files in folders.items()}
    results = {}
    if cache is not None:
        for folder, files in folders.items():
            cached = _from_cache(cache, folder, files, states[folder], decode, variant, shapes[folder])
            if cached is not None:
                results[folder] = cached
    missing = [folder for folder in folders if folder not in results]
    # None: hidden outside a terminal.
    hidden = True if getattr(rank_zero_only, "rank", 0) or not missing else None
    title = f"{dataset}: {'decoding' if keep else 'checking'}"
    total = sum(len(folders[folder]) for folder in missing)
    with (
        tqdm(total=total, desc=title, unit="image", disable=hidden) as bar,
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
    ):
        for folder in missing:
            files = folders[folder]
            pixels = np.zeros(shapes[folder], np.uint8)
            broken = _decode(files, decode, pixels if keep else None, pool, bar)
            results[folder] = ReadImages(broken, torch.from_numpy(pixels))
            if cache is not None:
                readable = np.ones(len(files), np.uint8)
                readable[list(broken)] = 0
                cache.save(folder / _READABLE, states[folder], readable)
                if keep:
                    cache.save(folder / variant, states[folder], pixels)
    return [results[folder] for folder in folders]


def usable_memory() -> int | None:
    """Returns the memory in bytes that is free on the machine and in the control group; None: unknown."""
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


def _state(folder: Path, files: Sequence[str]) -> str:
    """Returns a fingerprint of the images and of the version of their decoder."""
    # Files may include broken links; reading them fails later.
    return f"{fingerprint((Path(file) for file in files if Path(file).exists()), folder)} Pillow {PIL.__version__}"


def _from_cache(
    cache: ArrayCache,
    folder: Path,
    files: Sequence[str],
    state: str,
    decode: Decode,
    variant: str,
    shape: Sequence[int],
) -> ReadImages | None:
    readable = cache.load(folder / _READABLE, state, (len(files),))
    pixels = cache.load(folder / variant, state, tuple(shape)) if shape[0] else np.zeros(shape, np.uint8)
    if readable is None or pixels is None:
        return None
    broken = {}
    for index in np.flatnonzero(readable == 0).tolist():
        reason = try_decoding(decode, files[index])
        if not isinstance(reason, str):  # readable now, for example after a change of permissions
            return None
        broken[index] = reason
    return ReadImages(broken, torch.from_numpy(pixels))


def _decode(
    files: Sequence[str], decode: Decode, out: np.ndarray | None, pool: ThreadPoolExecutor, bar: tqdm
) -> dict[int, str]:
    """Decodes files into `out`; returns which failed and why."""
    broken = {}
    for start in range(0, len(files), _CHUNK):
        chunk = files[start : start + _CHUNK]
        for index, result in enumerate(pool.map(partial(try_decoding, decode), chunk), start=start):
            if isinstance(result, str):
                broken[index] = result
            elif out is not None:
                out[index] = result.numpy()
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
