"""The command `lws report`."""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lws_lightning.parsing import CommandParser
from lws_lightning.records import load_runs
from lws_lightning.results.document import print_blocks
from lws_lightning.results.report import make_report

__all__ = ["report"]


def report(arguments: Sequence[str]) -> None:
    """Runs `lws report`: prints tables and tests of the runs in some folders, and writes a report.

    Prints tables that fit a terminal, or Markdown to a pipe or a file.

    Raises:
        SystemExit: If there is no run, or the report cannot be written.
    """
    parser = CommandParser(
        "lws report",
        description="Prints a table of the runs found in some folders, and tests whether learned sharing is better.",
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="run folders, or folders that contain them")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for report.html (one file with everything), report.md, CSV files and figures/",
    )
    options = parser.parse_args(arguments)
    out: Path | None = options.out
    if out is not None and out.exists() and not out.is_dir():
        raise SystemExit(f"lws report: --out {out} is a file; give a folder")
    runs, problems = load_runs(options.folders)
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    if not runs:
        raise SystemExit(f"lws report: there is no run (result.json) in {', '.join(options.folders)}")
    # A character that matplotlib's font lacks is a box in the figures; the tables contain it.
    warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
    result = make_report(runs, problems, folders=options.folders, figures=out is not None)
    written: list[str] = []
    if out is not None:
        for problem in result.problems:
            print(f"warning: {problem}", file=sys.stderr)
        try:
            written = [f"Report: {result.write(out)[-1]}"]
        except OSError as error:
            raise SystemExit(f"lws report: cannot write to {out} ({error})") from error
    if sys.stdout.isatty():
        print_blocks([*result.blocks(), *written], Console())
        return
    print("\n".join([result.markdown(), *written]))
