"""Sizes of the groups of tasks that share weights, by layer (the paper's figure of the average sharing)."""

from collections import Counter
from collections.abc import Sequence

from lws_lightning.records import Run
from lws_lightning.results.rows import Row

__all__ = ["Assignment", "group_shares", "read_assignments", "size_bins", "sizes_text"]

Assignment = list[list[int]]
_MAX_SIZES = 8  # distinguishable colours


def read_assignments(row: Row) -> tuple[list[tuple[Run, Assignment]], list[tuple[Run, str]]]:
    """Returns the runs of a row with their final `(L, T)` assignments, and the unusable runs with the reason."""
    found: list[tuple[Run, Assignment]] = []
    problems = []
    for run in row.runs:
        if not run.assignment:
            problems.append((run, "its record has no assignment"))
        elif found and run.layer_names != found[0][0].layer_names:
            problems.append((run, "it has other layers than the first run of its row"))
        else:
            found.append((run, run.assignment))
    return found, problems


def group_shares(assignments: Sequence[Assignment]) -> list[list[float]]:
    """Returns how many tasks are in groups of each size.

    A task is in a group of size t at a layer if exactly t tasks, including itself, use its copy there.

    Args:
        assignments: R assignments, each `(L, T)`.

    Returns:
        `(L, T)`: percentage of the tasks of all runs in groups of size 1, ..., T; the sum of each layer is 100.
    """
    layers, tasks = len(assignments[0]), len(assignments[0][0])
    shares = [[0.0] * tasks for _ in range(layers)]
    for assignment in assignments:
        for layer, copies in enumerate(assignment):
            for size in Counter(copies).values():
                shares[layer][size - 1] += 100 * size / (tasks * len(assignments))
    return shares


def size_bins(tasks: int) -> list[tuple[int, int]]:
    """Returns bins `(first, last)` of group sizes: single sizes up to 8 tasks, else 1, 2, 3-4, 5-8, ..."""
    if tasks <= _MAX_SIZES:
        return [(size, size) for size in range(1, tasks + 1)]
    bins = [(1, 1)]
    while bins[-1][1] < tasks:
        first = bins[-1][1] + 1
        bins.append((first, min(2 * (first - 1), tasks)))
    return bins


def sizes_text(bounds: tuple[int, int], tasks: int) -> str:
    """Returns the label of a bin: `alone`, `2 tasks`, `3-4 tasks`, `all 3`."""
    first, last = bounds
    if first == last == 1:
        return "alone"
    if first == last == tasks:
        return f"all {tasks}"
    return f"{first} tasks" if first == last else f"{first}-{last} tasks"
