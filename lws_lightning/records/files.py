"""Atomic and best-effort writing of files."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

__all__ = ["BestEffortWriter", "mark_failed_in_place", "write_atomically"]


def write_atomically(path: Path, content: str | bytes | memoryview) -> None:
    """Writes a file atomically: at any moment, also after a kill, it has either the old or the new content.

    Args:
        path: The file; missing folders are created.
        content: Text (written as UTF-8) or bytes.

    Raises:
        OSError: If it cannot be written; names the file. The old file is left unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not `tempfile`: only the owner can read its files, whatever the umask.
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
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # a full disk's error names no file
    finally:
        temporary.unlink(missing_ok=True)


def mark_failed_in_place(path: Path) -> None:
    """Changes a record's status from `running` to `failed` when the disk is too full to write a new file."""
    running, failed = b'"status": "running"', b'"status": "failed" '  # same length, so that no other byte moves
    try:
        with path.open("r+b") as file:
            position = file.read().find(running)
            if position >= 0:
                file.seek(position)
                file.write(failed)
    except OSError:  # nothing else can be tried
        pass


class BestEffortWriter:
    """Writes files of a run; training continues if that fails.

    Args:
        description: What the files are, for the warning.

    Attributes:
        failed: Whether a write has failed so far.
    """

    def __init__(self, description: str) -> None:
        self.description = description
        self.failed = False

    def write(self, path: Path, content: str | bytes | Callable[[], str | bytes]) -> bool:
        """Writes atomically; warns at the first failure only. Returns whether the file was written.

        Args:
            path: The file.
            content: Text, bytes, or a function that returns them.
        """
        try:
            write_atomically(path, content() if callable(content) else content)
        except OSError as error:
            self.warn(path.parent, error)
            return False
        return True

    def warn(self, folder: Path, error: OSError) -> None:
        """Notes that something cannot be written to a folder; warns the first time."""
        if not self.failed:
            text = f"{self.description} cannot be written to {folder} ({error}). The run continues."
            warnings.warn(text, stacklevel=3)
        self.failed = True
