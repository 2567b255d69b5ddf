"""From a population of assignments to the passes that compute it, each distinct one once.

Two assignments that agree for a task up to a layer have the same activations of that task there. A population
is therefore a prefix forest: its roots are the tasks, and at each layer a node is a distinct pair of (parent
node, copy). The number of nodes is what a layer costs. It falls as the search distribution sharpens, down to one
node a task.

A plan is integer bookkeeping on the CPU, made from the population alone. It is
done with NumPy, whose calls on so few numbers take a third of torch's time.
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
    """What one layer computes. Nodes are ordered by copy, then by parent.

    Attributes:
        copies: The copies in use, ascending.
        parents: `(nodes,)` int64, each node's node in the layer below (the task's position for the first layer).
        nodes: For each copy in use its own nodes.
    """

    copies: tuple[int, ...]
    parents: Tensor
    nodes: tuple[Nodes, ...]

    @property
    def prefixes(self) -> Tensor:
        """`(nodes, 1 + layers)` int64, the prefixes of all nodes (see `Nodes`)."""
        return torch.cat([own.prefixes for own in self.nodes])


@dataclass(frozen=True)
class PopulationPlan:
    """One `LayerPlan` for each layer of the chain, and where each task's results are found at its end.

    Attributes:
        layers: One plan for each layer, common layers included.
        leaves: `(leaves,)` int64, the nodes of the last layer, ordered by task.
        heads: For each task its leaves, as the nodes of its head; the visits are the S assignments.

    Of a pass over a part of a population, S and T' are the numbers of the part's assignments and tasks.
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
    """Plans how a population runs through a chain of layers.

    Args:
        population: `(S, L, T')` int64 on the CPU, the copies of T' tasks.
        learned_layers: For each layer of the chain its index in the population's second dimension, or None for a
            common layer, which has one copy.
        population_pass: The part of the population that the plan is for; None: all of it.
        tasks: The tasks of the columns of the population, or of the part; None: 0, 1, ...

    Returns:
        The plan. But for the prefixes of nodes, position t in it is column t of the population, or of the
        population_pass.
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
    """Returns the part's entries `(rows, ..., tasks)` of a table `(S, ..., T')`."""
    return table[list(population_pass.rows)][..., population_pass.tasks.start : population_pass.tasks.stop]


def _distinct(keys: _Ints) -> tuple[_Ints, _Ints]:
    """Returns the distinct keys, ascending, and where each key is among them, in the shape of the keys."""
    distinct, inverse = np.unique(keys.ravel(), return_inverse=True)
    return distinct, inverse.reshape(keys.shape)


def _copies(table: _Ints, index: int | None) -> _Ints:
    """Returns the copies `(S, T')` that a layer of the chain uses."""
    size, _, num_tasks = table.shape
    return np.zeros((size, num_tasks), np.int64) if index is None else table[:, index]


def _by_copy(copies: _Ints) -> tuple[_Ints, _Ints]:
    """Returns the positions of the visits `(S * T',)`, by copy and then as in a plain loop, and the visits of each."""
    flat = copies.ravel()
    return flat.argsort(kind="stable"), np.bincount(flat)


def _number_visits(copies: _Ints, population_pass: PopulationPass) -> tuple[_Ints, _Ints]:
    """Counts for each of the part's visits `(S, T')` the visits of its copy before it, and in all the step."""
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
        numbers = [np.arange(len(own)) for own in own_nodes]
        totals = [len(own) for own in own_nodes]
    else:
        numbers = np.split(visits[0].ravel()[order], ends)
        totals = [int(own[0]) for own in np.split(visits[1].ravel()[order], ends)]
    own_prefixes = torch.split(torch.from_numpy(prefixes), sizes.tolist())
    return LayerPlan(
        copies=tuple(used.tolist()),
        parents=torch.from_numpy(parents),
        nodes=tuple(
            Nodes(own, torch.from_numpy(visited - first), torch.from_numpy(number), total)
            for own, visited, first, number, total in zip(
                own_prefixes, own_nodes, first_nodes, numbers, totals, strict=True
            )
        ),
    )
