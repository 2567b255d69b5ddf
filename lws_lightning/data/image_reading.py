"""Reads all images of a task, once, and finds those that cannot be read."""

import os
from collections.abc import Mapping, Sequence
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
from lws_lightning.data.image_decoding import Decoder

__all__ = ["ReadImages", "read_folders", "try_decoding", "usable_memory"]

_CHUNK = 256  # between two movements of the progress bar


@dataclass(frozen=True)
class ReadImages:
    """The images of one folder.

    Attributes:
        broken: Place in the list of files -> why the file cannot be read.
        pixels: `(N, C, H, W)` uint8, zero where broken; None if they were not to be kept.
    """

    broken: dict[int, str]
    pixels: Tensor | None


def read_folders(
    dataset: str, folders: Mapping[Path, Sequence[str]], decoder: Decoder, keep: bool, cache: ArrayCache | None
) -> list[ReadImages]:
    """Reads images in several threads, or takes from the cache what an earlier run found.

    Args:
        dataset: Name of the data set, for the progress bar.
        folders: Folder -> the paths of its images.
        decoder: Decodes them.
        keep: Whether to return the pixels. Otherwise the images are only tried.
        cache: Keeps which images can be read, and the pixels if they are kept. None: nothing is kept.

    Returns:
        One for each folder.
    """
    marks = {folder: _mark(folder, files) for folder, files in folders.items()}
    found = {}
    if cache is not None:
        for folder, files in folders.items():
            found[folder] = _from_cache(cache, folder, files, marks[folder], decoder, keep)
    absent = [folder for folder in folders if found.get(folder) is None]
    # None: hidden where nobody watches, that is outside a terminal.
    hidden = True if getattr(rank_zero_only, "rank", 0) or not absent else None
    title = f"{dataset}: {'decoding' if keep else 'checking'}"
    total = sum(len(folders[folder]) for folder in absent)
    with (
        tqdm(total=total, desc=title, unit="image", disable=hidden) as bar,
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
    ):
        for folder in absent:
            files = folders[folder]
            pixels = np.zeros((len(files), *decoder.image_shape), np.uint8) if keep else None
            broken = _decode(files, decoder, pixels, pool, bar)
            found[folder] = ReadImages(broken, None if pixels is None else torch.from_numpy(pixels))
            if cache is not None:
                flags = np.ones(len(files), np.uint8)
                flags[list(broken)] = 0
                cache.save(_readable(folder), marks[folder], flags)
                if pixels is not None:
                    cache.save(_pixels(folder, decoder), marks[folder], pixels)
    return [read for folder in folders if (read := found[folder]) is not None]


def usable_memory() -> int | None:
    """Returns how many bytes of memory are free, for this machine and this process's group; None: unknown."""
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
    # A link to a file that is gone is among the names; it is found out when it is read.
    return f"{fingerprint((Path(file) for file in files if Path(file).exists()), folder)} Pillow {PIL.__version__}"


def _readable(folder: Path) -> Path:
    return folder / "readable"


def _pixels(folder: Path, decoder: Decoder) -> Path:
    height, width = decoder.size
    return folder / f"{height}x{width}x{decoder.channels}-{decoder.mode}-{decoder.background}"


def _from_cache(
    cache: ArrayCache, folder: Path, files: Sequence[str], mark: str, decoder: Decoder, keep: bool
) -> ReadImages | None:
    flags = cache.load(_readable(folder), mark, (len(files),))
    if flags is None:
        return None
    pixels = None
    if keep:
        pixels = cache.load(_pixels(folder, decoder), mark, (len(files), *decoder.image_shape))
        if pixels is None:
            return None
    broken = {}
    for index in np.flatnonzero(flags == 0).tolist():
        outcome = try_decoding(decoder, files[index])  # to say why
        if not isinstance(outcome, str):  # it is readable after all: a lack of permission, say, that is no more
            return None
        broken[index] = outcome
    return ReadImages(broken, None if pixels is None else torch.from_numpy(pixels))


def _decode(
    files: Sequence[str], decoder: Decoder, out: np.ndarray | None, pool: ThreadPoolExecutor, bar: tqdm
) -> dict[int, str]:
    """Decodes files into `out`; returns which failed and why."""
    broken = {}
    for start in range(0, len(files), _CHUNK):
        chunk = files[start : start + _CHUNK]
        for index, outcome in enumerate(pool.map(partial(try_decoding, decoder), chunk), start=start):
            if isinstance(outcome, str):
                broken[index] = outcome
            elif out is not None:
                out[index] = outcome.numpy()
        bar.update(len(chunk))
    return broken


def try_decoding(decoder: Decoder, file: str) -> Tensor | str:
    """Returns the image, or why it cannot be read."""
    try:
        return decoder(file)
    except MemoryError:
        raise
    except UnidentifiedImageError:
        return "not an image" if Path(file).stat().st_size else "an empty file"
    except Exception as error:  # a damaged file raises what its bytes happen to lead to
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
