"""`python -m benchmarks.verdicts ROOT --out FOLDER`: is the verdict of `lws compare` right?

ROOT is a folder of tasks with a test folder each (docs/own_data.md). Subsets of its tasks are drawn; each gets a short
comparison, and then the truth: every contender again, with other seeds, more of them, and more steps. A verdict is
right if what it advises has a true error of at most `TOLERANCE` points above the lowest, and if no difference that it
says is shown has the other sign in truth. What a folder has already is not done again. Writes `verdicts.csv`, a row for
each subset, and prints it.
"""

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lws_lightning.compare.outcomes import OUTCOMES_FILE, read_outcomes
from lws_lightning.compare.recipe import BEST, with_steps
from lws_lightning.compare.rounds import REFERENCE
from lws_lightning.sweep import plan_runs, save_config
from lws_lightning.sweep.worker import work

TOLERANCE = 1.0
"""Points of error that a smaller network may cost, as in the verdict."""

FIRST_SEED = 100
"""Of the truth; comparisons count from 0."""


def draw_subsets(tasks: Sequence[str], size: int, number: int) -> list[list[str]]:
    """Draws different subsets, always the same ones.

    Args:
        tasks: Names.
        size: Of a subset.
        number: How many.
    """
    generator, drawn = random.Random(0), dict[tuple[str, ...], None]()
    while len(drawn) < number:
        drawn[tuple(sorted(generator.sample(sorted(tasks), size)))] = None
    return [list(subset) for subset in drawn]


def first_images(root: Path, out: Path, images: int) -> Path:
    """Makes a copy of a folder of tasks by links, with the first training images of each class only; returns it."""
    for source in sorted(root.glob("*/*/*")):
        target = out / source.relative_to(root)
        if not target.exists():
            target.mkdir(parents=True)
            files = sorted(source.iterdir())
            for file in files[:images] if source.parent.name == "train" else files:
                (target / file.name).symlink_to(file.resolve())
    return out


def run_comparison(root: Path, tasks: Sequence[str], minutes: float, out: Path, options: Sequence[str]) -> None:
    """Runs `lws compare` on some tasks."""
    words = [str(root), "--data.tasks", f"[{', '.join(tasks)}]", "--minutes", f"{minutes:g}", "--out", str(out)]
    command = [sys.executable, "-m", "lws_lightning", "compare", *words, *options]
    with (out.parent / "printed.txt").open("w", encoding="utf-8") as printed:
        subprocess.run(command, check=True, stdout=printed, stderr=subprocess.STDOUT)


def true_errors(comparison: Path, out: Path, seeds: int, longer: float) -> dict[str, list[float]]:
    """Trains the contenders of a comparison again; returns the errors on the test images in percent, task means.

    Args:
        comparison: Its folder.
        out: For the runs.
        seeds: How many of each.
        longer: How many times the steps.
    """
    errors: dict[str, list[float]] = {}
    for path in sorted((comparison / "contenders").glob("*.yaml")):
        config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        config = with_steps(config, round(longer * config["trainer"]["max_steps"]))
        for run in plan_runs({path: config}, range(FIRST_SEED, FIRST_SEED + seeds), out):
            if not (run.folder / OUTCOMES_FILE).is_file():
                save_config(run)
                work(run.folder, tested=run.folder / "checkpoints" / f"{BEST}.ckpt")
            wrong = read_outcomes(run.folder).values()
            errors.setdefault(path.stem, []).append(100 * statistics.fmean(float(task.mean()) for task in wrong))
    return errors


def judge(verdict: Mapping[str, Any], truth: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Compares a verdict with the truth.

    Args:
        verdict: The content of `verdict.json`.
        truth: Errors of the runs of each contender.
    """
    mean = {name: statistics.fmean(values) for name, values in truth.items()}
    advised: str = verdict["recommended"]
    regret = mean[advised] - min(mean.values())
    intervals = {name: each for name, each in verdict["better_by"].items() if each["low"] is not None}
    shown = {name: each["points"] for name, each in intervals.items() if each["low"] > 0 or each["high"] < 0}
    wrong = [name for name, points in shown.items() if points * (mean[name] - mean[advised]) < 0]
    return {
        "advised": advised,
        "best": min(mean, key=lambda name: mean[name]),
        "regret": round(regret, 2),
        "shown": " ".join(shown),
        "wrongly shown": " ".join(wrong),
        "right": int(regret <= TOLERANCE and not wrong),
    } | {name: f"{mean[name]:.2f} ± {statistics.stdev(truth[name]):.2f}" for name in sorted(mean)}


def main() -> None:
    """Runs everything, subset by subset."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--subsets", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=3, help="of a subset")
    parser.add_argument("--images", type=int, default=50, help="of a class, for training and validation")
    parser.add_argument("--minutes", type=float, default=3, help="of a comparison")
    parser.add_argument("--seeds", type=int, default=10, help="of the truth")
    parser.add_argument("--longer", type=float, default=2, help="how many times the steps the truth has")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of subsets; then no table is written")
    options, others = parser.parse_known_args()
    root = first_images(options.root, options.out / "images", options.images)
    tasks = [path.name for path in root.iterdir()]
    rows = []
    for number, subset in enumerate(draw_subsets(tasks, options.tasks, options.subsets)):
        if options.only and number not in options.only:
            continue
        folder = options.out / f"subset{number:02}"
        folder.mkdir(parents=True, exist_ok=True)
        comparison = folder / "comparison"
        if not (comparison / "verdict.json").is_file():
            run_comparison(root, subset, options.minutes, comparison, others)
        truth = true_errors(comparison, folder / "truth", options.seeds, options.longer)
        verdict = json.loads((comparison / "verdict.json").read_text(encoding="utf-8"))
        plan = json.loads((comparison / "plan.json").read_text(encoding="utf-8"))
        runs = [
            len(list((comparison / "contenders" / name).glob("seed*")))
            for name in (REFERENCE, verdict["lowest_validation_error"])
        ]
        row = {"tasks": " ".join(subset), "steps": plan["steps"], "seeds": min(runs)} | judge(verdict, truth)
        print(json.dumps(row), flush=True)
        rows.append(row)
    if not options.only:
        with (options.out / "verdicts.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        print(f"{sum(row['right'] for row in rows)} of {len(rows)} verdicts are right.")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
