"""What a block computes in a pass, and the modules that have to know it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["NodeModule", "Nodes", "SeedFunction", "modules_of", "node_context"]

SeedFunction = Callable[..., int]
"""Makes a seed of counters; different counters give independent ones."""


@dataclass(frozen=True)
class Nodes:
    """What a block computes in a pass: its input is n times B images, node by node.

    A node is the batch of one task behind one sequence of copies. In a plain loop over assignments and tasks several
    visits of the block are one node.

    Attributes:
        prefixes: `(n, 1 + layers)` int64: the task, and the copies that its batch has passed, this block's included.
        visits: `(V,)` int64, the node of each visit, in the order of the loop (assignments outside, tasks inside).
        numbers: `(V,)` int64, where each visit stands among all the block's visits of the step, counted from 0.
        total: How many visits of the block the step has; more than V if it takes several passes.
    """

    prefixes: Tensor
    visits: Tensor
    numbers: Tensor
    total: int

    @classmethod
    def of_task(cls, task: int) -> "Nodes":
        """Returns the one node of a block that one task's batch visits once."""
        first = torch.zeros(1, dtype=torch.int64)
        return cls(torch.tensor([[task]]), first, first, 1)

    @property
    def size(self) -> int:
        """How many nodes, n."""
        return len(self.prefixes)

    @property
    def tasks(self) -> Tensor:
        """`(n,)` int64, the task of each node."""
        return self.prefixes[:, 0]


class NodeModule(nn.Module):
    """Base of the modules that treat the nodes of their input one by one; see `node_context`.

    Attributes:
        nodes: What the input of the pass consists of; None outside of the networks' passes.
        seed_function: Makes the seeds of what is drawn in the pass; None: torch's global generator is used.
        runs: How often the module has run in the pass: a block may have it in several places.
    """

    nodes: Nodes | None = None
    seed_function: SeedFunction | None = None
    runs: int = 0


@contextmanager
def node_context(
    blocks: Sequence[nn.Module], nodes: Sequence[Nodes], seed_function: SeedFunction | None = None
) -> Iterator[None]:
    """Tells the modules within some blocks what each block computes in the enclosed pass.

    Args:
        blocks: The copies of a layer that are in use, or a head.
        nodes: What each of them computes.
        seed_function: To which a random layer gives its path in the block and the name of a node.
    """
    told = []
    for block, own in zip(blocks, nodes, strict=True):
        for part in modules_of(block):
            if isinstance(part, NodeModule):
                # Not `part.nodes = ...`: what `nn.Module.__setattr__` does for parameters takes longer than all this.
                vars(part).update(nodes=own, seed_function=seed_function, runs=0)
                told.append(part)
    try:
        yield
    finally:
        for part in told:
            vars(part).update(nodes=None, seed_function=None)


def modules_of(module: nn.Module) -> list[nn.Module]:
    """Returns a module and all within it, each once and before its children, as `Module.modules` does.

    It makes no prefixes on the way, which several times a step would cost more than the bookkeeping that it is for.
    """
    found: dict[nn.Module, None] = {}
    pending: list[nn.Module | None] = [module]
    while pending:
        part = pending.pop()
        if part is not None and part not in found:
            found[part] = None
            pending.extend(reversed(part._modules.values()))
    return list(found)
