"""Scripts-10: which pairs of ten writing tasks help each other, and does a search put those together?

`python -m benchmarks.scripts10 prepare ROOT FOLDER` makes a copy of the tasks in ROOT with the first images of each
class only (links), FOLDER/images, and a file of options for each pair, FOLDER/pairs/<a>--<b>.yaml, for `lws sweep`.
`python -m benchmarks.scripts10 collect RUNS... --out FILE.csv` writes a row for each run of sweeps.
`python -m benchmarks.scripts10 tables PAIRS.csv METHODS.csv` prints the tables of docs/benchmark.md.

The gain of task a from task b is the error of a network of its own less that of one network for a and b, in points,
both means over seeds. That of a pair is the mean of both directions.
"""

import argparse
import csv
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.verdicts import first_images
from lws_lightning.records import Run, load_runs

__all__ = ["agreement", "collect", "gains", "sharing", "write_pairs"]

Numbers = NDArray[np.float64]
PERMUTATIONS = 9_999
PAIR, APART = "full", "none"
"""Methods of the runs that tell what a pair is worth."""


def write_pairs(folder: Path, tasks: Sequence[str]) -> list[Path]:
    """Writes `folder/<a>--<b>.yaml` for each pair, which limits the data to its tasks; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for pair in itertools.combinations(sorted(tasks), 2):
        files.append(folder / f"{'--'.join(pair)}.yaml")
        files[-1].write_text(yaml.safe_dump({"data": {"init_args": {"tasks": list(pair)}}}), encoding="utf-8")
    return files


def collect(run: Run) -> dict[str, Any]:
    """Returns the row of a run; errors and copies are in the order of the tasks, layers are separated by commas.

    Raises:
        ValueError: If the run has not been tested.
    """
    if run.test is None:
        raise ValueError(f"{run.folder} has no result of a test; give the command of the sweep again.")
    errors = [f"{run.test.tasks[name].error:.6g}" for name in run.task_names]
    return {
        "method": run.method,
        "seed": run.seed,
        "step": run.step,
        "tasks": " ".join(run.task_names),
        "errors": " ".join(errors),
        "error_task_mean": round(run.test.error_task_mean, 4),
        "parameters_in_use": run.parameters_in_use,
        "copies": ", ".join(" ".join(map(str, layer)) for layer in run.assignment),
    }


def gains(rows: Sequence[Mapping[str, str]]) -> tuple[list[str], Numbers]:
    """Computes what each task gains from each other one, seed by seed.

    Args:
        rows: Of `collect`: method `none` with all tasks, and `full` with each pair, all with the same seeds.

    Returns:
        The T tasks, and `(seeds, T, T)`: entry (s, a, b) is the gain of a from b in points; 0 on the diagonal.

    Raises:
        ValueError: If a pair or a seed is missing, or there twice.
    """
    apart = {row["seed"]: _errors(row) for row in rows if row["method"] == APART}
    tasks = sorted(next(iter(apart.values())))
    together: dict[tuple[str, frozenset[str]], dict[str, float]] = {}
    for row in (row for row in rows if row["method"] == PAIR):
        key = row["seed"], frozenset(row["tasks"].split())
        if key in together:
            raise ValueError(f"There are two runs of {row['tasks']} with seed {row['seed']}.")
        together[key] = _errors(row)
    found = np.zeros((len(apart), len(tasks), len(tasks)))
    for (place, (seed, alone)), (one, a), (other, b) in itertools.product(
        enumerate(apart.items()), enumerate(tasks), enumerate(tasks)
    ):
        if a != b:
            if (seed, frozenset((a, b))) not in together:
                raise ValueError(f"There is no run of {a} and {b} with seed {seed}.")
            found[place, one, other] = alone[a] - together[seed, frozenset((a, b))][a]
    return tasks, found


def _errors(row: Mapping[str, str]) -> dict[str, float]:
    return dict(zip(row["tasks"].split(), map(float, row["errors"].split()), strict=True))


def sharing(row: Mapping[str, str], tasks: Sequence[str]) -> Numbers:
    """Returns the part of the layers that two tasks share in a run, `(T, T)`, in the given order of the tasks."""
    order = [row["tasks"].split().index(task) for task in tasks]
    copies = np.array([[int(copy) for copy in layer.split()] for layer in row["copies"].split(",")])[:, order]
    same: Numbers = (copies[:, :, None] == copies[:, None, :]).mean(0)
    return same


def agreement(gain: Numbers, shared: Numbers, seed: int = 0) -> tuple[float, float]:
    """Tests whether pairs that gain more share more, by Spearman's rank correlation over pairs.

    Args:
        gain: `(T, T)`, symmetric.
        shared: `(T, T)`, symmetric.
        seed: Of the permutations.

    Returns:
        The correlation, and the probability of one at least as large if the tasks were exchanged at random (Mantel's
        test, 9,999 permutations). NaN and 1 if all pairs share alike.
    """
    pairs = np.triu_indices(len(gain), 1)
    if np.ptp(shared[pairs]) == 0:
        return float("nan"), 1.0
    generator = np.random.default_rng(seed)
    found = float(spearmanr(gain[pairs], shared[pairs]).statistic)
    ranks, values = (_ranks(matrix, pairs) for matrix in (gain, shared))
    at_least = 1
    for _ in range(PERMUTATIONS):
        order = generator.permutation(len(gain))
        at_least += float(np.corrcoef(ranks[pairs], values[np.ix_(order, order)][pairs])[0, 1]) >= found - 1e-12
    return found, at_least / (PERMUTATIONS + 1)


def _ranks(matrix: Numbers, pairs: tuple[NDArray[np.intp], ...]) -> Numbers:
    """Replaces the entries above the diagonal, and those below alike, by their ranks among the pairs."""
    from scipy.stats import rankdata

    ranks = np.zeros_like(matrix)
    ranks[pairs] = rankdata(matrix[pairs])
    return ranks + ranks.T


def symmetric(gain: Numbers) -> Numbers:
    """Returns the gain of each pair, `(..., T, T)`: the mean of both directions."""
    return (gain + np.swapaxes(gain, -1, -2)) / 2


def tables(pairs: Sequence[Mapping[str, str]], methods: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns all tables and tests as lines of Markdown."""
    tasks, by_seed = gains(pairs)
    gain = by_seed.mean(0)
    above = np.triu_indices(len(tasks), 1)
    alone = [[_errors(row)[task] for row in pairs if row["method"] == APART] for task in tasks]
    lines = ["| | alone | " + " | ".join(tasks) + " |", "| --- |" + " --: |" * (len(tasks) + 1)]
    for one, task in enumerate(tasks):
        cells = ["" if one == other else f"{gain[one, other]:+.1f}" for other in range(len(tasks))]
        lines.append(f"| {task} | {_spread(alone[one])} | " + " | ".join(cells) + " |")
    pair_gain = symmetric(by_seed)
    between = [
        float(spearmanr(pair_gain[i][above], pair_gain[j][above]).statistic)
        for i, j in itertools.combinations(range(len(pair_gain)), 2)
    ]
    of_pairs = symmetric(gain)[above]
    lines += [
        "",
        f"{int((of_pairs > 0).sum())} of {len(of_pairs)} pairs gain, from {of_pairs.min():+.2f} to "
        f"{of_pairs.max():+.2f} points, {of_pairs.mean():+.2f} in the mean. The ranks of the gains of two seeds "
        f"correlate at {statistics.mean(between):.2f} in the mean.",
        "",
        "| method | n | task mean | parameters in use | correlation with the gain | p |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for method in dict.fromkeys(row["method"] for row in methods):
        runs = [row for row in methods if row["method"] == method]
        shared = np.mean([sharing(row, tasks) for row in runs], 0)
        correlation, p = agreement(symmetric(gain), shared)
        found = ("", "") if np.isnan(correlation) else (f"{correlation:.2f}", f"{p:.2g}")
        errors = _spread([float(row["error_task_mean"]) for row in runs])
        parameters = statistics.mean(float(row["parameters_in_use"]) for row in runs)
        lines.append(f"| {method} | {len(runs)} | {errors} | {parameters:,.0f} | {found[0]} | {found[1]} |")
    return lines


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def read(path: Path) -> list[dict[str, str]]:
    """Reads the rows of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Does one of the three."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    prepared = commands.add_parser("prepare")
    prepared.add_argument("root", type=Path)
    prepared.add_argument("folder", type=Path)
    prepared.add_argument("--images", type=int, default=50, help="of a class, for training")
    collected = commands.add_parser("collect")
    collected.add_argument("runs", nargs="+", type=Path)
    collected.add_argument("--out", type=Path, required=True)
    printed = commands.add_parser("tables")
    printed.add_argument("pairs", type=Path)
    printed.add_argument("methods", type=Path)
    options = parser.parse_args()
    if options.command == "prepare":
        images = first_images(options.root, options.folder / "images", options.images)
        files = write_pairs(options.folder / "pairs", [path.name for path in images.iterdir()])
        print(f"{images}, and {len(files)} pairs")
    elif options.command == "collect":
        runs, problems = load_runs(options.runs)
        rows = [collect(run) for run in runs if run.status == "finished"]
        with options.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        print("\n".join([f"{len(rows)} runs", *problems]))
    else:
        print("\n".join(tables(read(options.pairs), read(options.methods))))


if __name__ == "__main__":
    main()
