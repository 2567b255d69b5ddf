"""File names for tasks."""

import unicodedata
from collections.abc import Sequence

from lws_lightning.callbacks import tags_of

__all__ = ["file_names"]

_MAX_CHARACTERS, _MAX_BYTES = 100, 200


def file_names(names: Sequence[str]) -> list[str]:
    """Turns distinct task names into file names without a suffix that are distinct on every system.

    Letters and digits of any script, `_`, `-` and `.` are kept; a run of anything else and a leading dot become `_`.
    Names that would be the same, ignoring case, get a number appended.
    """
    result: list[str] = []
    taken: set[str] = set()
    for tag in tags_of(names, reserved=()):
        stem = unicodedata.normalize("NFC", tag)[:_MAX_CHARACTERS]
        stem = stem.encode()[:_MAX_BYTES].decode(errors="ignore")
        if stem.startswith("."):
            stem = f"_{stem[1:]}"
        name, number = stem, 2
        while name.casefold() in taken:
            name, number = f"{stem}_{number}", number + 1
        taken.add(name.casefold())
        result.append(name)
    return result
