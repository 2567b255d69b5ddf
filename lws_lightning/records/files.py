"""Files that are whole or not there."""

import os
from collections.abc import Callable
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn

__all__ = ["CarefulWriter", "mark_failed_in_place", "write_atomically"]


def write_atomically(path: Path, content: str | bytes | memoryview) -> None:
    """Writes a file so that a reader, or a kill at any moment, finds the old content or the new one.

    Args:
        path: The file; missing folders are made.
        content: Text (written as UTF-8) or bytes.

    Raises:
        OSError: If it cannot be written, with the file's name; what was there before is left as it was.
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
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # that of a full disk names no file
    finally:
        temporary.unlink(missing_ok=True)


def mark_failed_in_place(path: Path) -> None:
    """Makes a record that says `running` say `failed`, where the disk is so full that no other file can be written."""
    running, failed = b'"status": "running"', b'"status": "failed" '  # of one length: no other byte moves
    try:
        with path.open("r+b") as file:
            position = file.read().find(running)
            if position >= 0:
                file.seek(position)
                file.write(failed)
    except OSError:  # nothing is left to be tried
        pass


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
                    f"{self.what} cannot be written to {path.parent} ({error}). That alone does not end the run."
                )
            self.failed = True
            return False
        return True
