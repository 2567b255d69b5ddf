"""`python -m benchmarks.planted --out FOLDER`: does the search find a sharing that is known?

Tasks in families; recovery against steps, step size, spare copies, S, T and noise, for both kinds of credit, and the
errors of full, none and the right sharing. Writes `planted.csv`, one row for each run and measured step, and
`planted.png`. A run that the CSV already has is not done again. docs/research_notes.md says what came out.
"""

import argparse
import csv
import math
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import torch
from lightning.pytorch import Callback, Trainer

from lws_lightning import (
    DigitFamilies,
    FixedSharing,
    FullyAdaptiveSharing,
    LearnedWeightSharing,
    MultiTaskMethod,
    UndirectedSharing,
)
from lws_lightning.methods.learned import Credit, NesBatch
from lws_lightning.search import Sampling

IMAGES_PER_TASK = 300
"""Training images of a task."""

LAYERS = ("dense1", "dense2")
CREDITS: tuple[Credit, ...] = get_args(Credit)
UNSEARCHED = ("full", "families", "none", "fully adaptive")
UNDIRECTED = ("undirected none", "undirected full")
TEXTS = ("search", "sampling", "nes_batch")
OTHERS = ("sampling", "nes_batch", "own", "floor", "decay")
"""Fields without a column of their own in the summary."""


@dataclass(frozen=True)
class Setting:
    """One run.

    Attributes:
        search: The credit of `LearnedWeightSharing`; or without a search "full" and "none", "families", where the first
            layer is shared as is right and the second one is common to all, and "fully adaptive"; or "undirected none"
            and "undirected full", `UndirectedSharing` with what follows.
        nes_lr: As of `LearnedWeightSharing`.
        critical_z: As of `LearnedWeightSharing`.
        sampling: As of `LearnedWeightSharing`.
        nes_batch: As of `LearnedWeightSharing`.
        own: The initial probability of copy t for task t, which needs as many copies as tasks; 0: uniform.
        floor: `min_probability` of `LearnedWeightSharing`.
        decay: Decoupled weight decay (`weight_decay` with `decoupled_decay`), of every method.
        samples: S, of both populations.
        families: How many families of tasks.
        spare: K is so much larger.
        tasks_per_family: T is `families` times as many.
        noise: Share of the training labels that are drawn at random.
        seed: Of images, labels, weights and populations.
    """

    search: str = "joint"
    nes_lr: float = 0.003
    critical_z: float = 0.0
    sampling: Sampling = "independent"
    nes_batch: NesBatch = "own"
    own: float = 0.0
    floor: float = 1e-3
    decay: float = 0.0
    samples: int = 8
    families: int = 3
    spare: int = 3
    tasks_per_family: int = 2
    noise: float = 0.0
    seed: int = 0


def planted_families(families: int, tasks_per_family: int, noise: float, seed: int) -> DigitFamilies:
    """Returns the data of a run; all of it is drawn by `seed`."""
    return DigitFamilies(families, tasks_per_family, IMAGES_PER_TASK, noise, seed=seed, split_seed=seed, batch_size=16)


