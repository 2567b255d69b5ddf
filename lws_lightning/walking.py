"""Walks through folders, follows links, and never goes in a circle."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["leads_back", "walk"]


def walk(
    folder: str | Path,
    skip: Callable[[str], bool] = lambda name: False,
    on_error: Callable[[OSError], object] | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Walks through a folder and everything below it, links to folders included.

    A link to a folder that it lies in, also by way of other links, is left out (`leads_back`); two links to the same
    folder are both followed.

    Args:
        folder: The folder to start in.
        skip: Called with the name of a folder or file; says which ones to leave out.
        on_error: Called where a folder cannot be read. None: the error is raised.

    Yields:
        The path of each folder, which begins with `folder` as it is given, and the names of its files, sorted.

    Raises:
        OSError: If a folder cannot be read.
    """

    def fail(error: OSError) -> None:
        raise error

    above = {str(folder): (*_folders_above(folder), os.path.realpath(folder))}
    for place, folders, files in os.walk(folder, followlinks=True, onerror=on_error or fail):
        chain = above.pop(place)
        followed = []
        for name in sorted(folders):
            path = os.path.join(place, name)  # noqa: PTH118 (as given, with a leading "./")
            real = os.path.realpath(path)
            if not skip(name) and real not in chain:
                above[path] = (*chain, real)
                followed.append(name)
        folders[:] = followed
        yield place, sorted(name for name in files if not skip(name))


def leads_back(folder: str | Path) -> bool:
    """Says whether a folder is a link to one of its own parents."""
    return Path(folder).is_dir() and os.path.realpath(folder) in _folders_above(folder)


def _folders_above(path: str | Path) -> tuple[str, ...]:
    """Returns the real paths of a path's parents."""
    return tuple(os.path.realpath(parent) for parent in Path(os.path.abspath(path)).parents)  # noqa: PTH100
