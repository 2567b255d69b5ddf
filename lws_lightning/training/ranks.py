"""How the processes of one run divide a step between them, and what they have to agree on.

Every process ("rank") draws the same populations, because these are a function of seed and step, and adds up the same
sums: the losses that move pi, and the gradients and statistics that move the weights. So pi, the weights, Adam's state
and the running statistics are the same everywhere without ever being sent.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from lws_lightning.batches import Distribute
from lws_lightning.sharing import PopulationPass

__all__ = ["Ranks", "require_equal"]


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run.

    Attributes:
        rank: In `[0, world_size)`.
        world_size: W.
        distribute: `examples`: each rank has its own B images of every task. `tasks`: all have the same batch, and each
            computes some of its tasks.
    """

    rank: int = 0
    world_size: int = 1
    distribute: Distribute = "examples"

    @property
    def is_distributed(self) -> bool:
        """Whether there is more than one process."""
        return self.world_size > 1

    @property
    def weight(self) -> float:
        """By what a rank's values count in the sum over ranks: means over its own images 1/W, else 1."""
        return 1 / self.world_size if self.distribute == "examples" else 1.0

    def tasks(self, num_tasks: int) -> range:
        """Returns the positions of the tasks that this rank computes, of T' in training; maybe none."""
        if not self.is_distributed or self.distribute == "examples":
            return range(num_tasks)
        first = [rank * num_tasks // self.world_size for rank in (self.rank, self.rank + 1)]
        return range(*first)

    def own_passes(self, passes: Sequence[PopulationPass], num_tasks: int) -> list[PopulationPass]:
        """Returns the parts of a step's passes that this rank computes."""
        own = self.tasks(num_tasks)
        parts = []
        for each in passes:
            tasks = range(max(own.start, each.tasks.start), min(own.stop, each.tasks.stop))
            if tasks:
                parts.append(PopulationPass(tasks, each.rows))
        return parts

    def total(self, values: Tensor) -> Tensor:
        """Returns the sum over ranks of their values, each weighted by `weight`; the values where there is one."""
        if not self.is_distributed:
            return values
        values = values * self.weight
        distributed.all_reduce(values)
        return values

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replaces tensors by their sums over ranks, in one all-reduce of one buffer of at least float32."""
        dtype = torch.float32
        for tensor in tensors:
            dtype = torch.promote_types(dtype, tensor.dtype)
        flat = torch.cat([tensor.reshape(-1).to(dtype) for tensor in tensors])
        distributed.all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))


def require_equal(values: Mapping[str, Any], device: torch.device) -> None:
    """Compares values of all ranks.

    Args:
        values: Plain values, tensors, or nested mappings and sequences of them, by name; the same names everywhere.
        device: Where the process group can send tensors from.

    Raises:
        ValueError: On every rank, if a value differs; names which.
    """
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    digests = torch.tensor([_digest(value) for value in values.values()], dtype=torch.int64, device=device)
    extremes = torch.stack([digests, -digests])
    distributed.all_reduce(extremes, op=distributed.ReduceOp.MAX)
    differ = (extremes[0] != -extremes[1]).tolist()
    names = [name for name, different in zip(values, differ, strict=True) if different]
    if names:
        raise ValueError(
            f"The processes of this run do not agree: {', '.join(names)} differ between them, so that they would train "
            "different networks. Start all of them with the same options, seed_everything and checkpoint."
        )


def _digest(value: Any) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for chunk in _chunks(value):
        digest.update(chunk)
    return int.from_bytes(digest.digest(), "little") >> 1


def _chunks(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        yield repr((value.dtype, tuple(value.shape))).encode()
        yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield repr(key).encode()
            yield from _chunks(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _chunks(item)
    else:
        yield repr(value).encode()
