"""Losses of a population, for each assignment and task."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["task_losses"]


def task_losses(logits: Sequence[Tensor], labels: Tensor) -> Tensor:
    """Computes the mean cross-entropy of each task's batch under each assignment.

    Args:
        logits: For each of T tasks `(S, B, classes_t)`, floating point.
        labels: `(T, B)` int64.

    Returns:
        `(S, T)` in nats, in at least float32. The paper's loss f of an assignment is its mean over tasks.
    """
    columns = []
    for task_logits, task_labels in zip(logits, labels, strict=True):
        size, batch_size, _ = task_logits.shape
        wide = task_logits.to(torch.promote_types(task_logits.dtype, torch.float32))
        losses = F.cross_entropy(wide.flatten(0, 1), task_labels.repeat(size), reduction="none")
        columns.append(losses.view(size, batch_size).mean(1))
    return torch.stack(columns, dim=1)
