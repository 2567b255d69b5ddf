"""Standard output in any encoding."""

import io
import sys

__all__ = ["escape_unencodable_output"]


def escape_unencodable_output() -> None:
    r"""Prints characters that the encoding of the output lacks as `\u65e5` instead of failing.

    Output to a file or a pipe has the encoding of the system or of PYTHONIOENCODING.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not in notebooks
            stream.reconfigure(errors="backslashreplace")
