"""Which folder a run writes to."""

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

from lws_lightning.records import RECORD_FILE, find_run

__all__ = [
    "claim_folder",
    "claimed_folder",
    "fixed_folder",
    "has_output_location",
    "is_dry_run",
    "overwrite_refusal",
    "release_folder",
    "run_folder",
]

_DEFAULT_FOLDER = "lightning_logs"
_LOCK = ".run.lock"
_REMEDY = "Give this run a folder of its own: another save_dir of the logger (--trainer.logger.init_args.save_dir DIR)."


@dataclass
class _Claim:
    """The folder of a Trainer's run; `agreed` once all processes know it, `numbered` if no logger chose it."""

    folder: Path
    numbered: bool = False
    agreed: bool = False
    lock: FileLock | None = None


_CLAIMS: WeakKeyDictionary[Trainer, _Claim] = WeakKeyDictionary()
_WITHOUT_DIRPATH: WeakKeyDictionary[Trainer, list[ModelCheckpoint]] = WeakKeyDictionary()
"""The checkpoint callbacks to which the user gave no `dirpath`; Lightning sets it before run folders are known."""


def run_folder(trainer: Trainer, create_default: bool = False) -> Path | None:
    """Returns the folder of a run; no other run writes there at the same time.

    It is the log folder of a TensorBoardLogger or CSVLogger; with another logger, the folder in which Lightning puts
    its checkpoints. Without a logger it is `lightning_logs/version_0`, or the next free number, in
    `trainer.default_root_dir` (if that is not given and checkpoints have a `dirpath`, in the latter), and checkpoints
    without a `dirpath` are saved in it, too. A number that another process takes at the same moment is skipped.

    Every process of the run has to call this, because the first one broadcasts the folder.

    Args:
        trainer: The Trainer. Its folder never changes.
        create_default: Whether a run without an output location (see `has_output_location`) gets a folder, too.

    Returns:
        None with `fast_dev_run`, and without an output location unless `create_default` is set.

    Raises:
        ValueError: If another process is working on a run in that folder.
    """
    claim = _CLAIMS.get(trainer)
    if claim is not None and claim.agreed:
        return claim.folder
    if is_dry_run(trainer) or not (create_default or has_output_location(trainer)):
        return None
    refusal = ""
    if trainer.is_global_zero:
        try:
            claim = _lock_folder(trainer)
        except ValueError as error:
            refusal = str(error)
    chosen = (os.fspath(claim.folder), claim.numbered) if claim is not None else ("", False)
    refusal, (folder, numbered) = trainer.strategy.broadcast((refusal, chosen))
    if refusal:
        raise ValueError(refusal)
    claim = claim or _Claim(Path(folder), numbered)
    claim.agreed = True
    _CLAIMS[trainer] = claim
    if numbered:
        for callback in _without_dirpath(trainer):
            callback.dirpath = os.fspath(claim.folder / "checkpoints")
    return claim.folder


def claim_folder(trainer: Trainer) -> None:
    """Claims the log folder of a run that is about to start, before its loggers open their files.

    Only the first process does so. A folder that is not a logger's cannot be determined yet.

    Raises:
        ValueError: If another process is working on a run in that folder.
    """
    _WITHOUT_DIRPATH.setdefault(trainer, [c for c in _model_checkpoints(trainer) if c.dirpath is None])
    first = trainer.is_global_zero and getattr(trainer.strategy, "local_rank", 0) == 0
    starting = trainer.state.fn == "fit" and trainer not in _CLAIMS and not is_dry_run(trainer)
    if first and starting and _is_local(trainer.logger):
        # With several processes an error here would leave the others waiting; `run_folder` broadcasts it.
        _CLAIMS[trainer] = _lock_folder(trainer) if trainer.world_size == 1 else _choose(trainer)


def claimed_folder(trainer: Trainer) -> Path | None:
    """Returns the folder of a run if it is known already; unlike `run_folder`, one process may call this alone."""
    claim = _CLAIMS.get(trainer)
    return None if claim is None else claim.folder


def release_folder(trainer: Trainer) -> None:
    """Releases the folder at the end of a run. Its Trainer keeps the folder, and others may continue in it."""
    claim = _CLAIMS.get(trainer)
    if claim is not None:
        claim.agreed = False
        if claim.lock is not None:
            claim.lock.release()
            claim.lock = None


def has_output_location(trainer: Trainer) -> bool:
    """Returns whether the user has chosen where a run writes files; otherwise it writes none.

    That is a logger, `default_root_dir` (unless it is the current folder), or, while training, checkpoints.
    """
    saves = trainer.state.fn == "fit" and bool(trainer.checkpoint_callbacks)
    return bool(trainer.loggers) or _root_folder(trainer) is not None or saves


def fixed_folder(trainer: Trainer) -> Path | None:
    """Returns the folder that the user has chosen by the version of the logger, None if it will be a new one."""
    logger = trainer.logger
    return Path(logger.log_dir) if _is_local(logger) and not _picks_version(logger) else None


