"""Which folder is a run's own."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard
from weakref import WeakKeyDictionary

from filelock import FileLock, Timeout
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from lws_lightning.records.run import find_run

__all__ = [
    "fixed_folder",
    "has_own_place",
    "is_dry_run",
    "reason_to_spare",
    "release_folder",
    "run_folder",
    "take_folder",
    "taken_folder",
]

_NAME = "lightning_logs"
_LOCK = ".run.lock"
_REMEDY = "Give this run a folder of its own: another save_dir of the logger (--trainer.logger.init_args.save_dir DIR)."


@dataclass
class _Taken:
    """The folder of a Trainer's run; `agreed` once all processes know it, `numbered` if no logger chose it."""

    folder: Path
    numbered: bool = False
    agreed: bool = False
    lock: FileLock | None = None


_TAKEN: WeakKeyDictionary[Trainer, _Taken] = WeakKeyDictionary()
_PLACED: WeakKeyDictionary[Trainer, list[ModelCheckpoint]] = WeakKeyDictionary()
"""The checkpoint callbacks whose `dirpath` the user has left open; Lightning fills it in before folders are known."""


def run_folder(trainer: Trainer, anyway: bool = False) -> Path | None:
    """Returns the folder that a run has for itself: no other run writes there while it goes on.

    It is the log folder of a TensorBoardLogger or CSVLogger; of another logger the folder in which Lightning puts its
    checkpoints. Without a logger it is `lightning_logs/version_0`, or the next number, in `trainer.default_root_dir`
    (if that is not given and checkpoints have a `dirpath`, there), and the checkpoints without a `dirpath` lie in it,
    too. A number that another process takes at the same moment is passed over.

    Every process of the run has to call this, because the first one tells the others.

    Args:
        trainer: The Trainer. Its folder stays the same as long as it lives.
        anyway: Whether a run without a place of its own (see `has_own_place`) gets a folder, too.

    Returns:
        None for a run without a place, and with `fast_dev_run`.

    Raises:
        ValueError: If another process is at work on a run in that folder.
    """
    taken = _TAKEN.get(trainer)
    if taken is not None and taken.agreed:
        return taken.folder
    if is_dry_run(trainer) or not (anyway or has_own_place(trainer)):
        return None
    refused = ""
    if trainer.is_global_zero:
        try:
            taken = _take(trainer)
        except ValueError as error:
            refused = str(error)
    chosen = (os.fspath(taken.folder), taken.numbered) if taken is not None else ("", False)
    refused, (folder, numbered) = trainer.strategy.broadcast((refused, chosen))
    if refused:
        raise ValueError(refused)
    taken = taken or _Taken(Path(folder), numbered)
    taken.agreed = True
    _TAKEN[trainer] = taken
    if numbered:
        _save_checkpoints_in(taken.folder, trainer)
    return taken.folder


def take_folder(trainer: Trainer) -> None:
    """Takes the log folder for a run that is about to start, before its loggers open their files.

    Only the first process does; for what else a folder depends on it is too early.

    Raises:
        ValueError: If another process is at work on a run in that folder.
    """
    _PLACED.setdefault(trainer, [each for each in _saving(trainer) if each.dirpath is None])
    first = trainer.is_global_zero and getattr(trainer.strategy, "local_rank", 0) == 0
    starting = trainer.state.fn == "fit" and trainer not in _TAKEN and not is_dry_run(trainer)
    if first and starting and _is_local(trainer.logger):
        # What is refused here, others would wait for; `run_folder` tells them.
        _TAKEN[trainer] = _take(trainer) if trainer.world_size == 1 else _choose(trainer)


def taken_folder(trainer: Trainer) -> Path | None:
    """Returns the folder of a run if it has one by now; unlike `run_folder` of this process alone."""
    taken = _TAKEN.get(trainer)
    return None if taken is None else taken.folder


def release_folder(trainer: Trainer) -> None:
    """Says that a run has ended. Its Trainer keeps the folder, and others may go on in it."""
    taken = _TAKEN.get(trainer)
    if taken is not None:
        taken.agreed = False
        if taken.lock is not None:
            taken.lock.release()
            taken.lock = None


def has_own_place(trainer: Trainer) -> bool:
    """Returns whether the user has given a run a place for its files.

    That is a logger, `default_root_dir` (which the current folder does not count as), or, while training,
    checkpoints. Without any a run leaves no files.
    """
    saves = trainer.state.fn == "fit" and bool(trainer.checkpoint_callbacks)
    return bool(trainer.loggers) or _given_root(trainer) is not None or saves


def fixed_folder(trainer: Trainer) -> Path | None:
    """Returns the folder that the user has chosen for a run by the version of its logger, None for one that is new."""
    logger = trainer.logger
    return Path(logger.log_dir) if _is_local(logger) and not _is_free(logger) else None


