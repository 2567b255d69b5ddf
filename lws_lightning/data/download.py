"""The files of a public data set: verification, and downloads that can be interrupted."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from lightning.pytorch.utilities import rank_zero_info

__all__ = ["DataFiles", "files_error", "require_files"]


@dataclass(frozen=True)
class DataFiles:
    """The files of one download.

    Attributes:
        dataset: Name of the data set, for messages.
        url: Source, for messages.
        root: Folder of the files; a download creates it.
        names: Paths relative to `root`, of files or folders.
        problem: Returns what is wrong with the file at a path ("missing", ...), or None if it is complete.
        fetch: Downloads the files to a given folder, laid out as in `root`. Other files that it leaves there are
            removed.
    """

    dataset: str
    url: str
    root: Path
    names: Sequence[str]
    problem: Callable[[Path], str | None]
    fetch: Callable[[Path], object]

    def problems(self, folder: Path | None = None) -> dict[str, str]:
        """Returns what is wrong with each incomplete file, in `root` or another folder."""
        problems = {name: self.problem((folder or self.root) / name) for name in self.names}
        return {name: problem for name, problem in problems.items() if problem is not None}

    def download(self) -> None:
        """Downloads the files to `root`, unless they are complete.

        They are downloaded to a temporary folder within `root`, verified and moved one by one, each atomically. A lock
        excludes other runs, and an interrupted download leaves no incomplete file.

        Raises:
            RuntimeError: The download failed, or its files are damaged. Names data set, URL and folder.
        """
        if not self.problems():
            return
        root = self.root.resolve()
        by_hand = f"To install the files manually: download {self.url}, unpack it and put the files under {root}."
        temporary = self.root / f".{self.dataset}.download"
        lock = FileLock(self.root / f".{self.dataset}.lock")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                rank_zero_info(f"{self.dataset}: waiting for another run that downloads to {self.root} ...")
                lock.acquire()
        except OSError as error:
            raise RuntimeError(f"{self.dataset}: cannot write to {root} ({error}). {by_hand}") from error
        try:
            missing = self.problems()  # another run may have downloaded them in the meantime
            if not missing:
                return
            shutil.rmtree(temporary, ignore_errors=True)  # of an interrupted run
            temporary.mkdir()
            self.fetch(temporary)
            damaged = [
                f"{Path(name).name} is {problem}"
                for name, problem in self.problems(temporary).items()
                if name in missing
            ]
            if damaged:
                raise RuntimeError(f"after unpacking, {'; '.join(damaged)}")
            for name in missing:
                target = self.root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).replace(target)
        except Exception as error:  # torchvision, urllib, zipfile and gzip each raise their own kinds
            raise RuntimeError(
                f"{self.dataset}: the download from {self.url} to {root} failed "
                f"({type(error).__name__}: {error}). {by_hand}"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            lock.release()


def require_files(dataset: str, sources: Sequence[DataFiles]) -> None:
    """Raises a FileNotFoundError that names every missing or damaged file."""
    lines = []
    for source in sources:
        problems = source.problems()
        missing = [Path(name).name for name, problem in problems.items() if problem == "missing"]
        if problems:
            folder = (source.root / source.names[0]).parent.resolve()
            lines.append(f"{source.dataset} in {folder} (from {source.url}):")
            lines += [f"  {Path(name).name}: {problem}" for name, problem in problems.items() if problem != "missing"]
        if missing:
            lines.append(f"  missing: {', '.join(missing)}")
    if lines:
        raise files_error(dataset, lines)


def files_error(dataset: str, lines: Sequence[str]) -> FileNotFoundError:
    """Returns the error for missing or damaged files; `lines` describe them."""
    return FileNotFoundError(
        f"{dataset}: data files are missing or damaged.\n"
        + "\n".join(lines)
        + "\nSet --data.download true, or download the archives manually, unpack them and put the files there."
    )
