"""What networks have in common whose tasks mix activations instead of choosing weights."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lws_lightning.sharing.batch_norm import Visits, norms_of, visiting
from lws_lightning.sharing.passes import PopulationPass
from lws_lightning.sharing.plan import LayerPlan
from lws_lightning.sharing.random_layers import PassDraws
from lws_lightning.sharing.task_networks import TaskNetworks

__all__ = ["GatedNetworks", "task_plan"]


class GatedNetworks(TaskNetworks):
    """Networks that no assignment describes: a subclass says what the heads read."""

    @abstractmethod
    def features(self, images: Tensor, tasks: Sequence[int], batch_size: int) -> Tensor:
        """Computes what the heads read, `(T' * B, ...)`, from the images `(T' * B, ...)` of T' tasks."""

    def forward(self, images: Tensor, population: None = None, part: PopulationPass | None = None) -> list[Tensor]:
        """Runs one batch of each task.

        Args:
            images: `(T, B, ...)` floating point.
            population: None; no assignment describes this network.
            part: Which tasks this pass computes (see `passes`); None: all.

        Returns:
            For each of these tasks its logits, `(1, B, classes_t)`.
        """
        tasks = range(len(self.heads)) if part is None else part.tasks
        batch_size = images.shape[1]
        features = self.features(images[tasks.start : tasks.stop].flatten(0, 1), tasks, batch_size)
        return _run_heads(self.heads, features, tasks, batch_size, self.pass_draws(tasks))

    def forward_task(self, images: Tensor, assignment: None, task: int) -> Tensor:
        """Runs `(N, ...)` images of one task; returns `(N, classes)` logits."""
        return self.heads[task](self.features(images, [task], len(images)))  # type: ignore[no-any-return]


def task_plan(copies: int, in_columns: int, tasks: Sequence[int], num_tasks: int) -> LayerPlan:
    """Plans a layer all of whose copies compute the batches of the same tasks.

    Args:
        copies: How many copies compute, each everything if the input is not in columns; else each its own column, or a
            single one all columns.
        in_columns: Of how many columns the input consists, each with the batches of the T' tasks.
        tasks: The T' tasks of this pass.
        num_tasks: T, all tasks of the step.

    Returns:
        A plan whose nodes are ordered by column, then by task.
    """
    size = len(tasks)
    per_copy = max(1, in_columns // copies)
    columns = max(copies, in_columns)
    parents = torch.arange(columns * size) if in_columns == columns else torch.arange(size).repeat(columns)
    nodes = torch.arange(per_copy * size)
    numbers = (torch.arange(per_copy)[:, None] * num_tasks + torch.tensor(tasks)).flatten()
    return LayerPlan(
        copies=tuple(range(copies)),
        sizes=(per_copy * size,) * copies,
        parents=parents,
        visit_nodes=(nodes,) * copies,
        visit_numbers=(numbers,) * copies,
        total_visits=(per_copy * num_tasks,) * copies,
        tasks=(torch.tensor(tasks).repeat(per_copy),) * copies,
    )


def _run_heads(
    heads: nn.ModuleList, features: Tensor, tasks: Sequence[int], batch_size: int, draws: PassDraws
) -> list[Tensor]:
    """Applies each task's head to its part of `(T' * B, ...)`; returns logits `(1, B, classes_t)` for each."""
    first = torch.zeros(1, dtype=torch.int64)
    visit = Visits(1, first, first, 1)
    logits = []
    for node, (task, own) in enumerate(zip(tasks, torch.split(features, batch_size), strict=True)):
        norms = [(norm, visit) for norm in norms_of(heads[task])]
        with visiting(norms), draws.head(heads[task], [node]):
            logits.append(heads[task](own).unsqueeze(0))
    return logits