def reason_to_spare(folder: Path, step: int, started: str | None) -> str | None:
    """Returns why a run must not write into a folder: it would overwrite the record of another one that is finished.

    Args:
        folder: Of the run.
        step: The training steps that it has behind it.
        started: When it began, as its checkpoint says; None for a new run.

    Returns:
        None if it may, as the finished run itself may go on from its last step.
    """
    run = find_run(folder)
    if run is None or run.status != "finished" or (started == run.started and step >= run.step):
        return None
    what = f"going on from step {step:,}" if step else "this run"
    return f"{folder} holds a finished run of {run.step:,} steps, which {what} would overwrite. {_REMEDY}"


def is_dry_run(trainer: Trainer) -> bool:
    """Returns whether the Trainer was made with `fast_dev_run`, which leaves no files behind."""
    return bool(getattr(trainer, "fast_dev_run", False))


def _take(trainer: Trainer) -> _Taken:
    taken = _TAKEN.get(trainer) or _choose(trainer)
    if trainer.state.fn == "fit" and taken.lock is None and os.access(taken.folder, os.W_OK):
        lock = FileLock(taken.folder / _LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"Another process is at work on the run in {taken.folder}. {_REMEDY}") from None
        taken.lock = lock
    return taken


def _choose(trainer: Trainer) -> _Taken:
    """Makes a folder for a run; where that is impossible, the first write into it says so."""
    logger = trainer.logger
    if _is_local(logger):
        free = _is_free(logger)
        folder = Path(logger.log_dir)
        # A logger that is free has chosen the next number, which another process may have taken by now.
        while not _make(folder, new=free):
            logger._version = _next_version(logger)
            folder = Path(logger.log_dir)
        return _Taken(folder)
    place = _checkpoint_place(logger, trainer)
    # Such loggers name each run otherwise; where one does not, the record of an earlier run is in the way.
    if place is not None and not (place / "result.json").exists():
        _make(place)
        return _Taken(place)
    number, root = 0, (_given_root(trainer) or Path()) / _NAME
    while not _make(root / f"version_{number}", new=True):
        number += 1
    return _Taken(root / f"version_{number}", numbered=True)


def _make(folder: Path, new: bool = False) -> bool:
    """Makes a folder; returns False if it has to be new and is not."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return True
    try:
        folder.mkdir(exist_ok=not new)
    except FileExistsError:
        return not new
    except OSError:
        pass
    return True


def _is_local(logger: Logger | None) -> TypeGuard[TensorBoardLogger | CSVLogger]:
    """Returns whether a logger writes its files into a folder of this machine that is the run's own."""
    return isinstance(logger, TensorBoardLogger | CSVLogger) and "://" not in os.fspath(logger.save_dir)


def _is_free(logger: TensorBoardLogger | CSVLogger) -> bool:
    """Returns whether a logger chooses its version by itself, as all do that are given none, and has not yet begun."""
    # The default logger's version within SLURM is the number of the job, which may consist of several runs.
    return logger._version in (None, SLURMEnvironment.job_id()) and logger._experiment is None


def _next_version(logger: TensorBoardLogger | CSVLogger) -> int | str:
    """Returns the version after that of a free logger."""
    if SLURMEnvironment.job_id() is None:
        return int(logger.version) + 1
    job, _, number = str(logger.version).removeprefix("version_").partition("_")
    return f"version_{job}_{int(number or 1) + 1}"


def _checkpoint_place(logger: Logger | None, trainer: Trainer) -> Path | None:
    """Returns the folder above the one in which Lightning puts the checkpoints of a run with some other logger."""
    if logger is None or isinstance(logger, TensorBoardLogger | CSVLogger) or not logger.name or not logger.version:
        return None
    root = os.fspath(logger.save_dir or trainer.default_root_dir)
    version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
    return None if "://" in root else Path(root) / logger.name / version


def _given_root(trainer: Trainer) -> Path | None:
    root = Path(trainer.default_root_dir)
    if root != Path.cwd() and "://" not in trainer.default_root_dir:
        return root
    chosen = [each.dirpath for each in _saving(trainer) if each.dirpath and each not in _left_open(trainer)]
    return next((Path(path) for path in chosen if "://" not in os.fspath(path)), None)


def _save_checkpoints_in(folder: Path, trainer: Trainer) -> None:
    for callback in _left_open(trainer):
        callback.dirpath = os.fspath(folder / "checkpoints")


def _left_open(trainer: Trainer) -> list[ModelCheckpoint]:
    """Returns the checkpoint callbacks whose `dirpath` the user has not given."""
    if trainer in _PLACED:
        return _PLACED[trainer]
    usual = os.path.join(trainer.default_root_dir, "checkpoints")  # noqa: PTH118 - as Lightning writes it
    return [each for each in _saving(trainer) if each.dirpath in (None, usual)]


def _saving(trainer: Trainer) -> list[ModelCheckpoint]:
    return [each for each in trainer.checkpoint_callbacks if isinstance(each, ModelCheckpoint)]