class Recovery(Callback):
    """Notes every `every` steps how well the most likely assignment agrees with the families.

    Attributes:
        rows: Step, then for each layer the adjusted Rand index (1: the families, 0: chance), then the entropy in nats.
    """

    def __init__(self, families: Sequence[int], every: int) -> None:
        self.families, self.every = list(families), every
        self.rows: list[list[float]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        """Adds a row."""
        from sklearn.metrics import adjusted_rand_score

        if trainer.global_step % self.every == 0:
            agreement = [adjusted_rand_score(self.families, row) for row in pl_module.assignment.tolist()]
            self.rows.append([trainer.global_step, *agreement, float(pl_module.distribution.entropy().mean())])


def recover(setting: Setting, steps: int, every: int) -> list[dict[str, Any]]:
    """Trains once.

    Returns:
        The rows of `Recovery` by name, each with the setting; `error` is the final test error in percent.
    """
    torch.set_num_threads(1)
    data = planted_families(setting.families, setting.tasks_per_family, setting.noise, setting.seed)
    method = _method(setting, data)
    watch = Recovery(data.families, every)
    folder = tempfile.TemporaryDirectory()  # of the record that every run writes
    trainer = Trainer(
        default_root_dir=folder.name,
        max_steps=steps,
        max_epochs=-1,
        limit_val_batches=0,
        callbacks=[watch] if setting.search in (*CREDITS, "fully adaptive") else [],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(method, datamodule=data)
    (found,) = trainer.test(method, datamodule=data, verbose=False)
    folder.cleanup()
    names = ("step", *LAYERS, "entropy")
    unsearched = [[float(steps), *[math.nan] * (len(names) - 1)]]
    rows = [dict(zip(names, row, strict=True)) for row in watch.rows or unsearched]
    return [asdict(setting) | row | {"error": found["test/error"]} for row in rows]


def _method(setting: Setting, data: DigitFamilies) -> MultiTaskMethod:
    options: dict[str, Any] = {"network": "digits_dense", "seed": setting.seed, **data.task_info}
    if setting.decay:
        options |= {"weight_decay": setting.decay, "decoupled_decay": True}
    copies = setting.families + setting.spare
    if setting.search in ("full", "none"):
        return FixedSharing(**options | {"sharing": setting.search})
    if setting.search == "fully adaptive":
        return FullyAdaptiveSharing(**options)
    if setting.search == "families":
        right = [[float(copy == family) for copy in range(setting.families)] for family in data.families]
        common = [[float(copy == 0) for copy in range(setting.families)] for _ in data.families]
        options |= {"weights_per_layer": setting.families, "initial_probs": [right, common], "nes_lr": 0.0}
        return LearnedWeightSharing(min_probability=0.0, sgd_samples=1, nes_samples=2, **options)
    options |= {"weights_per_layer": copies, "sampling": setting.sampling, "sgd_samples": setting.samples}
    if setting.search in UNDIRECTED:
        return UndirectedSharing(**options | {"then": setting.search.removeprefix("undirected ")})
    if setting.own:
        other = (1 - setting.own) / (copies - 1)
        rows = [[setting.own if copy == task else other for copy in range(copies)] for task in range(copies)]
        options["initial_probs"] = [rows] * len(LAYERS)
    options |= {"credit": setting.search, "nes_lr": setting.nes_lr, "critical_z": setting.critical_z}
    options |= {"min_probability": setting.floor}
    return LearnedWeightSharing(nes_samples=setting.samples, nes_batch=setting.nes_batch, **options)


def settings(seeds: int) -> list[Setting]:
    """Returns what is compared: one thing changed at a time, for both kinds of credit, and each beside no search."""
    changes: list[dict[str, Any]] = [
        {},
        *({"nes_lr": value} for value in (0.01, 0.1)),
        *({"nes_lr": value, "critical_z": 4.0} for value in (0.003, 0.1)),
        {"spare": 0},
        *({"samples": value} for value in (4, 32)),
        {"tasks_per_family": 4},
        {"noise": 0.3},
    ]
    # What does without a search depends on the tasks alone, and undirected training on the populations, too.
    tasks: list[dict[str, Any]] = [{}, {"tasks_per_family": 4}, {"noise": 0.3}]
    return [
        replace(Setting(), search=search, seed=seed, **change)
        for seed in range(seeds)
        for searches, cases in ((CREDITS, changes), (UNSEARCHED, tasks), (UNDIRECTED, [{}]))
        for change in cases
        for search in searches
    ]


def main() -> None:
    """Runs what is missing, then draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--every", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    table = options.out / "planted.csv"
    done = {_setting_of(row) for row in read(table)} if table.exists() else set()
    missing = [setting for setting in settings(options.seeds) if setting not in done]
    print(f"{len(missing)} runs of {options.steps} steps; {len(done)} are in {table}.", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        work = [(setting, options.steps, options.every) for setting in missing]
        for rows in pool.imap_unordered(_recover, work):
            with table.open("a", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerows(rows)
            print(f"{_setting_of(rows[0])}: {rows[-1][LAYERS[0]]:.2f} in {LAYERS[0]}", flush=True)
    print(summary(read(table)))
    draw(read(table), options.out / "planted.png")


def _recover(work: tuple[Setting, int, int]) -> list[dict[str, Any]]:
    return recover(*work)


def read(table: Path) -> list[dict[str, Any]]:
    """Reads a table that `main` has written."""
    with table.open(newline="") as file:
        return [
            {name: value if name in TEXTS else float(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def _setting_of(row: Mapping[str, Any]) -> Setting:
    kinds: dict[str, Any] = {field.name: type(field.default) for field in fields(Setting)}
    return Setting(**{name: kind(row[name]) for name, kind in kinds.items() if name in row})


def _groups(rows: Sequence[Mapping[str, Any]]) -> dict[Setting, list[Mapping[str, Any]]]:
    """Puts the rows of all seeds of a setting together, under that with seed 0."""
    groups: dict[Setting, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(replace(_setting_of(row), seed=0), []).append(row)
    return groups


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table of the last steps, in Markdown."""
    lines = [
        "| search | nes_lr | critical_z | S | K | T | noise | n | " + " | ".join(LAYERS) + " | entropy | error |",
        "| --- |" + " --: |" * (len(LAYERS) + 9),
    ]
    for setting, own in sorted(_groups(rows).items(), key=lambda item: astuple(item[0])):
        last = max(row["step"] for row in own)
        ends = [row for row in own if row["step"] == last]
        cells = [_mean_and_deviation([row[name] for row in ends]) for name in (*LAYERS, "entropy", "error")]
        tasks = setting.families * setting.tasks_per_family
        copies = setting.families + setting.spare
        drawn = ["", ""] if setting.search in UNSEARCHED else [setting.samples, copies]
        steps = [setting.nes_lr, setting.critical_z] if setting.search in CREDITS else ["", ""]
        others = [f"{name}={value}" for name in OTHERS if (value := getattr(setting, name)) != getattr(Setting(), name)]
        head = [", ".join([setting.search, *others]), *steps, *drawn, tasks, setting.noise, len(ends)]
        lines.append("| " + " | ".join(map(str, [*head, *cells])) + " |")
    return "\n".join(lines)


def _mean_and_deviation(values: Sequence[float]) -> str:
    if any(math.isnan(value) for value in values):
        return ""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws the recovery at the first layer against the step, one panel for each setting."""
    from matplotlib.figure import Figure

    groups = _groups(rows)
    searched = [setting for setting in sorted(groups, key=astuple) if setting.search in CREDITS]
    panels = list(dict.fromkeys(replace(setting, search="joint") for setting in searched))
    columns = 4
    figure = Figure(figsize=(3 * columns, 2.6 * -(-len(panels) // columns)), layout="constrained")
    axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False, sharex=True, sharey=True).flatten()
    for axis, panel in zip(axes, panels, strict=False):
        for search in CREDITS:
            own = groups.get(replace(panel, search=search), [])
            steps = sorted({row["step"] for row in own})
            means = [statistics.mean(row[LAYERS[0]] for row in own if row["step"] == step) for step in steps]
            axis.plot(steps, means, label=search)
        tasks = panel.families * panel.tasks_per_family
        title = f"T={tasks}, K={panel.families + panel.spare}, S={panel.samples}"
        axis.set_title(f"{title}, lr={panel.nes_lr}, z={panel.critical_z}, noise={panel.noise}", fontsize=8)
        axis.axhline(0, color="0.7", linewidth=0.8)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    axes[0].legend(fontsize=8)
    figure.supxlabel("training step")
    figure.supylabel(f"adjusted Rand index with the families, {LAYERS[0]}")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
