"""The course of a comparison: look, time, plan, train round by round, judge, write."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from lws_lightning.compare.clock import Clock, ClockedDisplay
from lws_lightning.compare.command import Request
from lws_lightning.compare.look import Look, look_at
from lws_lightning.compare.measured import Measured, measured_runs
from lws_lightning.compare.plan import LIMITS, Plan, choose_steps, makespan
from lws_lightning.compare.recipe import (
    PROBE,
    TRUNK_CONTENDERS,
    Contender,
    augmentation_for,
    contenders_for,
    default_network,
    recipe,
    with_steps,
)
from lws_lightning.compare.rounds import REFERENCE, Standing, next_round, ranked
from lws_lightning.compare.saying import say
from lws_lightning.compare.timing import STEPS, TRIAL_EVALUATIONS, measure
from lws_lightning.compare.trunk import Trunk, find_trunk
from lws_lightning.export import FORMATS
from lws_lightning.output import filter_warnings
from lws_lightning.records import find_run, write_atomically
from lws_lightning.sweep import CONFIG_FILE, Outcome, SweepRun, plan_runs, run_locally, save_config, visible_gpus

__all__ = ["run_comparison"]

ResolveConfig = Callable[[Path, Sequence[str]], Mapping[str, Any]]

_REPORT_SECONDS = 20.0
_CONTENDERS, _TIMING = "contenders", ".timing"


def run_comparison(request: Request, plan: Plan | None, resolve_config: ResolveConfig) -> None:
    """Runs a comparison from its start, or from where it was.

    Args:
        request: The options.
        plan: That of an earlier call, None for a new comparison.
        resolve_config: Reads a configuration as `lws fit` does.

    Raises:
        ValueError: If it cannot start: the data or an option cannot be used, or the budget is too small; or if too few
            runs finished for a verdict.
        KeyboardInterrupt: If it was stopped.
    """
    filter_warnings()
    signal.signal(signal.SIGTERM, _interrupt)
    clock = Clock(request.out, request.minutes * 60)
    jobs = request.jobs or max(1, len(visible_gpus()))
    if plan is None:
        before = {entry.name for entry in request.out.iterdir()} if request.out.is_dir() else set()
        try:
            plan = _make_plan(request, jobs, clock, resolve_config)
        except BaseException:  # nothing that a later call could go on with
            _leave_only(before, request.out)
            raise
    else:
        for line in plan.found:
            say(line, indent=7)
    configs = {name: _read_config(request.out, name) for name in plan.contenders}
    _train(request, plan, configs, jobs, clock)
    from lws_lightning.compare.ending import write_results  # matplotlib and others, which training does not need

    write_results(request, plan, measured_runs(request.out / _CONTENDERS, plan.contenders))
    clock.save()


def _make_plan(request: Request, jobs: int, clock: Clock, resolve_config: ResolveConfig) -> Plan:
    for format in ("onnx", "pt2"):
        FORMATS[format].require_packages(format)
    trunk, no_trunk = find_trunk() if request.data == "ImageFolders" else (None, "only for folders of images")
    data, look = _resolve_data(request, resolve_config)
    found = f"Found: {look.sentence()}"
    say(found, indent=7)
    network = request.network or default_network(look.image_shape)
    configs: dict[str, dict[str, Any]] = {}
    contenders = contenders_for(len(look.task_names), network, request.lr, trunk)
    for contender in contenders:
        path = request.out / _CONTENDERS / f"{contender.name}.yaml"
        of_contender = _data_for_trunk(data, trunk) if contender.trunk and trunk else data
        configs[contender.name] = _resolve(recipe(contender, of_contender), path, resolve_config)
    trial = {
        request.out / _CONTENDERS / f"{name}.yaml": with_steps(config, STEPS, TRIAL_EVALUATIONS)
        for name, config in configs.items()
    }
    say(f"       (timing {STEPS} steps of each of {len(contenders)} ways to share ...)")
    folder = request.out / _TIMING
    shutil.rmtree(folder, ignore_errors=True)
    timings, overhead, export = measure(trial, folder, jobs)
    shutil.rmtree(folder, ignore_errors=True)
    at_end = _REPORT_SECONDS + export * len(look.task_names)
    remaining = clock.remaining() - at_end
    try:
        steps, seeds = choose_steps(timings, overhead, jobs, remaining, look.steps_per_pass)
    except ValueError as error:
        needed = (clock.spent() + at_end + error.args[0]) / 60
        raise ValueError(
            f"--minutes {request.minutes:g} is too little for these data on this machine: {LIMITS.fewest} steps "
            f"of each contender, a second seed of two, and the models need about {needed * 1.05:.1f} minutes."
        ) from None
    for name, config in configs.items():
        path = request.out / _CONTENDERS / f"{name}.yaml"
        write_atomically(path, yaml.safe_dump(with_steps(config, steps), sort_keys=False, allow_unicode=True))
    plan = Plan(
        1,
        request.identity,
        look.digest,
        {name: [*counts] for name, *counts in zip(look.task_names, look.train, look.validation, strict=True)},
        [contender.name for contender in contenders],
        steps,
        seeds,
        timings,
        overhead,
        at_end,
        [],
    )
    round_one = [plan.seconds(contender.name) for contender in contenders] * seeds
    lines = [
        found,
        f"Will: train {network} for {steps:,} steps as {_listed(contenders)}, {_augmented(data, look)}; then more "
        f"seeds of the better ones against {REFERENCE}."
        + (f" No pretrained network: {no_trunk}." if trunk is None else ""),
        f"Time: {_minutes(makespan(round_one, jobs))} for the first round, {_minutes(at_end)} for models and report, "
        f"the rest of {request.minutes:g} min for more seeds.",
    ]
    for line in lines[1:]:
        say(line, indent=7)
    plan = Plan(**{**vars(plan), "found": lines})
    plan.write(request.out)
    return plan


def _leave_only(before: set[str], out: Path) -> None:
    """Removes what a comparison without a plan has written, but nothing that was there before it."""
    for name in {_CONTENDERS, _TIMING} - before:
        shutil.rmtree(out / name, ignore_errors=True)
    if out.is_dir() and not any(out.iterdir()):
        out.rmdir()


def _resolve_data(request: Request, resolve_config: ResolveConfig) -> tuple[dict[str, Any], Look]:
    """Returns class and options of the DataModule, and what it holds."""
    options = ["--data", request.data, *([] if request.root is None else ["--data.root", request.root])]
    given = set(request.data_options[::2])
    options += [] if "--data.validation" in given else ["--data.validation", "split"]
    if request.data == "ImageFolders" and "--data.image_size" not in given:
        options += ["--data.image_size", "32"]
    # A method is needed for a complete configuration, any one.
    path = request.out / _CONTENDERS / f"{REFERENCE}.yaml"
    any_model = {"class_path": "FixedSharing", "init_args": {"network": "dkl_convnet", "sharing": "none"}}
    resolved = _resolve({"model": any_model}, path, resolve_config, [*options, *request.data_options])
    data: dict[str, Any] = resolved["data"]
    look = look_at(data)
    init = data["init_args"]
    if request.data == "ImageFolders" and "--data.channels" not in given and not any(look.coloured):
        init["channels"] = 1
        look = look_at(data)
    if "--data.augmentation" not in given and "augmentation" in init:
        init["augmentation"] = augmentation_for(look.image_shape, look.coloured) or None
    return data, look


def _data_for_trunk(data: Mapping[str, Any], trunk: Trunk) -> dict[str, Any]:
    """Returns the data at the trunk's size, without augmentation, so that the frozen part runs once."""
    return {**data, "init_args": {**data["init_args"], "image_size": trunk.side, "channels": 3, "augmentation": None}}


