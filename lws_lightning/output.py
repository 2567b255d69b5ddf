"""What is printed, wherever it goes."""

import io
import sys

__all__ = ["print_all_names"]


def print_all_names() -> None:
    r"""Lets the names of tasks and files be printed in any encoding; what it lacks is written as `\u65e5`.

    Output that goes into a file or a pipe has the encoding of the system or of PYTHONIOENCODING.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # notebooks have streams of their own
            stream.reconfigure(errors="backslashreplace")
