"""What the finished runs of a comparison have measured."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lws_lightning.compare.outcomes import OUTCOMES_FILE, read_outcomes
from lws_lightning.compare.worker import SECONDS_FILE
from lws_lightning.records import CurveRow, Run, curve_from_csv, find_run

__all__ = ["Measured", "measured_runs"]


@dataclass(frozen=True)
class Measured:
    """A finished run.

    Attributes:
        contender: Its contender.
        run: Its record.
        best: The evaluation with the lowest validation error, at whose step it was tested.
        falling: By how many points the validation error fell in the last fifth of the run.
        wrong: For each task, `(N,)` booleans: which test images it got wrong.
        seconds: How long its process took; None if it was interrupted.
    """

    contender: str
    run: Run
    best: CurveRow
    falling: float
    wrong: dict[int, np.ndarray]
    seconds: float | None

    @property
    def validation(self) -> float:
        """The lowest validation error in percent, the mean over tasks."""
        return self.best.error_task_mean


def measured_runs(folder: Path, contenders: Sequence[str]) -> list[Measured]:
    """Returns the runs that are finished and tested, by contender and seed."""
    found = []
    for name in contenders:
        folders = sorted((folder / name).glob("seed*"), key=lambda path: int(path.name.removeprefix("seed")))
        for place in folders:
            run = find_run(place)
            if run is not None and run.complete and (place / OUTCOMES_FILE).is_file():
                curve = curve_from_csv((place / "curve.csv").read_text(encoding="utf-8"))
                rows = [row for row in curve if row.prefix == "val"]
                best = min(rows, key=lambda row: row.error_task_mean)
                early = [row.error_task_mean for row in rows if row.step <= 0.8 * run.max_steps]
                falling = min(early, default=best.error_task_mean) - best.error_task_mean
                found.append(Measured(name, run, best, falling, read_outcomes(place), _seconds(place, run)))
    return found


def _seconds(folder: Path, run: Run) -> float | None:
    """Returns the duration of the process of a run, at least that of its training, which counts what it resumed."""
    try:
        seconds = float(json.loads((folder / SECONDS_FILE).read_text())["seconds"])
    except (OSError, ValueError):
        return None
    training = (run.seconds or 0.0) + (run.seconds_evaluation or 0.0)
    return seconds if seconds >= training else None
