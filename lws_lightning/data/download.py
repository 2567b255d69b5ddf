"""Downloads that are safe against interruption and against a second run at the same time."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock, Timeout
from lightning.pytorch.utilities import rank_zero_info

__all__ = ["download_files"]


def download_files(
    root: Path,
    *,
    dataset: str,
    url: str,
    files: Sequence[str],
    problem: Callable[[Path], str | None],
    fetch: Callable[[Path], None],
) -> None:
    """Brings `files` into `root`, unless they are there already.

    They are fetched into a temporary folder within `root`, verified there and moved in one by one, each
    atomically. A lock keeps a second run out of the same folder, and an interrupted download leaves nothing
    that could be taken for a complete file. With complete files nothing is fetched and nothing is written.

    Args:
        root: Folder of the data; made where it is missing.
        dataset: Name of the data set, for messages.
        url: Where the files come from, for messages.
        files: Paths relative to `root`.
        problem: Says what is wrong with the file at a path ("missing", ...), or None where it is complete.
        fetch: Fetches the files into the folder that it is given, laid out as in `root`. What else it leaves
            there is removed.

    Raises:
        RuntimeError: The download failed, or what came is not the data. Names data set, URL and folder.
    """

    def needed() -> list[str]:
        return [file for file in files if problem(root / file) is not None]

    if not needed():
        return
    by_hand = f"To place the files by hand: get {url}, unpack it and put the files under {root.resolve()}."
    temporary = root / f".{dataset}.download"
    lock = FileLock(root / f".{dataset}.lock")
    try:
        root.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            rank_zero_info(f"{dataset}: waiting for another run that downloads into {root} ...")
            lock.acquire()
    except OSError as error:
        raise RuntimeError(f"{dataset}: cannot write to {root.resolve()} ({error}). {by_hand}") from error
    try:
        wanted = needed()  # the other run may have brought them meanwhile
        if not wanted:
            return
        shutil.rmtree(temporary, ignore_errors=True)  # of an interrupted run
        temporary.mkdir()
        fetch(temporary)
        damaged = [f"{Path(file).name} is {what}" for file in wanted if (what := problem(temporary / file)) is not None]
        if damaged:
            raise RuntimeError(f"after unpacking {'; '.join(damaged)}")
        for file in wanted:
            target = root / file
            target.parent.mkdir(parents=True, exist_ok=True)
            (temporary / file).replace(target)
    except Exception as error:  # torchvision, urllib, zipfile and gzip each raise their own kinds
        raise RuntimeError(
            f"{dataset}: the download from {url} into {root.resolve()} failed "
            f"({type(error).__name__}: {error}). {by_hand}"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        lock.release()
