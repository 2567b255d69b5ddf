"""Where a run's files go and how they get there without ever being half written."""

import os
from collections.abc import Callable
from pathlib import Path

from lightning.pytorch import Trainer
from lightning.pytorch.utilities import rank_zero_warn

__all__ = ["CarefulWriter", "is_dry_run", "run_folder", "write_atomically"]


def run_folder(trainer: Trainer) -> Path:
    """Returns the folder that holds the record of a run.

    It is the log folder of the Trainer's first logger, or the Trainer's root folder without a logger. Every
    process has to call this, because the first one tells the others.
    """
    return Path(trainer.log_dir or trainer.default_root_dir)


def is_dry_run(trainer: Trainer) -> bool:
    """Returns whether the Trainer was made with `fast_dev_run`, which leaves no files behind."""
    return bool(getattr(trainer, "fast_dev_run", False))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file so that a reader, or a kill at any moment, finds the old content or the new one.

    Args:
        path: The file; missing folders are made.
        content: Text (written as UTF-8) or bytes.

    Raises:
        OSError: If it cannot be written; what was there before is left as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not `tempfile`: its files can be read by the owner alone, whatever the umask.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class CarefulWriter:
    """Writes files of a run, and lets the training go on where that fails.

    Args:
        what: What the files are, for the warning.

    Attributes:
        failed: Whether a write has failed so far.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.failed = False

    def write(self, path: Path, content: str | bytes | Callable[[], str | bytes]) -> bool:
        """Writes atomically; warns at the first failure only.

        Args:
            path: The file.
            content: Text, bytes, or a function that makes them.

        Returns:
            Whether it was written.
        """
        try:
            write_atomically(path, content() if callable(content) else content)
        except OSError as error:
            if not self.failed:
                rank_zero_warn(
                    f"{self.what} cannot be written to {path.parent} ({error}). The training goes on without."
                )
            self.failed = True
            return False
        return True
