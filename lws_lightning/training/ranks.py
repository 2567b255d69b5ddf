"""How the processes (ranks) of a run divide a step, and what must be equal among them.

All ranks draw the same populations, which are a function of seed and step, and compute the same sums: the losses that
update pi, and the gradients and statistics that update the weights. Therefore pi, the weights, Adam's state and the
running statistics are equal on all ranks without being communicated.
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
    """This process's rank, and how ranks divide a step.

    Attributes:
        rank: In `[0, world_size)`.
        world_size: W.
        distribute: `examples`: each rank has its own B images of every task. `tasks`: all ranks have the same batch,
            and each computes some of the tasks.
    """

    rank: int = 0
    world_size: int = 1
    distribute: Distribute = "examples"

    @property
    def is_distributed(self) -> bool:
        """Whether there is more than one rank."""
        return self.world_size > 1

    @property
    def weight(self) -> float:
        """The weight of a rank's values in a sum over ranks: 1/W for means over its own images, else 1."""
        return 1 / self.world_size if self.distribute == "examples" else 1.0

    def tasks(self, num_tasks: int) -> range:
        """Returns which of the T' tasks in training this rank computes, by position; possibly none."""
        if not self.is_distributed or self.distribute == "examples":
            return range(num_tasks)
        first = [rank * num_tasks // self.world_size for rank in (self.rank, self.rank + 1)]
        return range(*first)

    def passes_of_rank(self, passes: Sequence[PopulationPass], num_tasks: int) -> list[PopulationPass]:
        """Restricts the passes of a step to the tasks that this rank computes."""
        own_tasks = self.tasks(num_tasks)
        own_passes = []
        for full in passes:
            tasks = range(max(own_tasks.start, full.tasks.start), min(own_tasks.stop, full.tasks.stop))
            if tasks:
                own_passes.append(PopulationPass(tasks, full.rows))
        return own_passes

    def weighted_sum(self, values: Tensor) -> Tensor:
        """Returns the sum of the ranks' values times `weight`; the values themselves with a single rank."""
        if not self.is_distributed:
            return values
        values = values * self.weight
        distributed.all_reduce(values)
        return values

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replaces tensors with their sums over ranks, in a single all-reduce in at least float32."""
        dtype = torch.float32
        for tensor in tensors:
            dtype = torch.promote_types(dtype, tensor.dtype)
        flat = torch.cat([tensor.reshape(-1).to(dtype) for tensor in tensors])
        distributed.all_reduce(flat)
        summed = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, total in zip(tensors, summed, strict=True):
            tensor.copy_(total.view(tensor.shape))


def require_equal(values: Mapping[str, Any], device: torch.device) -> None:
    """Checks that values are equal on all ranks.

    Args:
        values: Plain values, tensors, or nested mappings and sequences of them, by name; the same names on all ranks.
        device: A device whose tensors the process group can send.

    Raises:
        ValueError: On every rank, if a value differs; the message names it.
    """
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    digests = torch.tensor([_digest(value) for value in values.values()], dtype=torch.int64, device=device)
    extremes = torch.stack([digests, -digests])
    distributed.all_reduce(extremes, op=distributed.ReduceOp.MAX)
    differ = (extremes[0] != -extremes[1]).tolist()
    names = [name for name, differs in zip(values, differ, strict=True) if differs]
    if names:
        raise ValueError(
            f"The processes of this run do not agree: {', '.join(names)} differ between them, so they would train "
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
