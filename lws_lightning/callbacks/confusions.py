"""Counts which classes are taken for which in a test."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import multiclass_confusion_matrix

from lws_lightning.records import ClassResults, TaskClasses

__all__ = ["TaskConfusions"]

_MAX_CLASSES = 1000  # a matrix of 8 MB


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