def overwrite_refusal(folder: Path, step: int, started: str | None) -> str | None:
    """Returns why a run must not write to a folder: it would overwrite the record of another, finished run.

    Args:
        folder: Of the run.
        step: Training steps completed.
        started: Start time in its checkpoint; None for a new run.

    Returns:
        None if it may; the finished run itself may continue from its last step.
    """
    run = find_run(folder)
    if run is None or run.status != "finished" or (started == run.started and step >= run.step):
        return None
    subject = f"resuming from step {step:,}" if step else "this run"
    return f"{folder} holds a finished run of {run.step:,} steps, which {subject} would overwrite. {_REMEDY}"


def is_dry_run(trainer: Trainer) -> bool:
    """Returns whether the Trainer has `fast_dev_run`, which leaves no files."""
    return bool(getattr(trainer, "fast_dev_run", False))


def _lock_folder(trainer: Trainer) -> _Claim:
    claim = _CLAIMS.get(trainer) or _choose(trainer)
    if trainer.state.fn == "fit" and claim.lock is None and os.access(claim.folder, os.W_OK):
        lock = FileLock(claim.folder / _LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"Another process is working on the run in {claim.folder}. {_REMEDY}") from None
        claim.lock = lock
    return claim


def _choose(trainer: Trainer) -> _Claim:
    """Creates a folder for a run; if that is impossible, the first write to it fails with an error."""
    logger = trainer.logger
    if _is_local(logger):
        new = _picks_version(logger)
        folder = Path(logger.log_dir)
        # The logger has chosen the next free number, which another process may have taken since.
        while not _create(folder, new=new):
            logger._version = _next_version(logger)
            folder = Path(logger.log_dir)
        return _Claim(folder)
    checkpoints = _parent_of_checkpoints(logger, trainer)
    # Such loggers name each run differently; where one does not, the record of an earlier run is in the way.
    if checkpoints is not None and not (checkpoints / RECORD_FILE).exists():
        _create(checkpoints)
        return _Claim(checkpoints)
    number, root = 0, (_root_folder(trainer) or Path()) / _DEFAULT_FOLDER
    while not _create(root / f"version_{number}", new=True):
        number += 1
    return _Claim(root / f"version_{number}", numbered=True)


def _create(folder: Path, new: bool = False) -> bool:
    """Creates a folder; returns False if it has to be new but exists."""
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
    """Returns whether a logger writes its files to a local folder of the run's own."""
    return isinstance(logger, TensorBoardLogger | CSVLogger) and "://" not in os.fspath(logger.save_dir)


def _picks_version(logger: TensorBoardLogger | CSVLogger) -> bool:
    """Returns whether a logger numbers its version itself, because it was given none, and has not started."""
    # Within SLURM the default logger's version is the job's number, and a job may consist of several runs.
    return logger._version in (None, SLURMEnvironment.job_id()) and logger._experiment is None


def _next_version(logger: TensorBoardLogger | CSVLogger) -> int | str:
    if SLURMEnvironment.job_id() is None:
        return int(logger.version) + 1
    job, _, number = str(logger.version).removeprefix("version_").partition("_")
    return f"version_{job}_{int(number or 1) + 1}"


def _parent_of_checkpoints(logger: Logger | None, trainer: Trainer) -> Path | None:
    """Returns the parent of the folder in which Lightning puts a run's checkpoints with any other logger."""
    if logger is None or isinstance(logger, TensorBoardLogger | CSVLogger) or not logger.name or not logger.version:
        return None
    root = os.fspath(logger.save_dir or trainer.default_root_dir)
    version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
    return None if "://" in root else Path(root) / logger.name / version


def _root_folder(trainer: Trainer) -> Path | None:
    """Returns the `default_root_dir` that the user gave, else the first local `dirpath`."""
    root = Path(trainer.default_root_dir)
    if root != Path.cwd() and "://" not in trainer.default_root_dir:
        return root
    without = _without_dirpath(trainer)
    dirpaths = [c.dirpath for c in _model_checkpoints(trainer) if c.dirpath and c not in without]
    return next((Path(path) for path in dirpaths if "://" not in os.fspath(path)), None)


def _without_dirpath(trainer: Trainer) -> list[ModelCheckpoint]:
    """Returns the checkpoint callbacks to which the user gave no `dirpath`."""
    if trainer in _WITHOUT_DIRPATH:
        return _WITHOUT_DIRPATH[trainer]
    default = os.path.join(trainer.default_root_dir, "checkpoints")  # noqa: PTH118 - as Lightning writes it
    return [c for c in _model_checkpoints(trainer) if c.dirpath in (None, default)]


def _model_checkpoints(trainer: Trainer) -> list[ModelCheckpoint]:
    return [callback for callback in trainer.checkpoint_callbacks if isinstance(callback, ModelCheckpoint)]
