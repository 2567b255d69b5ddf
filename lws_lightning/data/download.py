"""The files of a public data set: whether they are there, and downloads that are safe against interruption."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from lightning.pytorch.utilities import rank_zero_info

__all__ = ["DataFiles", "files_error", "require_files"]


@dataclass(frozen=True)
class DataFiles:
    """Files that one download brings.

    Attributes:
        dataset: What messages call them.
        url: Where they come from, for messages.
        root: Folder that they lie in and are downloaded into; made where it is missing.
        names: Paths relative to `root`, of files or folders.
        problem: Says what is wrong with the file at a path ("missing", ...), or None where it is complete.
        fetch: Fetches the files into the folder that it is given, laid out as in `root`. What else it leaves
            there is removed.
    """

    dataset: str
    url: str
    root: Path
    names: Sequence[str]
    problem: Callable[[Path], str | None]
    fetch: Callable[[Path], object]

    def problems(self, folder: Path | None = None) -> dict[str, str]:
        """Returns what is wrong with each file that is not complete, in `root` or another folder."""
        found = {name: self.problem((folder or self.root) / name) for name in self.names}
        return {name: what for name, what in found.items() if what is not None}

    def download(self) -> None:
        """Downloads the files into `root`, unless they are there already.

        They are fetched into a temporary folder within `root`, verified there and moved in one by one, each
        atomically. A lock keeps a second run out of the same folder, and an interrupted download leaves nothing
        that could be taken for a complete file. With complete files nothing is fetched and nothing is written.

        Raises:
            RuntimeError: The download failed, or what came is not the data. Names data set, URL and folder.
        """
        if not self.problems():
            return
        root = self.root.resolve()
        by_hand = f"To place the files by hand: get {self.url}, unpack it and put the files under {root}."
        temporary = self.root / f".{self.dataset}.download"
        lock = FileLock(self.root / f".{self.dataset}.lock")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                rank_zero_info(f"{self.dataset}: waiting for another run that downloads into {self.root} ...")
                lock.acquire()
        except OSError as error:
            raise RuntimeError(f"{self.dataset}: cannot write to {root} ({error}). {by_hand}") from error
        try:
            wanted = self.problems()  # the other run may have brought them meanwhile
            if not wanted:
                return
            shutil.rmtree(temporary, ignore_errors=True)  # of an interrupted run
            temporary.mkdir()
            self.fetch(temporary)
            damaged = {name: what for name, what in self.problems(temporary).items() if name in wanted}
            if damaged:
                found = "; ".join(f"{Path(name).name} is {what}" for name, what in damaged.items())
                raise RuntimeError(f"after unpacking {found}")
            for name in wanted:
                target = self.root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).replace(target)
        except Exception as error:  # torchvision, urllib, zipfile and gzip each raise their own kinds
            raise RuntimeError(
                f"{self.dataset}: the download from {self.url} into {root} failed "
                f"({type(error).__name__}: {error}). {by_hand}"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            lock.release()


def require_files(dataset: str, sources: Sequence[DataFiles]) -> None:
    """Raises a FileNotFoundError that names every missing or damaged file."""
    complaints = []
    for source in sources:
        problems = source.problems()
        missing = [Path(name).name for name, what in problems.items() if what == "missing"]
        if problems:
            folder = (source.root / source.names[0]).parent.resolve()
            complaints.append(f"{source.dataset} in {folder} (from {source.url}):")
            complaints += [f"  {Path(name).name}: {what}" for name, what in problems.items() if what != "missing"]
        if missing:
            complaints.append(f"  missing: {', '.join(missing)}")
    if complaints:
        raise files_error(dataset, complaints)


def files_error(dataset: str, complaints: Sequence[str]) -> FileNotFoundError:
    """Returns the error for missing or damaged files: a line each, and what to do."""
    return FileNotFoundError(
        f"{dataset}: data files are missing or damaged.\n"
        + "\n".join(complaints)
        + "\nSet --data.download true, or get the archives by hand, unpack them and put the files there."
    )
