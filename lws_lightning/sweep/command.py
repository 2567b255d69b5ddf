"""The command `lws sweep`."""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lws_lightning.parsing import CommandParser
from lws_lightning.records import find_run
from lws_lightning.sweep.cluster import run_on_cluster
from lws_lightning.sweep.display import Display
from lws_lightning.sweep.local import run_locally, visible_gpus
from lws_lightning.sweep.outcome import Outcome
from lws_lightning.sweep.plan import SweepRun, parse_seeds, plan_runs, save_config

__all__ = ["sweep"]

ResolveConfig = Callable[[Path, Sequence[str]], Mapping[str, Any]]
"""Returns all options, given a configuration file and options of the command line."""

_SWEEP_OPTIONS = ("--config", "-c", "--seeds", "--jobs", "--out", "--cluster")
_REFUSED = {
    "--seed_everything": "the seeds are --seeds",
    "--ckpt_path": "a sweep finds the checkpoints of its runs by itself",
    "--trainer.logger": "a sweep gives every run a TensorBoardLogger in the run's own folder",
    "--trainer.default_root_dir": "the folder of the sweep is --out",
    "--trainer": "name its options one by one, such as --trainer.max_steps 100",
    "--print_config": "use lws fit --config FILE --print_config",
}


def sweep(arguments: Sequence[str], resolve_config: ResolveConfig) -> None:
    """Runs `lws sweep`.

    Args:
        arguments: Its arguments.
        resolve_config: Reads a configuration with the options for every run.

    Raises:
        SystemExit: With a message if the sweep cannot start, with status 1 if a run did not finish, with 130 if it was
            stopped.
    """
    sweep_arguments, cluster_options, run_options = _split(arguments)
    parsed = _parser().parse_args(sweep_arguments)
    out = Path(parsed.out)
    try:
        seeds = parse_seeds(parsed.seeds)
        overlays = [path for text in parsed.overlays for path in _files(text)]
        configs = {}
        for files in dict.fromkeys(map(_files, parsed.configs)):
            options = [word for overlay in (*files[1:], *overlays) for word in ("--config", str(overlay))]
            configs[files] = resolve_config(files[0], [*options, *run_options])
        runs = plan_runs(configs, seeds, out, overlays)
        for run in runs:
            save_config(run)
    except (ValueError, OSError) as error:
        raise SystemExit(f"lws sweep: {error}") from error
    remaining = [run for run in runs if not ((record := find_run(run.folder)) and record.complete)]
    with Display(runs) as display:
        display.say(f"{len(runs)} runs in {out}, {len(runs) - len(remaining)} of them finished before.")
        try:
            if parsed.cluster:
                outcomes = run_on_cluster(remaining, parsed.cluster, out / ".submitit", cluster_options, display)
            else:
                outcomes = run_locally(remaining, parsed.jobs or max(1, len(visible_gpus())), display)
        except ValueError as error:
            raise SystemExit(f"lws sweep: {error}") from error
        except KeyboardInterrupt:
            display.say("Stopped. The same command resumes the sweep.")
            raise SystemExit(130) from None
    _print_summary(runs, outcomes, out)


def _files(text: str) -> tuple[Path, ...]:
    """Splits CONFIG+OVERLAY+... into its files; a file whose name has a + is one file.

    Raises:
        ValueError: If a file does not exist.
    """
    if Path(text).is_file():
        return (Path(text),)
    files = tuple(map(Path, text.split("+")))
    for file in files:
        if not file.is_file():
            place = f" (in {text}, where + comes before each overlay)" if len(files) > 1 else ""
            name = "an empty name" if file == Path() else file
            raise ValueError(f"{name}: there is no such configuration file{place}.")
    return files


def _print_summary(runs: Sequence[SweepRun], outcomes: Sequence[Outcome], out: Path) -> None:
    unfinished = [outcome for outcome in outcomes if not outcome.finished]
    print(f"\n{len(runs) - len(unfinished)} of {len(runs)} runs are finished and tested.")
    for outcome in unfinished:
        if outcome.started:
            print(f"  {outcome.text}")
    skipped = Counter(outcome.run.name for outcome in unfinished if not outcome.started)
    for name, count in skipped.items():
        print(f"  {name}: {count} more not started, because one failed before its first step")
    if unfinished:
        print("The same command retries these from their last checkpoints.")
    if len(unfinished) < len(runs):
        print(f"Table, tests and figures: lws report {out} --out {out / 'report'}")
    if unfinished:
        raise SystemExit(1)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        "lws sweep",
        usage="lws sweep CONFIG[+OVERLAY...]... [--config OVERLAY ...] [--seeds 0-9]\n"
        "                 [--jobs N] [--out DIR] [--cluster slurm]\n"
        "                 [--any.option VALUE ...]",
        description="Trains every configuration with every seed and tests the result. The same command may be given "
        "again at any time: finished runs are skipped, interrupted ones resume from their last checkpoint. All other "
        "options are passed to every run, as to `lws fit`.",
    )
    parser.add_argument(
        "configs",
        nargs="+",
        metavar="CONFIG",
        help="configuration files of `lws fit`; CONFIG+OVERLAY+...: with overlays of its own",
    )
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        dest="overlays",
        metavar="OVERLAY",
        help="a file whose options replace those of every CONFIG, as a second --config of `lws fit` does",
    )
    parser.add_argument("--seeds", default="0", help="numbers and ranges, such as 0-9 or 0,2,5-7 (default: 0)")
    parser.add_argument("--jobs", type=_at_least_one, help="runs at a time (default: the number of GPUs, at least 1)")
    parser.add_argument("--out", default="sweep", metavar="DIR", help="folder of the runs (default: sweep)")
    parser.add_argument("--cluster", choices=("slurm", "local"), help="one job a run, through submitit")
    parser.add_argument(
        "--cluster.KEY", dest="cluster_help", metavar="VALUE", help="option of submitit, such as --cluster.timeout_min"
    )
    return parser


def _at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def _split(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any], list[str]]:
    """Splits arguments into those of the sweep, those of the cluster and those of every run."""
    sweep_arguments: list[str] = []
    cluster: dict[str, Any] = {}
    run_options: list[str] = []
    # Values follow their option; arguments before the first option are configurations.
    target = sweep_arguments
    remaining = iter(arguments)
    for argument in remaining:
        option, equals, value = argument.partition("=")
        if option in _REFUSED:
            raise SystemExit(f"lws sweep: {option} cannot be given: {_REFUSED[option]}.")
        if option.startswith("--cluster."):
            cluster[option.removeprefix("--cluster.")] = yaml.safe_load(value if equals else next(remaining, ""))
            continue
        if option in (*_SWEEP_OPTIONS, "-h", "--help"):
            target = sweep_arguments
        elif argument.startswith("--"):
            target = run_options
        target.append(argument)
    return sweep_arguments, cluster, run_options
