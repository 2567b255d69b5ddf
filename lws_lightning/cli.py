"""The command `lws`: finds the subcommand, and imports what that one needs.

Without torch and Lightning, whose import takes seconds: help, errors and reports appear at once.
"""

import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import yaml

from lws_lightning import __version__
from lws_lightning.output import escape_unencodable_output, filter_warnings
from lws_lightning.parsing import did_you_mean, export_parser, predict_parser
from lws_lightning.refusal import refusal
from lws_lightning.usage import COMMANDS, LIGHTNING_COMMANDS, command_help, overview

__all__ = ["main", "resolve_config"]

_HELP = ("-h", "--help")


def main(args: Sequence[str] | None = None) -> None:
    """Runs `lws`.

    Args:
        args: Arguments instead of those of the command line.

    Raises:
        SystemExit: On an error that the user can fix, with its message; after a signal with 128 + its number.
    """
    escape_unencodable_output()
    if "" not in sys.path:
        sys.path.append("")  # modules of the current folder, as with `python -m`; installed ones come first
    arguments = list(sys.argv[1:] if args is None else args)
    try:
        _run(arguments, called_from_python=args is not None)
        sys.stdout.flush()
    except BrokenPipeError:  # `lws ... | head`; Python would raise again when it flushes on exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        message = refusal(error)
        if message is None:
            raise
        raise SystemExit(f"lws {arguments[0]}: {message}") from error
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning exits with 1 on Ctrl-C
            raise SystemExit(128 + signal.SIGINT) from error
        raise


def _run(arguments: list[str], called_from_python: bool) -> None:
    name, options = (arguments or [""])[0], arguments[1:]
    if not name or name in _HELP:
        print(overview())
        sys.exit(0 if name else 2)
    if name == "--version":
        print(f"lws {__version__}")
    elif name == "report":
        from lws_lightning.results import report

        report(options)
    elif name == "sweep":
        from lws_lightning.sweep import sweep

        sweep(options, resolve_config)
    elif name == "compare":
        from lws_lightning.compare import compare

        compare(options, resolve_config)
    elif name == "export":
        export_options = export_parser().parse_args(options)
        from lws_lightning.export import export

        filter_warnings()
        export(export_options)
    elif name == "predict":
        predict_options, trainer_options = predict_parser().parse_known_args(options)
        from lws_lightning.predict import predict

        filter_warnings()
        predict(predict_options, trainer_options)
    elif name not in COMMANDS and not name.startswith("-"):
        print(f"lws: there is no command {name}.{did_you_mean(name, COMMANDS)} All: lws --help", file=sys.stderr)
        sys.exit(2)
    else:
        _run_lightning(name, options, called_from_python)


def _run_lightning(name: str, options: list[str], called_from_python: bool) -> None:
    """Runs a command of Lightning's; its help is short unless it is asked for `all`."""
    place = next((number for number, option in enumerate(options) if option in _HELP), None)
    if place is not None and name in LIGHTNING_COMMANDS:
        if options[place + 1 : place + 2] != ["all"]:
            print(command_help(name))
            return
        options = ["--help"]
    from lws_lightning.lightning_cli import run_lightning

    filter_warnings()
    run_lightning([name, *options], called_from_python)


def resolve_config(path: Path, options: Sequence[str]) -> Mapping[str, Any]:
    """Reads a configuration file as `lws fit` does.

    Args:
        path: The file.
        options: Options of the command line.

    Returns:
        Every option, with its value.

    Raises:
        ValueError: If `lws fit` would refuse them.
    """
    stdout, stderr, old_arguments = io.StringIO(), io.StringIO(), sys.argv[1:]
    sys.argv[1:] = ["fit", "--config", str(path), *options, "--print_config"]
    try:
        with redirect_stdout(stdout), redirect_stderr(stderr):
            main()
    except SystemExit as error:
        if error.code not in (0, None):
            message = error.code if isinstance(error.code, str) else stderr.getvalue().strip()
            raise ValueError(f"{path}: {message.removeprefix('lws fit: ')}") from error
    finally:
        sys.argv[1:] = old_arguments
    config: Mapping[str, Any] = yaml.safe_load(stdout.getvalue())
    return config
