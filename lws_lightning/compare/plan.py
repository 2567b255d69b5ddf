"""How many steps fit a budget of time, and what a comparison has decided: numbers in, numbers out.

Nothing here trains, reads a clock or imports torch.
"""

import heapq
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lws_lightning.records import Record, write_atomically

__all__ = ["EVALUATIONS", "LIMITS", "PLAN_FILE", "Limits", "Plan", "Timing", "choose_steps", "makespan", "run_seconds"]

PLAN_FILE = "plan.json"
EVALUATIONS = 10
"""Evaluations of the validation images in a run, evenly spaced; the last one is at its end."""
_ROUND_ONE = 0.5  # of the budget; the rest goes to further seeds
_FORMAT = 1


@dataclass
class Limits:
    """Bounds of the number of steps; the same for all contenders.

    Attributes:
        fewest: In fewer steps a search cannot settle, and networks whose copies change hands are hardly trained.
        most: As many as the paper's experiments have.
        passes: Over the images of the largest task, unless that gives less than `fewest`.
    """

    fewest: int = 600
    most: int = 5000
    passes: int = 60


LIMITS = Limits()


@dataclass(frozen=True)
class Timing(Record):
    """Measured seconds of one contender.

    Attributes:
        step: Of one training step.
        evaluation: Of one evaluation of the validation images, with what is saved then.
        once: Of what is drawn at the end.
    """

    step: float
    evaluation: float
    once: float


@dataclass(frozen=True)
class Plan(Record):
    """What a comparison has decided at its start and keeps to, also when it is interrupted and given again.

    Attributes:
        format: Of this file.
        options: The options that the results depend on, as given.
        images: Fingerprint of the images.
        images_of: Training and validation images of each task.
        contenders: In their order.
        steps: Training steps of every run.
        seeds: Seeds of every contender in the first round.
        timings: By contender.
        overhead: Seconds that a run takes beside steps and evaluations: its start, and the test of its end.
        export: Seconds for the models and the report.
        found: The lines about the data, for the report.
    """

    format: int
    options: dict[str, Any]
    images: str
    images_of: dict[str, list[int]]
    contenders: list[str]
    steps: int
    seeds: int
    timings: dict[str, Timing]
    overhead: float
    export: float
    found: list[str]

    def seconds(self, contender: str) -> float:
        """Returns the predicted duration of one run."""
        return run_seconds(self.timings[contender], self.steps, self.overhead)

    def write(self, folder: Path) -> None:
        """Writes the plan into the folder of the comparison."""
        write_atomically(folder / PLAN_FILE, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Reads the plan of a folder; None if there is none.

        Raises:
            ValueError: If it is damaged, or of another version.
        """
        path = folder / PLAN_FILE
        if not path.is_file():
            return None
        try:
            plan = cls.from_json(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path} cannot be read ({error}); give another --out, or delete {folder}.") from error
        if plan.format != _FORMAT:
            raise ValueError(f"{path} is of another version of lws; give another --out, or delete {folder}.")
        return plan


def run_seconds(timing: Timing, steps: int, overhead: float) -> float:
    """Returns the predicted duration of a run of some steps."""
    return overhead + steps * timing.step + EVALUATIONS * timing.evaluation + timing.once


def makespan(seconds: Sequence[float], jobs: int) -> float:
    """Returns how long runs take that are started in order, some at a time, each as soon as there is room."""
    ends = [0.0] * jobs
    for duration in seconds:
        heapq.heapreplace(ends, ends[0] + duration)
    return max(ends)


def choose_steps(
    timings: Mapping[str, Timing],
    overhead: float,
    jobs: int,
    budget: float,
    steps_per_pass: int,
    limits: Limits | None = None,
) -> tuple[int, int]:
    """Chooses the number of steps of every run, and the seeds of the first round.

    The first round, one run of each contender, takes at most half of the budget, unless that is too little for the
    fewest steps; the rest is for further seeds. If the steps are bounded by something else than the budget and two
    seeds fit that half, the first round has two.

    Args:
        timings: By contender.
        overhead: Seconds of a run beside steps and evaluations.
        jobs: Runs at a time.
        budget: Seconds left for runs.
        steps_per_pass: Steps in which the largest task's images are seen once.
        limits: None: `LIMITS`.

    Returns:
        Steps, a multiple of `EVALUATIONS`, and 1 or 2 seeds.

    Raises:
        ValueError: If the budget is too small; its only argument is the budget that is needed, in seconds.
    """
    limits = limits or LIMITS

    def round_one(steps: int, seeds: int = 1) -> float:
        return makespan([run_seconds(timing, steps, overhead) for timing in timings.values()] * seeds, jobs)

    grain = min(EVALUATIONS, limits.fewest)
    most = max(limits.fewest, min(limits.most, limits.passes * steps_per_pass)) // grain * grain
    candidates = range(math.ceil(limits.fewest / grain) * grain, most + 1, grain)
    # A second seed of two contenders at least, or nothing could be said about chance.
    second = makespan(sorted(run_seconds(timing, candidates[0], overhead) for timing in timings.values())[-2:], jobs)
    if (needed := round_one(candidates[0]) + second) > budget:
        raise ValueError(needed)
    steps = max((n for n in candidates if round_one(n) <= _ROUND_ONE * budget), default=candidates[0])
    return steps, 2 if round_one(steps, seeds=2) <= _ROUND_ONE * budget else 1
