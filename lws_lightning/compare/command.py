"""The command `lws compare`: its options, and what is refused before anything is imported."""

import argparse
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lws_lightning.compare.plan import PLAN_FILE, Plan
from lws_lightning.parsing import CommandParser

__all__ = ["Request", "compare"]

ResolveConfig = Callable[[Path, Sequence[str]], Mapping[str, Any]]
"""Returns all options, given a configuration file and options of the command line."""

_DEFAULT_DATA = "ImageFolders"


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    Attributes:
        root: Folder of the images; None if the DataModule needs none, or `--data.root` gives it.
        data: The DataModule.
        data_options: `--data.x` and its value, in turns.
        network: The base network; None: one that suits the images.
        lr: Adam's learning rate.
        minutes: The budget.
        jobs: Runs at a time; None: the number of GPUs, at least 1.
        out: The folder of the comparison.
    """

    root: str | None
    data: str
    data_options: list[str] = field(default_factory=list)
    network: str | None = None
    lr: float = 1e-3
    minutes: float = 30.0
    jobs: int | None = None
    out: Path = Path("comparison")

    @property
    def identity(self) -> dict[str, Any]:
        """The options that results depend on; `--minutes` and `--jobs` may change when the command is given again."""
        pairs = zip(self.data_options[::2], self.data_options[1::2], strict=True)
        named = {"ROOT": self.root and os.fspath(Path(self.root).expanduser().resolve()), "--data": self.data}
        return named | {"--network": self.network, "--lr": self.lr} | dict(pairs)

    @property
    def command(self) -> str:
        """The command, to be given again."""
        words = ["lws", "compare", *([self.root] if self.root else [])]
        words += [] if self.data == _DEFAULT_DATA else ["--data", self.data]
        words += [*self.data_options, *(["--network", self.network] if self.network else [])]
        words += [] if self.lr == Request.lr else ["--lr", f"{self.lr:g}"]
        words += [] if self.jobs is None else ["--jobs", str(self.jobs)]
        return shlex.join([*words, "--minutes", f"{self.minutes:g}", "--out", os.fspath(self.out)])


def compare(arguments: Sequence[str], resolve_config: ResolveConfig) -> None:
    """Runs `lws compare`.

    Args:
        arguments: Its arguments.
        resolve_config: Reads a configuration as `lws fit` does.

    Raises:
        ValueError: If the comparison cannot start, or has no result; like OSError, one line for the user.
        SystemExit: If an option is wrong, with status 2; with 130 if it was stopped.
    """
    request = _parse(arguments)
    try:
        plan = _check(request)
        print(
            "Looking at the data ..." if plan is None else f"Going on with the comparison in {request.out}.", flush=True
        )
        from lws_lightning.compare.session import run_comparison

        run_comparison(request, plan, resolve_config)
    except KeyboardInterrupt:
        print(f"Stopped. The same command goes on: {request.command}")
        raise SystemExit(130) from None


def _check(request: Request) -> Plan | None:
    """Returns the plan that is in the folder already; refuses what cannot work."""
    if request.root is None and request.data == _DEFAULT_DATA and "--data.root" not in request.data_options:
        raise ValueError("give ROOT, the folder with a folder of images for each task (or another --data).")
    if request.root is not None and not Path(request.root).expanduser().is_dir():
        raise ValueError(f"there is no folder {request.root}. Expected: ROOT/<task>/<class>/*.png (or jpg, ...).")
    if request.out.exists() and not request.out.is_dir():
        raise ValueError(f"--out {request.out} is a file; give a folder.")
    plan = Plan.read(request.out)
    if plan is None:
        # A comparison that was stopped before it had a plan leaves only these.
        others = [entry.name for entry in request.out.iterdir()] if request.out.is_dir() else []
        if others := sorted(set(others) - {"contenders", ".timing"}):
            raise ValueError(f"--out {request.out} holds other files, such as {others[0]}; give a new folder.")
        return None
    names = [*request.identity, *plan.options]
    for name in dict.fromkeys(names):
        before, now = plan.options.get(name), request.identity.get(name)
        if before != now:
            raise ValueError(
                f"--out {request.out} holds a comparison with {name} {_shown(before)}, not {_shown(now)}; give that "
                f"({PLAN_FILE} has all options), or another --out."
            )
    return plan


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)


def _parse(arguments: Sequence[str]) -> Request:
    own, data_options = _split(arguments)
    parser = CommandParser(
        "lws compare",
        usage="lws compare ROOT [--minutes 30] [--out DIR] [--data CLASS]\n"
        "                   [--data.OPTION VALUE ...]",
        description="Trains networks that share nothing, everything, and what they learn to share, within a budget of "
        "time, and says what your tasks should share. Writes the best networks as ONNX and pt2 files. The same command "
        "may be given again at any time, also with more minutes: it goes on where it was.",
        allow_abbrev=False,
    )
    parser.add_argument("root", nargs="?", metavar="ROOT", help="folder of the images, ROOT/<task>/<class>/*.jpg")
    parser.add_argument(
        "--minutes", type=_positive, default=Request.minutes, metavar="M", help="the budget (default: 30)"
    )
    parser.add_argument(
        "--out", type=Path, default=Request.out, metavar="DIR", help="folder for everything (default: comparison)"
    )
    parser.add_argument(
        "--data", default=_DEFAULT_DATA, metavar="CLASS", help="another DataModule, such as CIFAR100CoarseLabel"
    )
    parser.add_argument(
        "--data.OPTION", dest="data_help", metavar="VALUE", help="its options, such as --data.image_size 64"
    )
    parser.add_argument("--network", metavar="NAME", help="base network (default: a small one that suits the images)")
    parser.add_argument(
        "--lr", type=_positive, default=Request.lr, metavar="X", help="learning rate of all contenders (default: 0.001)"
    )
    parser.add_argument("--jobs", type=_at_least_one, metavar="N", help="runs at a time (default: the number of GPUs)")
    options = parser.parse_args(own)
    return Request(
        options.root,
        options.data,
        data_options,
        options.network,
        options.lr,
        options.minutes,
        options.jobs,
        options.out,
    )


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits arguments into the command's own and those of the DataModule, each option with one value."""
    own: list[str] = []
    data: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument.startswith("--data."):
            option, equals, value = argument.partition("=")
            given = value if equals else next(remaining, None)
            if given is None or given.startswith("--"):
                raise SystemExit(f"lws compare: {option} needs a value.")
            data += [option, given]
        else:
            own.append(argument)
    return own, data


def _positive(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError("must be positive")
    return float(text)


def _at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)
