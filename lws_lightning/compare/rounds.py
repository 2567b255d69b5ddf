"""Which runs a comparison adds next: successive halving over seeds (Karnin et al. 2013, Jamieson and Talwalkar 2016).

Every round gives each contender that is left one more seed; after it the worse half of them, by validation error, is
left out. The networks without sharing get a seed in every round, since the verdict is a difference to them. Libraries
with successive halving (scikit-learn, Optuna, Ray) cut trials short at some step; none spreads seeds over
configurations that are all trained to the end within a limit of time.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lws_lightning.compare.plan import makespan

__all__ = ["MOST_SEEDS", "REFERENCE", "Standing", "next_round", "ranked"]

REFERENCE = "none"
"""The contender that the verdict compares with."""

MOST_SEEDS = 20


@dataclass(frozen=True)
class Standing:
    """How a contender stands.

    Attributes:
        contender: Its name.
        scores: The validation errors of its finished runs, in percent.
        seconds: How long one more run takes.
        seeded: Whether its runs depend on the seed; otherwise one is enough.
    """

    contender: str
    scores: tuple[float, ...]
    seconds: float
    seeded: bool = True

    @property
    def score(self) -> float:
        """The mean validation error."""
        return statistics.fmean(self.scores)


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """Returns the contenders that have a result, the lowest validation error first."""
    return sorted((each for each in standings if each.scores), key=lambda each: (each.score, each.contender))


def next_round(standings: Sequence[Standing], remaining: float, jobs: int) -> list[str]:
    """Returns the contenders that get one more seed, the leader first; empty if the comparison is at its end.

    Args:
        standings: All contenders, after the first round.
        remaining: Seconds left.
        jobs: Runs at a time.

    Returns:
        Names. Together they take at most `remaining` seconds, if each takes as long as its `seconds`.
    """
    others = [each for each in ranked(standings) if each.contender != REFERENCE and each.seeded]
    reached = max((len(each.scores) for each in others), default=0)
    left = [each for each in others if len(each.scores) == reached]
    wanted = left[: math.ceil(len(left) / 2)]
    wanted[1:1] = [each for each in standings if each.contender == REFERENCE]
    chosen: list[Standing] = []
    for each in wanted:
        fits = makespan([other.seconds for other in (*chosen, each)], jobs) <= remaining
        if fits and len(each.scores) < MOST_SEEDS:
            chosen.append(each)
    return [each.contender for each in chosen]
