"""What a prediction costs."""

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lws_lightning.sharing import TaskNetworks

__all__ = ["count_multiply_adds"]


class _OneTask(nn.Module):
    """One task's network as a module, so that its weights can be exchanged for a call."""

    def __init__(self, network: TaskNetworks, assignment: Any, task: int) -> None:
        super().__init__()
        self.network = network
        self._choice = assignment, task

    def forward(self, images: Tensor) -> Tensor:
        return self.network.forward_task(images, *self._choice)


def count_multiply_adds(network: TaskNetworks, assignment: Any, task: int, image_shape: tuple[int, ...]) -> int:
    """Counts the multiply-adds that one image of a task costs in eval mode.

    They are those of convolutions and matrix products: half of the flops that torch counts as they are computed.
    The network is run without its numbers (on the meta device); if a user's block cannot do that, with them.

    Args:
        network: The networks of all tasks.
        assignment: `(L, T)` int64, or None where the sharing is none.
        task: In `[0, T)`.
        image_shape: `(C, H, W)`.
    """
    module = _OneTask(network, assignment, task)
    real = dict(chain(module.named_parameters(), module.named_buffers()))
    like = next(iter(real.values()))
    with torch.no_grad(), network.evaluating():
        try:
            weights = {name: tensor.to("meta") for name, tensor in real.items()}
            return _count(module, weights, torch.empty(1, *image_shape, dtype=like.dtype, device="meta"))
        except (RuntimeError, NotImplementedError):
            return _count(module, real, torch.zeros(1, *image_shape, dtype=like.dtype, device=like.device))


def _count(module: nn.Module, weights: dict[str, Tensor], images: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        torch.func.functional_call(module, weights, (images,))
    return int(counter.get_total_flops()) // 2
