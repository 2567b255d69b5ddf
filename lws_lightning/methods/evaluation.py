"""Errors of every task on validation or test images."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

__all__ = ["Evaluation", "TaskErrors", "TaskEvaluation"]


@dataclass(frozen=True)
class TaskEvaluation:
    """One task's error in percent, and over how many images."""

    error: float
    images: int


@dataclass(frozen=True)
class Evaluation:
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

    def as_metrics(self) -> dict[str, float]:
        """Returns the values under the tags that are logged."""
        metrics = {
            f"{self.prefix}/error": self.error,
            f"{self.prefix}/error_task_mean": self.error_task_mean,
            f"{self.prefix}/loss": self.loss,
        }
        return metrics | {f"{self.prefix}/error/{name}": task.error for name, task in self.tasks.items()}


class TaskErrors(Metric):
    """Counts images, errors and summed losses for each task; one reduction over processes whatever T is.

    Args:
        num_tasks: T.
    """

    full_state_update = False
    counts: Tensor

    def __init__(self, num_tasks: int) -> None:
        super().__init__()
        self.add_state("counts", default=torch.zeros(num_tasks, 3, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, task: int, logits: Tensor, labels: Tensor) -> None:
        """Adds some images of one task.

        Args:
            task: In `[0, T)`.
            logits: `(N, classes)`.
            labels: `(N,)` int64.
        """
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(wide, labels, reduction="sum")
        wrong = (wide.argmax(-1) != labels).sum()
        self.counts[task] += torch.stack([torch.full_like(loss, len(labels)), wrong.to(loss), loss.detach()])

    def compute(self) -> Tensor:
        """Returns `(T, 3)` float64: images, errors, summed loss."""
        return self.counts

    def evaluation(self, prefix: str, step: int, task_names: Sequence[str]) -> Evaluation | None:
        """Returns the errors so far, or None without a single image."""
        counts = self.compute().cpu()
        seen = {name: row for name, row in zip(task_names, counts.tolist(), strict=True) if row[0] > 0}
        if not seen:
            return None
        images, wrong, loss = (sum(row[i] for row in seen.values()) for i in range(3))
        tasks = {name: TaskEvaluation(100 * row[1] / row[0], round(row[0])) for name, row in seen.items()}
        task_mean = sum(task.error for task in tasks.values()) / len(tasks)
        return Evaluation(prefix, step, 100 * wrong / images, task_mean, loss / images, tasks)
