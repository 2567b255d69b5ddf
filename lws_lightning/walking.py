"""Walks folders recursively, following links without cycles."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["links_to_parent", "walk"]


def walk(
    folder: str | Path,
    skip: Callable[[str], bool] = lambda name: False,
    on_error: Callable[[OSError], object] | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Walks a folder recursively, following links to folders.

    A link to a folder that contains it, also by way of other links, is skipped (`links_to_parent`); two links to the
    same folder are both followed.

    Args:
        folder: The folder to start in.
        skip: Returns whether to skip a folder or file of this name.
        on_error: Called if a folder cannot be read. None: the error is raised.

    Yields:
        The path of each folder, beginning with `folder` as given, and the names of its files, sorted.

    Raises:
        OSError: If a folder cannot be read and `on_error` is None.
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


def links_to_parent(folder: str | Path) -> bool:
    """Returns whether a folder is a link to one of its own parents."""
    return Path(folder).is_dir() and os.path.realpath(folder) in _folders_above(folder)


def _folders_above(path: str | Path) -> tuple[str, ...]:
    """Returns the real paths of a path's parents."""
    return tuple(os.path.realpath(parent) for parent in Path(os.path.abspath(path)).parents)  # noqa: PTH100
