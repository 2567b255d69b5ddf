"""What one pass over a validation or test set measured."""

from dataclasses import dataclass
from typing import Any

from lws_lightning.records.plain import Record

__all__ = ["Evaluation", "TaskEvaluation"]


@dataclass(frozen=True)
class TaskEvaluation(Record):
    """One task's error in percent, and over how many images."""

    error: float
    images: int


@dataclass(frozen=True)
class Evaluation(Record):
    """The result of evaluating all tasks once. Tasks without images are left out.

    Attributes:
        prefix: `test_curve`, `val` or `test`.
        step: Training steps done before.
        error: Percent of all images of all tasks together that are misclassified. This is the paper's "test error";
            a task with many images counts for more.
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
    def images(self) -> int:
        """Number of images of all tasks."""
        return sum(task.images for task in self.tasks.values())

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain values, and the number of images for whoever reads the file."""
        return {**super().to_json(), "images": self.images}

    def as_metrics(self) -> dict[str, float]:
        """Returns the values under the tags that are logged."""
        metrics = {
            f"{self.prefix}/error": self.error,
            f"{self.prefix}/error_task_mean": self.error_task_mean,
            f"{self.prefix}/loss": self.loss,
        }
        return metrics | {f"{self.prefix}/error/{name}": task.error for name, task in self.tasks.items()}
