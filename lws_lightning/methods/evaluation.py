"""Errors of each task on validation or test images."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

from lws_lightning.records import Evaluation, TaskEvaluation

__all__ = ["TaskErrors"]


class TaskErrors(Metric):
    """Counts images, errors and summed losses per task; a single reduction over processes for any T.

    Args:
        num_tasks: T.
    """

    full_state_update = False
    counts: Tensor

    def __init__(self, num_tasks: int) -> None:
        super().__init__()
        self.add_state("counts", default=torch.zeros(num_tasks, 3, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, task: int, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch of one task.

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
        """Returns the errors so far, or None if there were no images."""
        counts = self.compute().cpu()
        seen = {name: row for name, row in zip(task_names, counts.tolist(), strict=True) if row[0] > 0}
        if not seen:
            return None
        images, wrong, loss = (sum(row[i] for row in seen.values()) for i in range(3))
        tasks = {name: TaskEvaluation(100 * row[1] / row[0], round(row[0])) for name, row in seen.items()}
        task_mean = sum(task.error for task in tasks.values()) / len(tasks)
        return Evaluation(prefix, step, 100 * wrong / images, task_mean, loss / images, tasks)
