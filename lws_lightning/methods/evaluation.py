"""Errors of each task on validation or test images, and in a test which classes are taken for which."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.functional.classification import multiclass_confusion_matrix

from lws_lightning.records import ClassResults, Evaluation, TaskClasses, TaskEvaluation

__all__ = ["TaskConfusions", "TaskErrors"]

_MAX_CLASSES = 1000  # a matrix of 8 MB


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


class TaskConfusions(Metric):
    """Counts how often each class of each task is taken for which; a single reduction over processes for any T.

    Tasks with more than 1,000 classes are left out.

    Args:
        num_classes: Of each of the T tasks.
    """

    full_state_update = False
    counts: Tensor

    def __init__(self, num_classes: Sequence[int]) -> None:
        super().__init__()
        self._classes = [classes if classes <= _MAX_CLASSES else 0 for classes in num_classes]
        cells = sum(classes**2 for classes in self._classes)
        self.add_state("counts", default=torch.zeros(cells, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, task: int, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch of one task; see `TaskErrors.update`."""
        classes = self._classes[task]
        if classes:
            matrix = multiclass_confusion_matrix(logits.argmax(-1), labels, classes, validate_args=False)
            self._matrices()[task].add_(matrix)

    def compute(self) -> Tensor:
        """Returns the matrices of all tasks behind each other, `(sum of squared classes,)` int64."""
        return self.counts

    def results(self, task_names: Sequence[str], class_names: Sequence[Sequence[str] | None]) -> ClassResults:
        """Returns the counts so far.

        Args:
            task_names: T names.
            class_names: Of each task; None: classes are called by their numbers.
        """
        tasks = {}
        for name, names, matrix in zip(task_names, class_names, self._matrices(self.compute().cpu()), strict=True):
            if int(matrix.sum()):
                tasks[name] = TaskClasses.of(names or [str(number) for number in range(len(matrix))], matrix.tolist())
        return ClassResults(tasks)

    def _matrices(self, counts: Tensor | None = None) -> list[Tensor]:
        """Returns a view `(classes, classes)` for each task, true classes in rows."""
        parts = torch.split(self.counts if counts is None else counts, [classes**2 for classes in self._classes])
        return [part.view(classes, classes) for part, classes in zip(parts, self._classes, strict=True)]
