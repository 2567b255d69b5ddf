"""Base of networks whose tasks mix activations instead of choosing copies."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from lws_lightning.sharing.nodes import Nodes, node_context
from lws_lightning.sharing.passes import PopulationPass
from lws_lightning.sharing.plan import LayerPlan
from lws_lightning.sharing.task_networks import TaskNetworks

__all__ = ["GatedNetworks", "plan_all_copies", "root_prefixes"]


class GatedNetworks(TaskNetworks):
    """Networks without copies to choose: assignments are `(0, T)`. A subclass computes what the heads read."""

    @abstractmethod
    def features(self, images: Tensor, tasks: Sequence[int], batch_size: int) -> Tensor:
        """Computes the heads' input, `(T' * B, ...)`, from the images `(T' * B, ...)` of T' tasks."""

    def forward(
        self, images: Tensor, population: Tensor, population_pass: PopulationPass | None = None
    ) -> list[Tensor]:
        """Runs one batch of each task.

        Args:
            images: `(T, B, ...)` floating point.
            population: `(1, 0, T)`.
            population_pass: The tasks to compute (see `passes`); None: all.

        Returns:
            The logits of each of these tasks, `(1, B, classes_t)`.
        """
        tasks = range(len(self.heads)) if population_pass is None else population_pass.tasks
        batch_size = images.shape[1]
        features = self.features(images[tasks.start : tasks.stop].flatten(0, 1), tasks, batch_size)
        logits = []
        for task, task_features in zip(tasks, torch.split(features, batch_size), strict=True):
            with node_context([self.heads[task]], [Nodes.of_task(task)], self.seed_function_at("head")):
                logits.append(self.heads[task](task_features).unsqueeze(0))
        return logits

    def forward_task(self, images: Tensor, assignment: Tensor, task: int) -> Tensor:
        """Runs `(N, ...)` images of one task; returns `(N, classes)` logits."""
        return self.heads[task](self.features(images, [task], len(images)))  # type: ignore[no-any-return]


def root_prefixes(tasks: Sequence[int]) -> Tensor:
    """Returns the prefixes `(T', 1)` of the tasks' batches before the first layer (see `Nodes`)."""
    return torch.tensor(tasks)[:, None]


def plan_all_copies(copies: int, prefixes: Tensor, tasks: Sequence[int], num_tasks: int) -> LayerPlan:
    """Plans a layer whose copies all compute the batches of the same tasks.

    Args:
        copies: The number of copies. Each computes the whole input if it is not in columns, and its own column if it
            is; a single copy computes all columns.
        prefixes: Of the input's nodes (see `Nodes`): the batches of the T' tasks, once or in each column.
        tasks: The T' tasks of this pass.
        num_tasks: T, all tasks of the step.

    Returns:
        A plan whose nodes are ordered by column, then by task.
    """
    in_columns = len(prefixes) // len(tasks)
    per_copy, columns = max(1, in_columns // copies), max(copies, in_columns)
    size = per_copy * len(tasks)
    nodes = torch.arange(columns * len(tasks))
    parents = nodes % len(prefixes)
    own_prefixes = torch.split(torch.cat([prefixes[parents], nodes[:, None] // size], 1), size)
    numbers = (torch.arange(per_copy)[:, None] * num_tasks + torch.tensor(tasks)).flatten()
    return LayerPlan(
        copies=tuple(range(copies)),
        parents=parents,
        nodes=tuple(
            Nodes(copy_prefixes, nodes[:size], numbers, per_copy * num_tasks) for copy_prefixes in own_prefixes
        ),
    )
