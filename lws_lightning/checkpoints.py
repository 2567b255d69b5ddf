"""Finds checkpoints, and the runs that wrote them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from lws_lightning.records import RECORD_FILE

__all__ = ["CheckpointInfo", "find_checkpoint", "newest_checkpoint", "read_checkpoint_info", "run_folder_of"]

_CONFIGS = ("run.yaml", "config.yaml")
"""The files with a run's options: from a sweep, and from `lws fit`."""


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint records about its run.

    Attributes:
        path: The file.
        step: Training steps completed.
        resumable: Whether a run can continue from it; a file with weights only can be evaluated.
        folder: The run folder, None if not recorded.
        started: Start time of the run, None if not recorded.
    """

    path: Path
    step: int
    resumable: bool
    folder: Path | None
    started: str | None


def read_checkpoint_info(path: Path) -> CheckpointInfo:
    """Reads what a checkpoint records about its run; its tensors are not read.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as a checkpoint; a kill or a full disk may have truncated it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}. Give the folder of a run, or a checkpoint in it.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        complete = "state_dict" in content
        resumable = complete and bool(content.get("loops")) and bool(content.get("optimizer_states"))
        record = content.get("callbacks", {}).get("RunRecord", {})
        folder = None if record.get("folder") is None else Path(record["folder"])
        info = CheckpointInfo(path, int(content["global_step"]), resumable, folder, record.get("started"))
    except Exception as error:  # torch, pickle and zipfile raise all kinds of exceptions on damaged files
        raise ValueError(f"{path} cannot be read as a checkpoint; it is damaged, or not a checkpoint.") from error
    if not complete:
        raise ValueError(f"{path} is not a checkpoint: it has no weights.")
    return info


def newest_checkpoint(folder: Path, resumable: bool = True) -> Path | None:
    """Finds the checkpoint of a run with the most training steps, wherever its callbacks saved it.

    Damaged files, checkpoints of other runs in the same folder and, if `resumable`, files with weights only are
    ignored.

    Args:
        folder: Of the run.
        resumable: Whether a run must be able to continue from it.

    Returns:
        None if there is none.
    """
    checkpoints = [info for info in _checkpoints_of(folder) if info.resumable or not resumable]
    newest = max(checkpoints, key=lambda info: (info.step, info.path.stat().st_mtime_ns), default=None)
    return None if newest is None else newest.path


def find_checkpoint(given: str | Path, resumable: bool = False) -> Path:
    """Finds the checkpoint for a path that is one, a run folder, or its `checkpoints` folder.

    Args:
        given: The path that a user gave.
        resumable: Whether a run must be able to continue from it.

    Returns:
        The file; in a folder `last.ckpt`, else the readable one with the most steps.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If the file cannot be read or resumed, or the folder holds more than one run.
    """
    path = Path(given)
    if not path.is_dir():
        if not read_checkpoint_info(path).resumable and resumable:
            raise ValueError(f"{path} holds weights only; a run cannot resume from it. It can be tested and exported.")
        return path
    if len(list(path.rglob(RECORD_FILE))) > 1:
        raise ValueError(f"{path} holds more than one run. Give the folder of one, or a checkpoint.")
    for last in (path / "last.ckpt", path / "checkpoints" / "last.ckpt"):
        try:
            return find_checkpoint(last, resumable)
        except (FileNotFoundError, ValueError):
            continue
    newest = newest_checkpoint(path, resumable)
    if newest is None:
        needed = "from which a run can resume" if resumable else "that can be read"
        raise FileNotFoundError(f"There is no checkpoint {needed} in {path}.")
    return newest


def run_folder_of(checkpoint: Path) -> Path | None:
    """Returns the folder, with a `config.yaml`, of the run that wrote a checkpoint; None if it cannot be found."""
    for folder in _candidate_folders(checkpoint):
        if (folder / "config.yaml").is_file():
            return folder
    return None


def _candidate_folders(checkpoint: Path) -> Iterator[Path]:
    yield from (parent.parent for parent in checkpoint.parents if parent.name == "checkpoints")
    try:
        recorded = read_checkpoint_info(checkpoint).folder
    except (OSError, ValueError):
        recorded = None
    if recorded is not None:
        yield recorded
    yield from (checkpoint.parent, checkpoint.parent.parent)


def _checkpoints_of(run: Path) -> Iterator[CheckpointInfo]:
    for folder in (run, *_checkpoint_dirpaths(run)):
        for path in sorted(folder.rglob("*.ckpt")):
            try:
                info = read_checkpoint_info(path)
            except (OSError, ValueError):
                continue
            of_other_run = info.folder is not None and info.folder.is_dir() and not info.folder.samefile(run)
            if folder == run or not of_other_run:
                yield info


def _checkpoint_dirpaths(folder: Path) -> list[Path]:
    """Returns the `dirpath` of each checkpoint callback in the configuration of a run."""
    for name in _CONFIGS:
        try:
            config = yaml.safe_load((folder / name).read_text(encoding="utf-8"))
            callbacks = config["trainer"].get("callbacks") or []
            options = [(callback.get("init_args") or {}) for callback in callbacks if isinstance(callback, Mapping)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
            continue
        return [Path(args["dirpath"]).expanduser() for args in options if args.get("dirpath")]
    return []
