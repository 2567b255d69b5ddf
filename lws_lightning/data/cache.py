"""Keeps decoded images between runs, outside the folder of the data."""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn

__all__ = ["ArrayCache", "fingerprint"]


def fingerprint(files: Iterable[Path], folder: Path) -> str:
    """Returns a hash of the names of `files` below `folder`, and of what changes when one is written or replaced.

    That is size, modification time, inode and time of the inode's change: other content may keep the first two.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(files):
        status = file.stat()
        name, times = file.relative_to(folder).as_posix(), f"{status.st_mtime_ns}\0{status.st_ctime_ns}"
        line = f"{name}\0{status.st_size}\0{times}\0{status.st_dev}\0{status.st_ino}\n"
        digest.update(line.encode(errors="surrogateescape"))  # names that are no UTF-8
    return digest.hexdigest()


class ArrayCache:
    """Arrays in a folder, each with the fingerprint of what it was made from.

    A file is written under another name and moved into place, so that another run sees all of it or nothing. A file
    that is damaged or has another fingerprint counts as absent. A folder that cannot be written to gives one warning.

    Args:
        folder: Folder of the arrays, made when the first is saved. None: `$XDG_CACHE_HOME/lws_lightning`, or
            `~/.cache/lws_lightning`.
        dataset: Name of the data set, for the warning.
        compressed: Whether files are compressed. Photographs hardly become smaller, and it takes long.
    """

    def __init__(self, folder: str | None, dataset: str, compressed: bool = True) -> None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        self._given = base / "lws_lightning" if folder is None else Path(folder)
        self._dataset = dataset
        self._writable = True
        self._save = np.savez_compressed if compressed else np.savez

    def load(self, source: Path, mark: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Returns the uint8 array of `shape` made from the folder `source` in the state `mark`, or None."""
        try:
            with np.load(self._file(source), allow_pickle=False) as file:
                if str(file["fingerprint"]) != mark:
                    return None
                array: np.ndarray = file["array"]  # the zip format's checksum is compared here
        except Exception:  # a damaged file raises exceptions of any kind
            return None
        return array if array.shape == shape and array.dtype == np.uint8 else None

    def save(self, source: Path, mark: str, array: np.ndarray) -> None:
        """Keeps the array made from the folder `source` in the state `mark`, in place of an older one."""
        if not self._writable:
            return
        temporary = None
        try:
            target = self._file(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".", suffix=".part", delete=False) as file:
                temporary = Path(file.name)
                self._save(file, fingerprint=np.array(mark), array=array)
            temporary.replace(target)
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
            self._writable = False
            rank_zero_warn(
                f"{self._dataset}: cannot keep the decoded images in {self._given} ({error}), so that every run "
                "decodes them; set --data.cache_dir to a folder that can be written to."
            )
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)

    def _file(self, source: Path) -> Path:
        place = hashlib.blake2b(str(source.resolve()).encode(), digest_size=6).hexdigest()
        return self._given.expanduser() / self._dataset / f"{source.name}-{place}.npz"
