"""Finds checkpoints, and the runs that wrote them."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

__all__ = ["Saved", "find_checkpoint", "newest_checkpoint", "read_saved", "run_of"]

_CONFIGS = ("run.yaml", "config.yaml")
"""The file with a run's options: that of a sweep, that of `lws fit`."""


@dataclass(frozen=True)
class Saved:
    """What a checkpoint records about itself; its tensors are not read.

    Attributes:
        path: The file.
        step: Number of training steps done.
        resumable: Whether a run can continue from it; a file with weights only can be evaluated.
        folder: The run folder that it names, None if it names none.
        started: When its run began, None if not recorded.
    """

    path: Path
    step: int
    resumable: bool
    folder: Path | None
    started: str | None


def read_saved(path: Path) -> Saved:
    """Reads what a checkpoint records about itself.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as a checkpoint; a kill or a full disk may have truncated it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        complete = "state_dict" in content
        resumable = complete and bool(content.get("loops")) and bool(content.get("optimizer_states"))
        record = content.get("callbacks", {}).get("RunRecord", {})
        folder = None if record.get("folder") is None else Path(record["folder"])
        found = Saved(path, int(content["global_step"]), resumable, folder, record.get("started"))
    except Exception as error:  # torch, pickle and zipfile raise what the bytes lead to
        raise ValueError(f"{path} cannot be read as a checkpoint; it is damaged, or not a checkpoint.") from error
    if not complete:
        raise ValueError(f"{path} is not a checkpoint: it has no weights.")
    return found


def newest_checkpoint(folder: Path, resumable: bool = True) -> Path | None:
    """Finds the checkpoint of a run with the most training steps, wherever its callbacks saved it.

    Args:
        folder: Of the run.
        resumable: Whether a run must be able to continue from it.

    Returns:
        None if there is none. Damaged files, checkpoints of another run in the same place and, if `resumable`, files
        with weights only are ignored.
    """
    saved = [each for each in _saved_of(folder) if each.resumable or not resumable]
    best = max(saved, key=lambda each: (each.step, each.path.stat().st_mtime_ns), default=None)
    return None if best is None else best.path


def find_checkpoint(given: str | Path, resumable: bool = False) -> Path:
    """Finds the checkpoint that a path means: a file itself, or the one in a run folder or its `checkpoints`.

    Args:
        given: What a user gave as a checkpoint.
        resumable: Whether a run must be able to continue from it.

    Returns:
        The file; in a folder `last.ckpt`, else the readable one with the most steps.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If the file cannot be read or resumed, or the folder holds more than one run.
    """
    path = Path(given)
    if not path.is_dir():
        if not read_saved(path).resumable and resumable:
            raise ValueError(f"{path} holds weights only; a run cannot go on from it. It can be tested and exported.")
        return path
    if len({record.parent for record in path.rglob("result.json")}) > 1:
        raise ValueError(f"{path} holds more than one run. Give the folder of one, or a checkpoint.")
    for last in (path / "last.ckpt", path / "checkpoints" / "last.ckpt"):
        try:
            return find_checkpoint(last, resumable)
        except (FileNotFoundError, ValueError):
            continue
    newest = newest_checkpoint(path, resumable)
    if newest is None:
        kind = "from which a run can go on" if resumable else "that can be read"
        raise FileNotFoundError(f"There is no checkpoint {kind} in {path}.")
    return newest


def run_of(checkpoint: Path) -> Path | None:
    """Returns the folder of the run that wrote a checkpoint, the one with its `config.yaml`; None if it is gone."""
    beside = [parent.parent for parent in checkpoint.parents if parent.name == "checkpoints"]
    named = [] if any(map(_has_config, beside)) else _named_folder(checkpoint)
    for folder in (*beside, *named, checkpoint.parent, checkpoint.parent.parent):
        if _has_config(folder):
            return folder
    return None


def _has_config(folder: Path) -> bool:
    return (folder / "config.yaml").is_file()


def _named_folder(checkpoint: Path) -> list[Path]:
    try:
        folder = read_saved(checkpoint).folder
    except (OSError, ValueError):
        return []
    return [] if folder is None else [folder]


def _saved_of(folder: Path) -> Iterator[Saved]:
    for place in (folder, *_other_places(folder)):
        for path in sorted(place.rglob("*.ckpt")):
            try:
                saved = read_saved(path)
            except (OSError, ValueError):
                continue
            others = saved.folder is not None and saved.folder.is_dir() and not saved.folder.samefile(folder)
            if place == folder or not others:
                yield saved


def _other_places(folder: Path) -> list[Path]:
    """Returns the folders outside the run folder that the run's checkpoint callbacks save in."""
    for name in _CONFIGS:
        try:
            config = yaml.safe_load((folder / name).read_text(encoding="utf-8"))
            callbacks = config["trainer"].get("callbacks") or []
            options = [(each.get("init_args") or {}) for each in callbacks if isinstance(each, Mapping)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
            continue
        return [_local(each["dirpath"]) for each in options if each.get("dirpath")]
    return []


def _local(path: Any) -> Path:
    return Path(os.fspath(path)).expanduser()
