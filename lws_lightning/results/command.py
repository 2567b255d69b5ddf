"""The command `lws report`."""

import argparse
import sys
from collections.abc import Sequence

from lws_lightning.results.markdown import comparison_table
from lws_lightning.results.runs import load_runs

__all__ = ["report"]


def report(arguments: Sequence[str]) -> None:
    """Runs `lws report`: prints a table of the runs in some folders.

    Args:
        arguments: Its arguments.

    Raises:
        SystemExit: If there is no run.
    """
    parser = argparse.ArgumentParser("lws report", description="Prints a table of the runs found in some folders.")
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="run folders, or folders that contain them")
    folders = parser.parse_args(arguments).folders
    runs, problems = load_runs(folders)
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    if not runs:
        raise SystemExit(f"lws report: there is no run (result.json) in {', '.join(folders)}")
    print(comparison_table(runs))
