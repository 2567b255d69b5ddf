"""A rule for moving pi on planted families, and the table of the runs of rules (`benchmarks.planted_rules`)."""

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.planted import LAYERS

MEASURED = ("step", *LAYERS, "entropy", "error", "seconds")
REMOVED = {
    "freeze": "0.0",
    "exact": "0",
    "spread": "1.0",
    "lr": "0.001",
    "nes_images": "1",
    "linear": "0",
    "scale": "1.0",
    "restart": "0",
    "mix": "1.0",
    "floor_end": "0.0",
}
"""Levers that lost and left, each with the value that does nothing; the tables in docs/data keep their runs."""


@dataclass(frozen=True)
class Rule:
    """One way to move pi.

    Attributes:
        search: `per_task`; `undirected-none` and `undirected-full`; `none`, `full`, and `families`.
        nes_lr: Step size of pi.
        critical_z: See `LearnedWeightSharing`.
        memory: After so many steps, evidence counts 1/e of what it did; 0: forever.
        wait: pi does not move in the first steps; evidence counts from then on.
        own: Initial probability of a task's own copy; 0: uniform.
        one_pass: `nes_batch: training` of `LearnedWeightSharing`.
        samples: S.
        copies: K.
        systematic: `sampling` of `LearnedWeightSharing`.
        floor: `min_probability` of `LearnedWeightSharing`.
        decay: Part of every weight that each step takes away; `lr` times a decoupled `weight_decay`.
        l2: `weight_decay` that is not decoupled.
        restarts: `search_restarts` of `LearnedWeightSharing`.
    """

    search: str = "per_task"
    nes_lr: float = 0.003
    critical_z: float = 0.0
    memory: float = 0.0
    wait: int = 0
    own: float = 0.0
    one_pass: int = 0
    samples: int = 8
    copies: int = 6
    systematic: int = 1
    floor: float = 1e-3
    decay: float = 0.0
    l2: float = 0.0
    restarts: int = 0

    @property
    def shapes(self) -> tuple[float, ...]:
        """What all rules computed together have in common."""
        return (self.one_pass, self.samples, self.copies, self.systematic, self.floor, self.l2)


def parse_rule(text: str) -> Rule:
    """Reads `name=value,name=value`."""
    kinds: dict[str, Any] = {name: type(value) for name, value in asdict(Rule()).items()}
    given = (part.split("=") for part in text.split(",") if part)
    return Rule(**{name: kinds[name](value) for name, value in given})


def read(path: Path) -> list[dict[str, str]]:
    """Reads the last row of each run from a table that `main` has written."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    last = {tuple(value for name, value in row.items() if name not in MEASURED): row for row in rows}
    return list(last.values())


def summary(rows: Sequence[dict[str, str]]) -> list[str]:
    """Returns a table of the last rows in Markdown, a line for each rule."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault((_name(row), row["step"], row["steps"], str(int(row["seed"]) < 100)), []).append(row)
    lines = [
        "| rule | seeds | steps | dense1 | found | entropy | error |",
        "| --- | --- | --: | --: | --: | --: | --: |",
    ]
    for (name, step, steps, _), own in groups.items():
        seeds = sorted(int(row["seed"]) for row in own)
        cells = [_mean_and_deviation([float(row[column]) for row in own]) for column in ("dense1", "entropy", "error")]
        reached = f"{int(step):,}" + (f" of {int(steps):,}" if step != steps else "")
        found = sum(float(row["dense1"]) == 1 for row in own)
        head = [name, f"{seeds[0]} to {seeds[-1]}", reached, cells[0], f"{found} of {len(own)}", *cells[1:]]
        lines.append("| " + " | ".join(head) + " |")
    return lines


def _name(row: dict[str, str]) -> str:
    defaults = {name: str(value) for name, value in asdict(Rule()).items()} | REMOVED
    given = {name: row.get(name, value) for name, value in defaults.items() if name != "search"}
    shown = [f"{name}={value}" for name, value in given.items() if value != defaults[name]]
    if row["search"] == "per_task" and row["nes_lr"] == defaults["nes_lr"]:
        shown.insert(0, f"nes_lr={row['nes_lr']}")
    if row["search"] == "per_task":
        return ", ".join(shown)
    return ", ".join([row["search"], *(part for part in shown if part.split("=")[0] not in ("floor", "nes_lr"))])


def _mean_and_deviation(values: Sequence[float]) -> str:
    if any(math.isnan(value) for value in values):
        return ""
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")
