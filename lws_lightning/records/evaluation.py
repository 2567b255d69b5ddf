"""The result of one pass over a validation or test set."""

import math
from dataclasses import dataclass
from typing import Any

from lws_lightning.records.json_values import Record

__all__ = ["Evaluation", "TaskEvaluation", "wilson_interval"]

_Z = 1.959963984540054  # 97.5 % of a normal distribution lie below it


@dataclass(frozen=True)
class TaskEvaluation(Record):
    """One task's error in percent, and its number of images."""

    error: float
    images: int


@dataclass(frozen=True)
class Evaluation(Record):
    """The result of evaluating all tasks once. Tasks without images are omitted.

    Attributes:
        prefix: `test_curve`, `val` or `test`.
        step: Training steps completed.
        error: Percentage of misclassified images, over the images of all tasks. This is the paper's "test error"; a
            task with many images counts for more.
        error_task_mean: Mean of the tasks' errors in percent.
        loss: Mean cross-entropy in nats over all images.
        tasks: By name.
    """

    prefix: str
    step: int
    error: float
    error_task_mean: float
    loss: float
    tasks: dict[str, TaskEvaluation]

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `error` in percent over draws of the images: see `wilson_interval`."""
        return wilson_interval(self.error, self.images)

    @property
    def images(self) -> int:
        """Number of images of all tasks."""
        return sum(task.images for task in self.tasks.values())

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values, and the number of images for readers of the file."""
        return {**super().to_json(), "images": self.images}

    def as_metrics(self) -> dict[str, float]:
        """Returns the values by logging tag."""
        metrics = {
            f"{self.prefix}/error": self.error,
            f"{self.prefix}/error_task_mean": self.error_task_mean,
            f"{self.prefix}/loss": self.loss,
        }
        return metrics | {f"{self.prefix}/error/{name}": task.error for name, task in self.tasks.items()}


def wilson_interval(error: float, images: int) -> tuple[float, float]:
    r"""Returns the 95 % interval of an error rate over draws of the images (Wilson 1927).

    It has the rates p that :math:`|\hat p - p| \le z \sqrt{p (1 - p) / n}` does not reject. It says how far another
    sample of images might differ, not another seed.

    Args:
        error: Percentage of misclassified images.
        images: Their number n; with none the interval is all of [0, 100].

    Returns:
        Both ends in percent, nan for an error that is not a number.
    """
    if math.isnan(error):
        return math.nan, math.nan
    if images == 0:
        return 0.0, 100.0
    rate, shrink = error / 100, _Z**2 / images
    centre = (rate + shrink / 2) / (1 + shrink)
    half = _Z / (1 + shrink) * math.sqrt(rate * (1 - rate) / images + shrink / (4 * images))
    return 100 * max(0.0, centre - half), 100 * min(1.0, centre + half)
