"""From a population of assignments to the passes that compute it, each distinct one once.

Two assignments that agree for a task up to a layer have the same activations of that task there. A population
is therefore a prefix forest: its roots are the tasks, and at each layer a node is a distinct pair of (parent
node, copy). The number of nodes is what a layer costs. It falls as the search distribution sharpens, down to one
node a task.

A plan is integer bookkeeping on the CPU, made from the population alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lws_lightning.sharing.passes import PopulationPass

__all__ = ["LayerPlan", "PopulationPlan", "plan_population"]


@dataclass(frozen=True)
class LayerPlan:
    """What one layer computes. Nodes are ordered by copy, then by parent.

    Attributes:
        copies: The copies in use, ascending.
        sizes: For each of them the number of its nodes; sums to the layer's number of nodes.
        parents: `(nodes,)` int64, each node's node in the layer below (the task's position for the first layer).
        visit_nodes: For each copy in use, the nodes of its visits as indices into its own nodes, in the order of a
            plain loop (assignments outside, tasks inside).
        visit_numbers: For each copy in use, where these visits stand among all the copy's visits of the step, counted
            from 0; for a whole population simply in order.
        total_visits: For each copy in use, how many visits the step has.
    """

    copies: tuple[int, ...]
    sizes: tuple[int, ...]
    parents: Tensor
    visit_nodes: tuple[Tensor, ...]
    visit_numbers: tuple[Tensor, ...]
    total_visits: tuple[int, ...]


@dataclass(frozen=True)
class PopulationPlan:
    """One `LayerPlan` for each layer of the chain, and where each task's results are found at its end.

    Attributes:
        layers: One plan for each layer, common layers included.
        leaves: `(leaves,)` int64, the nodes of the last layer, ordered by task.
        leaves_per_task: How many of them belong to each task.
        leaf_of: `(S, T')` int64, for assignment s and task t the position among task t's own leaves.

    Of a pass over a part of a population, S and T' are the numbers of the part's assignments and tasks.
    """

    layers: tuple[LayerPlan, ...]
    leaves: Tensor
    leaves_per_task: tuple[int, ...]
    leaf_of: Tensor


def plan_population(
    population: Tensor, learned_layers: Sequence[int | None], part: PopulationPass | None = None
) -> PopulationPlan:
    """Plans how a population runs through a chain of layers.

    Args:
        population: `(S, L, T')` int64 on the CPU, the copies of T' tasks.
        learned_layers: For each layer of the chain its index in the population's second dimension, or None for a
            common layer, which has one copy.
        part: The part of the population that the plan is for; None: all of it.

    Returns:
        The plan. It says nothing about which tasks these are: position t in it is column t of the population, or of the
        part.
    """
    whole, population = population, population if part is None else select(population, part)
    size, _, num_tasks = population.shape
    nodes = torch.arange(num_tasks).expand(size, num_tasks)
    num_nodes = num_tasks
    layers = []
    for index in learned_layers:
        copies = _copies(population, index)
        keys, nodes = torch.unique(copies * num_nodes + nodes, return_inverse=True)
        visits = None if part is None else _number_visits(_copies(whole, index), part)
        layers.append(_plan_layer(copies, nodes, keys // num_nodes, keys % num_nodes, visits))
        num_nodes = len(keys)
    task_keys, leaf_of = torch.unique(
        torch.arange(num_tasks) * num_nodes + nodes, return_inverse=True
    )  # by task, then by node
    leaves_per_task = torch.bincount(task_keys // num_nodes, minlength=num_tasks)
    return PopulationPlan(
        layers=tuple(layers),
        leaves=task_keys % num_nodes,
        leaves_per_task=tuple(leaves_per_task.tolist()),
        leaf_of=leaf_of - (leaves_per_task.cumsum(0) - leaves_per_task),
    )


def select(table: Tensor, part: PopulationPass) -> Tensor:
    """Returns the part's entries `(rows, ..., tasks)` of a table `(S, ..., T')`."""
    return table[list(part.rows)][..., part.tasks.start : part.tasks.stop]


def _copies(population: Tensor, index: int | None) -> Tensor:
    """Returns the copies `(S, T')` that a layer of the chain uses."""
    size, _, num_tasks = population.shape
    return population.new_zeros(size, num_tasks) if index is None else population[:, index]


def _number_visits(copies: Tensor, part: PopulationPass) -> tuple[Tensor, Tensor]:
    """Counts for each of the part's visits `(S, T')` the visits of its copy before it, and in all the step."""
    flat = copies.flatten()
    order = flat.argsort(stable=True)  # by copy, then as in the plain loop
    totals = flat.bincount()
    before = totals.cumsum(0) - totals
    numbers = torch.empty_like(flat)
    numbers[order] = torch.arange(len(flat)) - before[flat[order]]
    return select(numbers.view_as(copies), part), select(totals[copies], part)


def _plan_layer(
    copies: Tensor, nodes: Tensor, node_copies: Tensor, parents: Tensor, visits: tuple[Tensor, Tensor] | None
) -> LayerPlan:
    used, sizes = torch.unique_consecutive(node_copies, return_counts=True)
    first_nodes = (sizes.cumsum(0) - sizes).tolist()
    visitors = [copies == copy for copy in used.tolist()]
    visit_nodes = tuple(nodes[visitor] - first for visitor, first in zip(visitors, first_nodes, strict=True))
    if visits is None:
        visit_numbers = tuple(torch.arange(len(own)) for own in visit_nodes)
        total_visits = tuple(len(own) for own in visit_nodes)
    else:
        visit_numbers = tuple(visits[0][visitor] for visitor in visitors)
        total_visits = tuple(int(visits[1][visitor][0]) for visitor in visitors)
    return LayerPlan(tuple(used.tolist()), tuple(sizes.tolist()), parents, visit_nodes, visit_numbers, total_visits)
