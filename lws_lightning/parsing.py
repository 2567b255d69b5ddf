"""Parses the commands that are not Lightning's, and says in one line what is wrong with an option.

Imports neither torch nor Lightning, so that help and errors appear at once.
"""

import argparse
import difflib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

__all__ = [
    "ALL_TASKS",
    "EXPORT_FORMATS",
    "SOME_BROKEN",
    "CommandParser",
    "did_you_mean",
    "export_parser",
    "predict_parser",
]

EXPORT_FORMATS = ("pt2", "onnx", "safetensors", "state_dict")
"""The values of `lws export --format`."""

ALL_TASKS = "all"
"""What stands for every task, unless a task has this name."""

SOME_BROKEN = 3
"""The exit status of `lws predict` if the file is written, but some images could not be read."""


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with the option that was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with status 2."""
        if unknown := re.fullmatch(r"unrecognized arguments: (\S+).*", message, re.DOTALL):
            option = unknown[1].partition("=")[0]
            message = f"there is no option {option}.{did_you_mean(option, self._option_string_actions)}"
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"{self.prog}: {message}{end} Options: {self.prog} --help\n")


def did_you_mean(given: str, known: Collection[str]) -> str:
    """Returns ` Did you mean X?` for the name or option that is most like a wrong one, empty if none is like it.

    Of dotted options, one with the same last part counts as most alike: `--max_steps` means `--trainer.max_steps`.
    """
    known = list(dict.fromkeys(known))
    last = _last_part(given)
    alike = [name for name in known if _last_part(name) == last][:2]
    if not alike:
        alike = difflib.get_close_matches(given, known, n=1, cutoff=0.75)
    if not alike:
        parts = difflib.get_close_matches(last, [_last_part(name) for name in known], n=1, cutoff=0.75)
        alike = [name for name in known if parts and _last_part(name) == parts[0]][:2]
    if not alike:
        alike = [name for name in known if last.lower() in name.lower()][:1]
    return f" Did you mean {' or '.join(alike)}?" if alike else ""


def export_parser() -> CommandParser:
    """Returns the parser of `lws export`."""
    parser = CommandParser(
        "lws export",
        description="Writes a task's own network as a model file that does not need this package.",
    )
    _add_checkpoint(parser, "the checkpoint, or a run folder")
    tasks = parser.add_mutually_exclusive_group(required=True)
    tasks.add_argument("--task", metavar="NAME", help=f"the task; {ALL_TASKS}: every task, unless one has that name")
    tasks.add_argument("--all_tasks", action="store_true", help="a file for each task")
    parser.add_argument("--format", required=True, choices=EXPORT_FORMATS, help="the file format")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="the file, or a folder for it; with several tasks the folder. Default: exported/ in the run's folder",
    )
    return parser


def predict_parser() -> CommandParser:
    """Returns the parser of `lws predict`, for all options but those of the Trainer."""
    parser = CommandParser(
        "lws predict",
        allow_abbrev=False,
        description="Writes class probabilities of image files into a CSV file (task, file, class, probability). "
        f"Exit status {SOME_BROKEN}: some images could not be read; they are named, and the others are written.",
        epilog="--trainer.OPTION VALUE sets an option of Lightning's Trainer, such as --trainer.accelerator gpu.",
    )
    _add_checkpoint(parser, "the checkpoint, or a run folder; nothing else of the run is needed")
    parser.add_argument(
        "--images",
        nargs="+",
        required=True,
        metavar="PATH",
        help="files, folders (searched at any depth) and patterns",
    )
    options: tuple[tuple[str, Any, str, str], ...] = (
        ("--out", "predictions.csv", "FILE", "the CSV file"),
        ("--top_k", 1, "K", "number of classes, most likely first"),
        ("--batch_size", 64, "N", "images computed at once"),
        ("--num_workers", 0, "N", "processes that read images"),
    )
    for name, default, metavar, meaning in options:
        text = f"{meaning} (default: {default})"
        parser.add_argument(name, type=type(default), default=default, metavar=metavar, help=text)
    parser.add_argument(
        "--task", nargs="+", default=[ALL_TASKS], metavar="NAME", help=f"names of tasks; {ALL_TASKS}: every task"
    )
    return parser


def _add_checkpoint(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("--ckpt_path", required=True, metavar="PATH", help=meaning)
    parser.add_argument(
        "--trust_network",
        action="store_true",
        help="let the checkpoint name code to import (network: package.module:f)",
    )


def _last_part(option: str) -> str:
    return option.lstrip("-").rpartition(".")[2]
