"""Prints sentences that fit a terminal."""

import shutil
import textwrap

__all__ = ["say"]

_WIDEST = 100


def say(text: str, indent: int = 0) -> None:
    """Prints a paragraph, its further lines indented."""
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    wrapped = textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    print(wrapped, flush=True)
