r"""The difference of two contenders on test images, with an interval over seeds and images.

The error of a contender is the mean of the tasks' errors, averaged over its runs. A run s gets an image i of task t
wrong (:math:`e_{si} = 1`) or not. Seeds and images are crossed random factors: other seeds would train other networks,
and other images would be drawn. The variance of the difference of two contenders A and B is estimated by

.. math:: \frac{S}{n_A} + \frac{S}{n_B}
    + \frac{1}{T^2} \sum_t \frac{\mathrm{var}_i(\bar e_{Ai} - \bar e_{Bi})}{m_t} - \frac{W_A}{n_A} - \frac{W_B}{n_B} .

S is the variance of a run's error over seeds, pooled over all contenders: with two or three seeds each, none has an
estimate of its own worth using. It already contains what seeds and images do together, W, which the third term has a
second time. The interval is Student's, with Satterthwaite's degrees of freedom.

It covers: another draw of seeds, and of test images from the same source. It does not cover: that contenders were
chosen by the validation errors of the same runs (a winner's runs were a little lucky with their seeds, which favours
the winner; the images are others); other data, other splits into training and test images, other numbers of steps; and
that several differences are looked at. It assumes that seeds matter alike for all contenders.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Comparison", "Difference", "Sample", "needed_for"]

_LEVEL = 0.95
_POWER = 0.8


@dataclass(frozen=True)
class Sample:
    """The test outcomes of a contender.

    Attributes:
        wrong: For each run, an array of booleans for each task; the same images in the same order in all runs.
        seeded: Whether runs depend on the seed.
    """

    wrong: Sequence[Sequence[np.ndarray]]
    seeded: bool = True

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.wrong)

    @property
    def errors(self) -> list[float]:
        """The error of each run in percent, the mean over tasks."""
        return [100 * statistics.fmean(float(task.mean()) for task in run) for run in self.wrong]

    @property
    def error(self) -> float:
        """The mean over runs."""
        return statistics.fmean(self.errors)

    def by_image(self) -> list[np.ndarray]:
        """Returns for each task the percentage of runs that get an image wrong, `(N,)`."""
        return [100 * np.mean(np.stack(task), axis=0) for task in zip(*self.wrong, strict=True)]

    def interaction(self) -> float:
        """Returns W, the variance of a run's error from seeds and images together; at least two runs."""
        tasks = [100.0 * np.stack(task) for task in zip(*self.wrong, strict=True)]
        parts = [float(np.var(task, axis=0, ddof=1).mean()) / task.shape[1] for task in tasks]
        return math.fsum(parts) / len(tasks) ** 2


@dataclass(frozen=True)
class Difference:
    """How much more often the second contender is wrong than the first, in points.

    Attributes:
        points: Positive if the first is better.
        low: Lower end of the 95 % interval, None if no contender has two runs.
        high: Upper end.
        seeds: Its variance from seeds if both had one run, None likewise.
        images: Its variance from images.
    """

    points: float
    low: float | None
    high: float | None
    seeds: float | None
    images: float

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


class Comparison:
    """Differences of contenders.

    Args:
        samples: By contender, each with at least one run.
    """

    def __init__(self, samples: Mapping[str, Sample]) -> None:
        self.samples = dict(samples)
        several = [sample for sample in self.samples.values() if sample.seeded and sample.runs > 1]
        self.degrees = sum(sample.runs - 1 for sample in several)
        squares = sum((sample.runs - 1) * statistics.variance(sample.errors) for sample in several)
        self.seed_variance = squares / self.degrees if several else None
        self._interaction = statistics.fmean(sample.interaction() for sample in several) if several else 0.0

    def difference(self, first: str, second: str) -> Difference:
        """Returns how much better the first is than the second."""
        one, other = self.samples[first], self.samples[second]
        points = other.error - one.error
        by_task = [b - a for a, b in zip(one.by_image(), other.by_image(), strict=True)]
        images = sum(_variance_of_mean(values) for values in by_task) / len(by_task) ** 2
        images = max(0.0, images - sum(self._together(sample) / sample.runs for sample in (one, other)))
        if self.seed_variance is None:
            return Difference(points, None, None, None, images)
        per_seed = [self.seed_variance if sample.seeded else 0.0 for sample in (one, other)]
        seeds = sum(part / sample.runs for part, sample in zip(per_seed, (one, other), strict=True))
        number = sum(len(values) for values in by_task) - len(by_task)
        variance = seeds + images
        denominator = seeds**2 / self.degrees + images**2 / max(1, number)
        degrees = variance**2 / denominator if denominator else math.inf
        half = float(stats.t.ppf((1 + _LEVEL) / 2, degrees)) * math.sqrt(variance)
        return Difference(points, max(-100.0, points - half), min(100.0, points + half), sum(per_seed), images)

    def _together(self, sample: Sample) -> float:
        if not sample.seeded:
            return 0.0
        return sample.interaction() if sample.runs > 1 else self._interaction


def needed_for(points: float, difference: Difference, runs: int) -> tuple[int | None, float | None]:
    """Returns what would show a difference of some points in four of five cases.

    Args:
        points: The difference.
        difference: Its variances are used.
        runs: Seeds that each of the two have.

    Returns:
        Seeds of each, with these test images; None if no number suffices. And how many times the test images, with
        these seeds; None likewise.
    """
    variance = (points / (stats.norm.ppf((1 + _LEVEL) / 2) + stats.norm.ppf(_POWER))) ** 2
    if difference.seeds is None:
        return None, None
    for_seeds, for_images = variance - difference.images, variance - difference.seeds / runs
    seeds = math.ceil(difference.seeds / for_seeds) if for_seeds > 0 else None
    times = difference.images / for_images if for_images > 0 else None
    return None if seeds is None else max(2, seeds), None if times is None else max(1.0, times)


def _variance_of_mean(values: np.ndarray) -> float:
    return float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
