"""Names of tasks as names of files."""

import unicodedata
from collections.abc import Sequence

from lws_lightning.callbacks import tags_of

__all__ = ["file_names"]

_LONGEST = 100  # characters, at most 400 bytes in UTF-8 before they are cut to fit 200


def file_names(names: Sequence[str]) -> list[str]:
    """Turns the names of tasks into names of files without a suffix, different from each other on every system.

    Letters and digits of any script, `_`, `-` and `.` stay; a run of anything else becomes `_`. So does a dot at the
    start. Names that would be one, also where capitals do not count, get a number appended.

    Args:
        names: Distinct names.

    Returns:
        A name for each.
    """
    made: list[str] = []
    taken: set[str] = set()
    for tag in tags_of(names, reserved=()):
        stem = unicodedata.normalize("NFC", tag)[:_LONGEST]
        stem = stem.encode()[:200].decode(errors="ignore")
        if stem.startswith("."):
            stem = f"_{stem[1:]}"
        name, number = stem, 2
        while name.casefold() in taken:
            name, number = f"{stem}_{number}", number + 1
        taken.add(name.casefold())
        made.append(name)
    return made
