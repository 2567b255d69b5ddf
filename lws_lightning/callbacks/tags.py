"""Names of layers as logging tags."""

import re
from collections.abc import Collection, Sequence

__all__ = ["tags_of"]


def tags_of(names: Sequence[str], reserved: Collection[str] = ("mean",)) -> list[str]:
    """Turns names into parts of tags that loggers, file names and monitors can hold, and keeps them distinct.

    Letters and digits of any script, `_`, `-` and `.` stay; a run of anything else, `/` included, becomes `_`.
    Where two names would become one, or a name is reserved, a number is appended.

    Args:
        names: Distinct names.
        reserved: Tags that the names must not become.

    Returns:
        A tag for each name, all different.
    """
    cleaned = [re.sub(r"[^\w.\-]+", "_", name) or "_" for name in names]
    taken = set(reserved)
    tags: dict[int, str] = {}
    # Names that need no change come first, so that they keep theirs.
    for index in sorted(range(len(names)), key=lambda i: cleaned[i] != names[i]):
        tag, number = cleaned[index], 2
        while tag in taken:
            tag, number = f"{cleaned[index]}_{number}", number + 1
        taken.add(tag)
        tags[index] = tag
    return [tags[index] for index in range(len(names))]