def _resolve(
    config: Mapping[str, Any], path: Path, resolve_config: ResolveConfig, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns all options of a configuration, which is written to `path`."""
    write_atomically(path, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
    try:
        return dict(resolve_config(path, options))
    except ValueError as error:
        raise ValueError(str(error).removeprefix(f"{path}: ").replace("lws fit", "lws compare")) from error


def _read_config(out: Path, name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((out / _CONTENDERS / f"{name}.yaml").read_text(encoding="utf-8"))
    return config


def _train(request: Request, plan: Plan, configs: Mapping[str, Mapping[str, Any]], jobs: int, clock: Clock) -> None:
    """Adds runs as long as they fit the budget."""
    first = [(name, seed) for seed in range(plan.seeds) for name in plan.contenders if seed == 0 or name != PROBE]
    _run([_sweep_run(request.out, configs, *each) for each in first], jobs, clock, "Round 1")
    # What an earlier call has begun.
    begun = [
        (name, int(path.parent.name.removeprefix("seed")))
        for name in plan.contenders
        for path in sorted((request.out / _CONTENDERS / name).glob(f"seed*/{CONFIG_FILE}"))
    ]
    _run([_sweep_run(request.out, configs, *each) for each in begun if each not in first], jobs, clock, "Begun before")
    number = 2
    while True:
        measured = measured_runs(request.out / _CONTENDERS, plan.contenders)
        _refuse_other_images(request.out, plan, measured)
        standings = [_standing(name, plan, measured) for name in plan.contenders]
        if not standings or not next(each.scores for each in standings if each.contender == REFERENCE):
            raise ValueError(f"no run of {REFERENCE} finished, so there is nothing to compare with; see above.")
        chosen = next_round(standings, clock.remaining() - plan.export, jobs)
        if not chosen:
            return
        best = ranked(standings)[0]
        clock.say(f"Validation error so far: {_scores(standings)} %. Best: {best.contender}.")
        seeds = {each.contender: _next_seed(request.out, each.contender) for each in standings}
        runs = [_sweep_run(request.out, configs, name, seeds[name]) for name in chosen]
        if not any(outcome.finished for outcome in _run(runs, jobs, clock, f"Round {number}")):
            return
        number += 1


def _refuse_other_images(out: Path, plan: Plan, measured: Sequence[Measured]) -> None:
    """Refuses to compare runs on images that have changed; a trunk gets them in another size."""
    for each in measured:
        if each.contender not in TRUNK_CONTENDERS and each.run.data_digest != plan.images:
            raise ValueError(
                f"the images have changed since the comparison in {out} began; restore them, or give another --out."
            )


def _standing(name: str, plan: Plan, measured: Sequence[Measured]) -> Standing:
    mine = [each for each in measured if each.contender == name]
    durations = [each.seconds for each in mine if each.seconds is not None]
    seconds = max(durations, default=plan.seconds(name))
    return Standing(name, tuple(each.validation for each in mine), seconds, name != PROBE)


def _next_seed(out: Path, name: str) -> int:
    """Returns the first seed without a folder; a run that failed keeps its own."""
    seed = 0
    while (out / _CONTENDERS / name / f"seed{seed}").exists():
        seed += 1
    return seed


def _sweep_run(out: Path, configs: Mapping[str, Mapping[str, Any]], name: str, seed: int) -> SweepRun:
    (run,) = plan_runs({out / _CONTENDERS / f"{name}.yaml": configs[name]}, [seed], out)
    return run


def _run(runs: Sequence[SweepRun], jobs: int, clock: Clock, title: str) -> list[Outcome]:
    """Executes runs that have no result yet."""
    missing = [run for run in runs if not ((record := find_run(run.folder)) and record.complete)]
    if not missing:
        return []
    for run in missing:
        save_config(run)
    clock.say(f"{title}: {len(missing)} run{'s' * (len(missing) != 1)}, {_minutes(clock.remaining())} left.")
    with ClockedDisplay(missing, clock) as display:
        return run_locally(missing, jobs, display, _worker_command)


def _worker_command(run: SweepRun) -> list[str]:
    return [sys.executable, "-m", "lws_lightning.compare.worker", os.fspath(run.folder)]


def _scores(standings: Sequence[Standing]) -> str:
    return ", ".join(
        f"{each.contender} {each.score:.1f}" + (f" ({len(each.scores)})" if len(each.scores) > 1 else "")
        for each in ranked(standings)
    )


def _listed(contenders: Sequence[Contender]) -> str:
    *most, last = [f"{each.meaning} ({each.name})" for each in contenders]
    return f"{', '.join(most)} and {last}"


def _augmented(data: Mapping[str, Any], look: Look) -> str:
    steps = data["init_args"].get("augmentation") or []
    names = [step if isinstance(step, str) else str(step.get("name")) for step in steps]
    if not names:
        return "images as they are"
    words = {"RandomHorizontalFlip": "mirrored", "RandomCrop": "slightly shifted"}
    grey = [name for name, coloured in zip(look.task_names, look.coloured, strict=True) if not coloured]
    mixed = any(look.coloured) and grey and "RandomHorizontalFlip" not in names
    note = f" (not mirrored, because {grey[0]} has no colours)" if mixed else ""
    return "images " + " and ".join(words.get(name, name) for name in names) + note


def _minutes(seconds: float) -> str:
    return f"{max(0.0, seconds) / 60:.1f} min"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
