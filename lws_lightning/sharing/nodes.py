"""The nodes that a block computes in a pass, and the modules that need to know them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["NodeModule", "Nodes", "SeedFunction", "modules_of", "node_context"]

SeedFunction = Callable[..., int]
"""Maps counters to a seed; different counters give independent seeds."""


@dataclass(frozen=True)
class Nodes:
    """The nodes that a block computes in a pass; its input is n times B images, node by node.

    A node is the batch of one task after one sequence of copies. It may stand for several visits of the block in a
    plain loop over assignments and tasks.

    Attributes:
        prefixes: `(n, 1 + layers)` int64: the task, then the copies that its batch has passed, including this block.
        visits: `(V,)` int64, the node of each visit, in the order of the loop (assignments outside, tasks inside).
        numbers: `(V,)` int64, the position of each visit among all visits of the block in the step, from 0.
        total: The number of visits of the block in the step; more than V if there are several passes.
    """

    prefixes: Tensor
    visits: Tensor
    numbers: Tensor
    total: int

    @classmethod
    def of_task(cls, task: int) -> "Nodes":
        """Returns the single node of a block that only one task's batch visits, once."""
        first = torch.zeros(1, dtype=torch.int64)
        return cls(torch.tensor([[task]]), first, first, 1)

    @property
    def size(self) -> int:
        """n, the number of nodes."""
        return len(self.prefixes)

    @property
    def tasks(self) -> Tensor:
        """`(n,)` int64, the task of each node."""
        return self.prefixes[:, 0]


class NodeModule(nn.Module):
    """Base of modules that treat the nodes of their input separately; see `node_context`.

    Attributes:
        nodes: The nodes of the pass's input; None outside the networks' passes.
        seed_function: Makes the seeds of random draws in the pass; None: torch's global generator is used.
        runs: How often the module has run in the pass; a block may use it in several places.
    """

    nodes: Nodes | None = None
    seed_function: SeedFunction | None = None
    runs: int = 0


@contextmanager
def node_context(
    blocks: Sequence[nn.Module], nodes: Sequence[Nodes], seed_function: SeedFunction | None = None
) -> Iterator[None]:
    """Sets the nodes of all `NodeModule`s within some blocks for the enclosed pass.

    Args:
        blocks: The copies of a layer that are in use, or a head.
        nodes: The nodes of each block.
        seed_function: Called by a random layer with its path in the block and a node's prefix.
    """
    modules = []
    for block, block_nodes in zip(blocks, nodes, strict=True):
        for module in modules_of(block):
            if isinstance(module, NodeModule):
                # Not `module.nodes = ...`: `nn.Module.__setattr__` takes longer than all the rest.
                vars(module).update(nodes=block_nodes, seed_function=seed_function, runs=0)
                modules.append(module)
    try:
        yield
    finally:
        for module in modules:
            vars(module).update(nodes=None, seed_function=None)


def modules_of(module: nn.Module) -> list[nn.Module]:
    """Returns a module and its submodules, each once and before its children, like `Module.modules`.

    Unlike `Module.modules` it does not build names, which would dominate the bookkeeping, several times per step.
    """
    found: dict[nn.Module, None] = {}
    pending: list[nn.Module | None] = [module]
    while pending:
        part = pending.pop()
        if part is not None and part not in found:
            found[part] = None
            pending.extend(reversed(part._modules.values()))
    return list(found)
