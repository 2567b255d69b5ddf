"""Reads the curves of the runs of a row and averages them."""

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lws_lightning.records import Run, curve_from_csv
from lws_lightning.results.rows import Row, deviation

__all__ = ["Band", "Curve", "band", "read_curves"]


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run during training.

    Attributes:
        run: The run.
        errors: Percent over all images by step, in ascending order.
        entropies: Mean entropy in nats, by step; empty for fixed sharing.
    """

    run: Run
    errors: dict[int, float]
    entropies: dict[int, float]


@dataclass(frozen=True)
class Band:
    """Runs averaged at the steps that all of them have.

    Attributes:
        steps: N training steps, ascending.
        mean: N means.
        low: N lower ends: mean minus deviation for three runs or more, otherwise the minimum.
        high: N upper ends.
        runs: The number of runs.
    """

    steps: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    runs: int


def read_curves(row: Row) -> tuple[list[Curve], list[tuple[Run, str]]]:
    """Reads `curve.csv` of each run of a row.

    Returns:
        The curves in the order of seeds, and the runs without a readable curve, each with the reason.
    """
    curves = []
    problems = []
    for run in row.runs:
        try:
            rows = curve_from_csv((run.folder / "curve.csv").read_text(encoding="utf-8"))
        except FileNotFoundError:
            problems.append((run, "has no curve.csv"))
            continue
        except (OSError, ValueError, csv.Error) as error:
            problems.append((run, f"curve.csv cannot be read ({error})"))
            continue
        if run.evaluation is not None:
            rows = [curve_row for curve_row in rows if curve_row.prefix == run.evaluation.prefix]
        if not rows:
            problems.append((run, "curve.csv has no evaluation"))
            continue
        entropies = {entry.step: entry.entropy_mean for entry in rows if entry.entropy_mean is not None}
        curves.append(Curve(run, {entry.step: entry.error for entry in rows}, entropies))
    return curves, problems


def band(curves: Sequence[dict[int, float]]) -> Band | None:
    """Averages values by step over runs.

    Args:
        curves: One dict of values by step for each run.

    Returns:
        Means and their spread at the steps that all runs have, None if there are none. A mean is nan where a run is.
    """
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    if not steps:
        return None
    mean, low, high = [], [], []
    for step in steps:
        values = [curve[step] for curve in curves]
        centre = statistics.fmean(values)
        spread = deviation(values) if len(values) > 2 else None
        mean.append(centre)
        low.append(min(values) if spread is None else centre - spread)
        high.append(max(values) if spread is None else centre + spread)
    return Band(tuple(steps), tuple(mean), tuple(low), tuple(high), len(curves))
