"""Splits a population that does not fit into memory at once into passes.

Prefixes never cross tasks (see `plan`), so the nodes of different tasks add up, and passes over different tasks compute
no node twice. A task's prefixes only multiply from layer to layer, so the last layer is the widest, and its nodes are
the task's distinct assignments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

__all__ = ["PopulationPass", "check_max_images", "split_population"]

_Column = tuple[int, ...]
"""The copies that one task uses under one assignment."""


@dataclass(frozen=True)
class PopulationPass:
    """The part of a population that is computed at once: some assignments of some consecutive tasks.

    Attributes:
        tasks: Indices into the population's last dimension.
        rows: Indices into its first dimension, ascending.
    """

    tasks: range
    rows: tuple[int, ...]


def split_population(population: Tensor, batch_size: int, max_images: int | None) -> list[PopulationPass]:
    """Splits a population by task, and by assignment where a single task is too large.

    Args:
        population: `(S, L, T')` int64 on the CPU.
        batch_size: B, images of each task.
        max_images: Maximum number of images (nodes times B) that a layer computes in a pass; None: no limit.

    Returns:
        Passes that contain every assignment of every task once. A pass takes as many consecutive tasks as fit. Equal
        assignments of a task are in one pass, and those with a common prefix are adjacent.

    Raises:
        ValueError: If not even one assignment of one task fits.
    """
    size, _, num_tasks = population.shape
    everything = tuple(range(size))
    if max_images is None:
        return [PopulationPass(range(num_tasks), everything)]
    check_max_images(max_images, batch_size)
    limit = max_images // batch_size
    passes = []
    first = nodes = 0  # of the pass being filled
    for task in range(num_tasks):
        columns: list[_Column] = [tuple(column) for column in population[:, :, task].tolist()]
        distinct = sorted(set(columns))
        if nodes + len(distinct) > limit:
            if task > first:
                passes.append(PopulationPass(range(first, task), everything))
            first, nodes = task, 0
        if len(distinct) > limit:
            passes += [PopulationPass(range(task, task + 1), rows) for rows in _split_rows(columns, distinct, limit)]
            first = task + 1
        else:
            nodes += len(distinct)
    if first < num_tasks:
        passes.append(PopulationPass(range(first, num_tasks), everything))
    return passes


def _split_rows(columns: Sequence[_Column], distinct: Sequence[_Column], limit: int) -> list[tuple[int, ...]]:
    """Splits the assignments of one task into groups of at most `limit` distinct ones."""
    groups = [set(distinct[start : start + limit]) for start in range(0, len(distinct), limit)]
    return [tuple(row for row, column in enumerate(columns) if column in group) for group in groups]


def check_max_images(max_images: int, batch_size: int) -> None:
    """Raises ValueError if a pass of at most `max_images` cannot hold one batch of one task."""
    if max_images < batch_size:
        raise ValueError(
            f"max_images_per_pass is {max_images}, but must be at least the batch size, {batch_size}: the batch of a "
            "task under one assignment is normalised together and cannot be split. Set max_images_per_pass higher, "
            "leave it out (no limit), or set a smaller data.batch_size."
        )
