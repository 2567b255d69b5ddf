"""A cache of decoded images, outside the folder of the data."""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn

__all__ = ["ArrayCache", "fingerprint"]


def fingerprint(files: Iterable[Path], folder: Path) -> str:
    """Returns a hash of `files`: their names relative to `folder`, sizes, inodes, modification and change times.

    New content may have the same size and modification time.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(files):
        status = file.stat()
        name, times = file.relative_to(folder).as_posix(), f"{status.st_mtime_ns}\0{status.st_ctime_ns}"
        line = f"{name}\0{status.st_size}\0{times}\0{status.st_dev}\0{status.st_ino}\n"
        digest.update(line.encode(errors="surrogateescape"))  # names may not be UTF-8
    return digest.hexdigest()


class ArrayCache:
    """Arrays in a folder, each with the fingerprint of its source.

    Files are written atomically. A file that is damaged or has another fingerprint counts as absent. A folder that
    cannot be written to gives one warning.

    Args:
        folder: Folder of the arrays, created when the first is saved. None: `$XDG_CACHE_HOME/lws_lightning`, or
            `~/.cache/lws_lightning`.
        dataset: Name of the data set, for the warning.
        compressed: Whether to compress files, which is slow and saves little for photographs.
    """

    def __init__(self, folder: str | None, dataset: str, compressed: bool = True) -> None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        self._folder = base / "lws_lightning" if folder is None else Path(folder)
        self._dataset = dataset
        self._writable = True
        self._save = np.savez_compressed if compressed else np.savez

    def load(self, source: Path, fingerprint: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Returns the uint8 array of `shape` made from `source` with this fingerprint, or None."""
        try:
            with np.load(self._file(source), allow_pickle=False) as file:
                if str(file["fingerprint"]) != fingerprint:
                    return None
                array: np.ndarray = file["array"]  # verifies the zip format's checksum
        except Exception:  # a damaged file raises exceptions of any kind
            return None
        return array if array.shape == shape and array.dtype == np.uint8 else None

    def save(self, source: Path, fingerprint: str, array: np.ndarray) -> None:
        """Saves the array made from `source` with this fingerprint, and replaces an older one."""
        if not self._writable:
            return
        temporary = None
        try:
            target = self._file(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".", suffix=".part", delete=False) as file:
                temporary = Path(file.name)
                self._save(file, fingerprint=np.array(fingerprint), array=array)
            temporary.replace(target)
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
            self._writable = False
            rank_zero_warn(
                f"{self._dataset}: cannot cache the decoded images in {self._folder} ({error}), so every run decodes "
                "them; set --data.cache_dir to a writable folder."
            )
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)

    def _file(self, source: Path) -> Path:
        path_hash = hashlib.blake2b(str(source.resolve()).encode(), digest_size=6).hexdigest()
        return self._folder.expanduser() / self._dataset / f"{source.name}-{path_hash}.npz"
