"""What the command prints: in any encoding, and without warnings that do not concern its users."""

import io
import logging
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["escape_unencodable_output", "filter_warnings"]


def escape_unencodable_output() -> None:
    r"""Prints characters that the encoding of the output lacks as `\u65e5` instead of failing.

    Output to a file or a pipe has the encoding of the system or of PYTHONIOENCODING.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not in notebooks
            stream.reconfigure(errors="backslashreplace")


def filter_warnings() -> None:
    """Hides warnings of Lightning that do not concern users of this command."""
    # Lightning's own use of torch; and images in memory need no loader processes.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    # Every checkpoint is saved after a complete step, as this advice asks; logged values are the same on all ranks.
    warnings.filterwarnings("ignore", message="Using ModelCheckpoint with manual optimization")
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self.log\(.*sync_dist=True")
    # A resumed run has a new folder.
    warnings.filterwarnings("ignore", message=r"The dirpath has changed.*")
    # If a thread cannot write TensorBoard's file, the run reports the error, too.
    threading.excepthook = partial(_thread_excepthook, threading.excepthook)
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(lambda r: "litlogger" not in r.getMessage())


def _thread_excepthook(default: Callable[[threading.ExceptHookArgs], Any], error: threading.ExceptHookArgs) -> None:
    if not isinstance(error.exc_value, OSError):
        default(error)
