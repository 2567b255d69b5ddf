"""The result of one pass over a validation or test set."""

from dataclasses import dataclass
from typing import Any

from lws_lightning.records.json_values import Record

__all__ = ["Evaluation", "TaskEvaluation"]


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
