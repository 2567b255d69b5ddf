"""Task affinity over the runs of a row: how often two tasks share a layer, and whether seeds agree."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lws_lightning.drawing import affinity_of_assignment, affinity_of_probabilities
from lws_lightning.records import Run
from lws_lightning.results.group_sizes import Assignment, read_assignments
from lws_lightning.results.rows import Row, Section

__all__ = ["Affinity", "Stability", "row_affinity", "section_affinities", "stability", "task_order"]

ALL_LAYERS = "all layers"
_PERMUTATIONS = 999
_MAX_ARRANGEMENTS = 10_000
_MAX_UNORDERED = 8  # more tasks are reordered so that related ones are easy to find

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Stability:
    """How far the seeds agree on which tasks share a layer.

    Attributes:
        layer: Its name, or `all layers`: the mean over layers.
        sharing: Percentage of the pairs of tasks that share it, mean over seeds.
        rand: Mean Rand index of two seeds: the fraction of the pairs of tasks on which both agree (share, or do not),
            in [0, 1]. None with one seed.
        chance: Expected `rand` if each seed had groups of the same sizes, but with random tasks. None with one seed.
        p: Probability of a `rand` at least as large in that case, from 999 permutations of the tasks of each seed. None
            with one seed, or if the group sizes leave nothing to chance.
        uniform: Expected `sharing` of uniformly drawn assignments: 100 / K_l, or the mean of these. None if the sizes
            are not known.
    """

    layer: str
    sharing: float
    rand: float | None = None
    chance: float | None = None
    p: float | None = None
    uniform: float | None = None

    @property
    def adjusted(self) -> float | None:
        """`(rand - chance) / (1 - chance)`: 1 is full agreement, 0 is chance. None if chance is 1 or unknown."""
        if self.rand is None or self.chance is None or self.chance > 1 - 1e-9:
            return None
        return (self.rand - self.chance) / (1 - self.chance)


@dataclass(frozen=True)
class Affinity:
    """How often tasks share in the runs of a row.

    Attributes:
        row: The row.
        runs: Those whose record has an assignment, in the order of seeds.
        layers: L names.
        tasks: T names, at least two.
        shares: `(L, T, T)`, the fraction of runs in which two tasks share a layer in the final assignment.
        probabilities: `(L, T, T)`, the probability of sharing under the final search distribution, mean over runs; None
            if a run has no search distribution.
        stability: One for each layer, and the last for all layers.
    """

    row: Row
    runs: tuple[Run, ...]
    layers: tuple[str, ...]
    tasks: tuple[str, ...]
    shares: Numbers
    probabilities: Numbers | None
    stability: tuple[Stability, ...]

    def pairs(self) -> list[tuple[int, int]]:
        """Returns all pairs of tasks by decreasing number of shared layers; ties in the order of tasks."""
        mean = self.shares.mean(0)
        # Rounded, so that the order of sums does not break ties.
        pairs = itertools.combinations(range(len(self.tasks)), 2)
        return sorted(pairs, key=lambda pair: (-round(float(mean[pair]), 9), pair))


def section_affinities(section: Section) -> list[Affinity]:
    """Returns the affinity of each learned row of a section; see `row_affinity`."""
    affinities = [row_affinity(section, row) for row in section.rows if row.learned]
    return [affinity for affinity in affinities if affinity is not None]


def row_affinity(section: Section, row: Row) -> Affinity | None:
    """Counts how often two tasks share in the runs of a row; None with one task, or if no run has an assignment."""
    run_assignments, _ = read_assignments(row)
    if not run_assignments or len(section.task_names) < 2:
        return None
    runs = tuple(run for run, _ in run_assignments)
    layers = tuple(runs[0].layer_names)
    assignments = [assignment for _, assignment in run_assignments]
    shares = np.mean([affinity_of_assignment(a) for a in assignments], axis=0)
    probabilities = [affinity for affinity in map(_distribution_affinity, runs) if affinity is not None]
    mean = np.mean(probabilities, axis=0) if len(probabilities) == len(runs) else None
    # All runs of a row have the same K_l, which is an option.
    agreement = tuple(stability(assignments, layers, runs[0].weights_per_layer))
    return Affinity(row, runs, layers, section.task_names, shares, mean, agreement)


def stability(
    assignments: Sequence[Assignment],
    layer_names: Sequence[str],
    weights_per_layer: Sequence[int] | None = None,
) -> list[Stability]:
    """Measures how far seeds agree on which tasks share.

    Copies of a layer are interchangeable: copy 0 of one seed has nothing to do with copy 0 of another. So the
    partitions of the tasks into groups are compared, two seeds at a time, by the Rand index.

    Args:
        assignments: R assignments, each `(L, T)`, T at least two.
        layer_names: L names.
        weights_per_layer: K_l for each of the L layers, if known.

    Returns:
        One for each layer, and their mean as `all layers`. p is exact for few seeds and tasks, otherwise estimated from
        a fixed sample of permutations; a seed's tasks have the same permutation at all layers.
    """
    copies = np.asarray(assignments)
    runs, layers, tasks = copies.shape
    pairs = tasks * (tasks - 1) / 2
    names = [*layer_names, ALL_LAYERS]
    together = (np.triu(copies[..., :, None] == copies[..., None, :], 1)).sum((2, 3)).astype(np.float64)  # (R, L)
    sharing = _with_mean(100 * together.mean(0) / pairs)
    uniform: list[float | None] = [None] * len(names)
    if weights_per_layer is not None:
        uniform = [*_with_mean(100 / np.asarray(weights_per_layer, dtype=np.float64))]
    if runs < 2:
        return [Stability(name, value, uniform=u) for name, value, u in zip(names, sharing, uniform, strict=True)]
    couples = runs * (runs - 1) / 2
    # If a pairs of tasks share in one seed, b in another and c in both, the Rand index is 1 - (a + b - 2 c) / pairs.
    # By chance, c is a b / pairs. Sums over all couples of seeds:
    either = (runs - 1) * together.sum(0)
    expected = (together.sum(0) ** 2 - (together**2).sum(0)) / 2 / pairs
    observed = _shared_in_both(copies)
    rand = _with_mean(1 - (either - 2 * observed) / (pairs * couples))
    chance = _with_mean(1 - (either - 2 * expected) / (pairs * couples))
    least = _with_sum(observed)
    reached, arrangements = np.zeros(layers + 1), 0
    for orders in _arrangements(runs, tasks):
        permuted = np.take_along_axis(copies, np.broadcast_to(orders[:, None, :], copies.shape), axis=2)
        reached += _with_sum(_shared_in_both(permuted)) >= least
        arrangements += 1
    p = reached / arrangements
    return [
        Stability(name, share, value, by_chance, float(p[i]) if by_chance < 1 - 1e-9 else None, uniform[i])
        for i, (name, share, value, by_chance) in enumerate(zip(names, sharing, rand, chance, strict=True))
    ]


def _arrangements(runs: int, tasks: int) -> Iterator[NDArray[np.int64]]:
    """Yields permutations of each seed's tasks, `(R, T)`: all with the first seed's fixed, or a sample if too many.

    A sample includes the identity, so that p is never 0 and unbiased.
    """
    if math.factorial(tasks) ** (runs - 1) <= _MAX_ARRANGEMENTS:
        permutations = list(itertools.permutations(range(tasks)))
        for others in itertools.product(permutations, repeat=runs - 1):
            yield np.array([permutations[0], *others])
        return
    generator = np.random.default_rng(0)
    yield np.tile(np.arange(tasks), (runs, 1))
    for _ in range(_PERMUTATIONS):
        yield np.argsort(generator.random((runs, tasks)), axis=1)


def task_order(affinity: Affinity) -> list[int]:
    """Returns an order in which tasks that share much are neighbours: average linkage of the mean over layers.

    Up to 8 tasks keep their order.
    """
    tasks = len(affinity.tasks)
    if tasks <= _MAX_UNORDERED:
        return list(range(tasks))
    from scipy.cluster.hierarchy import leaves_list, linkage  # takes a third of a second to import
    from scipy.spatial.distance import squareform

    distances = 1 - affinity.shares.mean(0)
    np.fill_diagonal(distances, 0.0)
    return [int(task) for task in leaves_list(linkage(squareform(distances, checks=False), "average"))]


def _shared_in_both(copies: np.ndarray[Any, Any]) -> Numbers:
    """Counts the pairs of tasks that share in both of two seeds, by layer and summed over all couples of seeds."""
    tasks = copies.shape[2]
    seeds = (copies[..., :, None] == copies[..., None, :]).sum(0, dtype=np.int64)  # (L, T, T)
    both = (seeds * (seeds - 1) // 2).sum((1, 2))
    diagonal = tasks * (len(copies) * (len(copies) - 1) // 2)
    pairs: Numbers = ((both - diagonal) // 2).astype(np.float64)
    return pairs


def _with_mean(values: Numbers) -> list[float]:
    return [*map(float, values), float(values.mean())]


def _with_sum(values: Numbers) -> Numbers:
    return np.append(values, values.sum())


def _distribution_affinity(run: Run) -> Numbers | None:
    """Returns the affinity of a run's final search distribution, None if it has none."""
    if run.probabilities is None:
        return None
    size = max(len(task) for layer in run.probabilities for task in layer)
    padded = [[[*task, *[0.0] * (size - len(task))] for task in layer] for layer in run.probabilities]
    return affinity_of_probabilities(padded)
