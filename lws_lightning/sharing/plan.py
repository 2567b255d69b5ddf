"""Plans how to compute a population of assignments, each distinct prefix once.

Two assignments that agree for a task up to a layer have the same activations of that task there. A population is
therefore a prefix forest: its roots are the tasks, and at each layer a node is a distinct pair of (parent node, copy).
The number of nodes is the cost of a layer. It falls as the search distribution sharpens, down to one node per task.

A plan is integer bookkeeping on the CPU and depends only on the population. It uses NumPy, which takes a third of
torch's time on such small arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lws_lightning.sharing.nodes import Nodes
from lws_lightning.sharing.passes import PopulationPass

__all__ = ["LayerPlan", "PopulationPlan", "plan_population"]

_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LayerPlan:
    """The nodes of one layer, ordered by copy, then by parent.

    Attributes:
        copies: The copies in use, ascending.
        parents: `(nodes,)` int64, each node's parent in the previous layer (the task's index for the first layer).
        nodes: The nodes of each copy in use.
    """

    copies: tuple[int, ...]
    parents: Tensor
    nodes: tuple[Nodes, ...]

    @property
    def prefixes(self) -> Tensor:
        """`(nodes, 1 + layers)` int64, the prefixes of all nodes (see `Nodes`)."""
        return torch.cat([nodes.prefixes for nodes in self.nodes])


@dataclass(frozen=True)
class PopulationPlan:
    """One `LayerPlan` for each layer of the chain, and the position of each task's results at its end.

    Attributes:
        layers: One plan per layer, including common layers.
        leaves: `(leaves,)` int64, the nodes of the last layer, ordered by task.
        heads: Each task's leaves, as the nodes of its head; the visits are the S assignments.

    For a `PopulationPass`, S and T' count its assignments and tasks.
    """

    layers: tuple[LayerPlan, ...]
    leaves: Tensor
    heads: tuple[Nodes, ...]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def plan_population(
    population: Tensor,
    learned_layers: Sequence[int | None],
    population_pass: PopulationPass | None = None,
    tasks: Sequence[int] | None = None,
) -> PopulationPlan:
    """Plans a population's way through a chain of layers.

    Args:
        population: `(S, L, T')` int64 on the CPU, the copies of T' tasks.
        learned_layers: For each layer of the chain, its index in the population's second dimension; None for a common
            layer, which has one copy.
        population_pass: The part of the population to plan; None: all of it.
        tasks: The tasks of the population's columns, or of those of the pass; None: 0, 1, ...

    Returns:
        The plan. Except in the prefixes of nodes, task t in it is column t of the population or of the pass.
    """
    table = population.numpy()
    whole, table = table, table if population_pass is None else _select(table, population_pass)
    size, _, num_tasks = table.shape
    nodes = np.broadcast_to(np.arange(num_tasks), (size, num_tasks))
    num_nodes = num_tasks
    prefixes = (np.arange(num_tasks) if tasks is None else np.asarray(tasks, np.int64))[:, None]
    layers = []
    for index in learned_layers:
        copies = _copies(table, index)
        keys, nodes = _distinct(copies * num_nodes + nodes)
        visits = None if population_pass is None else _number_visits(_copies(whole, index), population_pass)
        node_copies, parents = keys // num_nodes, keys % num_nodes
        prefixes = np.concatenate((prefixes[parents], node_copies[:, None]), 1)
        layers.append(_plan_layer(copies, nodes, node_copies, parents, prefixes, visits))
        num_nodes = len(keys)
    task_keys, leaf_of = _distinct(np.arange(num_tasks) * num_nodes + nodes)  # by task, then by node
    leaves, leaves_per_task = task_keys % num_nodes, np.bincount(task_keys // num_nodes, minlength=num_tasks)
    first_leaves = leaves_per_task.cumsum() - leaves_per_task
    numbers = torch.arange(len(whole)) if population_pass is None else torch.tensor(population_pass.rows)
    own_prefixes = torch.split(torch.from_numpy(prefixes[leaves]), leaves_per_task.tolist())
    visits_of_heads = torch.from_numpy(leaf_of - first_leaves).unbind(1)
    heads = (Nodes(*both, numbers, len(whole)) for both in zip(own_prefixes, visits_of_heads, strict=True))
    return PopulationPlan(tuple(layers), torch.from_numpy(leaves), tuple(heads))


def _select(table: _Ints, population_pass: PopulationPass) -> _Ints:
    """Returns the entries `(rows, ..., tasks)` of a table `(S, ..., T')` that belong to the pass."""
    return table[list(population_pass.rows)][..., population_pass.tasks.start : population_pass.tasks.stop]


def _distinct(keys: _Ints) -> tuple[_Ints, _Ints]:
    """Returns the distinct keys, ascending, and the index of each key among them, in the shape of the keys."""
    distinct, inverse = np.unique(keys.ravel(), return_inverse=True)
    return distinct, inverse.reshape(keys.shape)


def _copies(table: _Ints, index: int | None) -> _Ints:
    """Returns the copies `(S, T')` that a layer of the chain uses."""
    size, _, num_tasks = table.shape
    return np.zeros((size, num_tasks), np.int64) if index is None else table[:, index]


def _by_copy(copies: _Ints) -> tuple[_Ints, _Ints]:
    """Returns the visits `(S * T',)` sorted by copy, then in loop order, and the number of visits of each copy."""
    flat = copies.ravel()
    return flat.argsort(kind="stable"), np.bincount(flat)


def _number_visits(copies: _Ints, population_pass: PopulationPass) -> tuple[_Ints, _Ints]:
    """Returns, for each visit of the pass, its number among its copy's visits in the step, and their total."""
    order, totals = _by_copy(copies)
    before = totals.cumsum() - totals
    numbers = np.empty(copies.size, np.int64)
    numbers[order] = np.arange(copies.size) - before[copies.ravel()[order]]
    return (
        _select(numbers.reshape(copies.shape), population_pass),
        _select(totals[copies], population_pass),
    )


def _plan_layer(
    copies: _Ints,
    nodes: _Ints,
    node_copies: _Ints,
    parents: _Ints,
    prefixes: _Ints,
    visits: tuple[_Ints, _Ints] | None,
) -> LayerPlan:
    used, first_nodes, sizes = np.unique(node_copies, return_index=True, return_counts=True)
    order, counts = _by_copy(copies)
    ends = counts[used].cumsum()[:-1]
    own_nodes = np.split(nodes.ravel()[order], ends)
    if visits is None:
        numbers = [np.arange(len(visited)) for visited in own_nodes]
        totals = [len(visited) for visited in own_nodes]
    else:
        numbers = np.split(visits[0].ravel()[order], ends)
        totals = [int(counts[0]) for counts in np.split(visits[1].ravel()[order], ends)]
    own_prefixes = torch.split(torch.from_numpy(prefixes), sizes.tolist())
    return LayerPlan(
        copies=tuple(used.tolist()),
        parents=torch.from_numpy(parents),
        nodes=tuple(
            Nodes(copy_prefixes, torch.from_numpy(visited - first), torch.from_numpy(number), total)
            for copy_prefixes, visited, first, number, total in zip(
                own_prefixes, own_nodes, first_nodes, numbers, totals, strict=True
            )
        ),
    )
