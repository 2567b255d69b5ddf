"""Names of layers as logging tags."""

import re
from collections.abc import Collection, Sequence

__all__ = ["tags_of"]


def tags_of(names: Sequence[str], reserved: Collection[str] = ("mean",)) -> list[str]:
    """Turns distinct names into distinct tags that loggers, file names and monitors accept.

    Letters and digits of any script, `_`, `-` and `.` are kept; a run of anything else, including `/`, becomes `_`.
    If two names would become the same, or one of `reserved`, a number is appended.
    """
    cleaned = [re.sub(r"[^\w.\-]+", "_", name) or "_" for name in names]
    taken = set(reserved)
    tags: dict[int, str] = {}
    # Names that need no change come first, so that they are kept.
    for index in sorted(range(len(names)), key=lambda i: cleaned[i] != names[i]):
        tag, number = cleaned[index], 2
        while tag in taken:
            tag, number = f"{cleaned[index]}_{number}", number + 1
        taken.add(tag)
        tags[index] = tag
    return [tags[index] for index in range(len(names))]
