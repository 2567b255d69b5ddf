"""Dropout and related layers, whose masks depend on what is computed, not on earlier draws.

A mask is a function of the step, the random layer, the task and the copies that the task's batch has passed (its node).
It is therefore the same whatever else a pass computes, on whichever rank, and after a resume.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from lws_lightning.sharing.nodes import NodeModule
from lws_lightning.sharing.replacing import replace_modules

__all__ = ["TaskAttention", "TaskRandom", "convert_random_layers", "restore_random_layers"]

_RANDOM = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    nn.RReLU,
    StochasticDepth,
)
"""Modules without weights that draw random numbers in training."""


class TaskRandom(NodeModule):
    """A random layer (dropout, stochastic depth) that draws separately for each node.

    Outside a training pass of multi-task networks it behaves like the wrapped module.

    Args:
        module: The wrapped module; dropout's `inplace` is switched off, because nodes share their input.
        path: Its path in its block.
    """

    def __init__(self, module: nn.Module, path: str) -> None:
        super().__init__()
        if hasattr(module, "inplace"):
            module.inplace = False  # type: ignore[assignment]
        self.module, self.path = module, path
        self.train(module.training)

    def forward(self, input: Tensor) -> Tensor:
        """Maps `(n * B, ...)` to the same shape."""
        if not self.training or self.seed_function is None:
            return self.module(input)  # type: ignore[no-any-return]
        return _run_by_node(self, self._run_in_order, 0, input)

    def _run_in_order(self, part: Tensor) -> Tensor:
        """Draws in the same order for any memory layout of the input, which depends on what else is computed."""
        layout = torch.channels_last if part.dim() == 4 else torch.contiguous_format
        return self.module(part.contiguous(memory_format=layout))  # type: ignore[no-any-return]


class TaskAttention(nn.MultiheadAttention, NodeModule):
    """Attention with dropout of its weights, drawn separately for each node."""

    path: str = ""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        """Like `nn.MultiheadAttention`, on `(n * B, length, features)`, or `(length, n * B, features)`.

        Raises:
            ValueError: In a training pass, if weights are requested or a mask per image is given.
        """
        if not self.training or self.seed_function is None:
            return super().forward(query, key, value, *args, **kwargs)
        if args or kwargs.get("need_weights", True) or kwargs.get("key_padding_mask") is not None:
            raise ValueError(
                "nn.MultiheadAttention with dropout can be trained here only with need_weights=False, without a "
                "key_padding_mask, and with options passed by name. Otherwise set its dropout to 0."
            )
        attend = super().forward

        def run(*parts: Tensor) -> Tensor:
            return attend(*parts, **kwargs)[0]  # type: ignore[arg-type]

        return _run_by_node(self, run, 0 if self.batch_first else 1, query, key, value), None


def convert_random_layers(module: nn.Module) -> nn.Module:
    """Replaces torch's and torchvision's random layers in a module by `TaskRandom` and `TaskAttention`.

    Args:
        module: Changed in place, unless it is itself a random layer.
    """
    return replace_modules(module, _converted)


def _converted(module: nn.Module, path: str) -> nn.Module:
    if isinstance(module, TaskRandom):  # a new one, so that the wrapped module is not converted
        return TaskRandom(module.module, module.path)
    if isinstance(module, _RANDOM):
        return TaskRandom(module, path)
    if type(module) is nn.MultiheadAttention and module.dropout > 0:
        return _with_state_of(module, TaskAttention, path=path)
    return module


def restore_random_layers(module: nn.Module) -> nn.Module:
    """Undoes `convert_random_layers`, except that dropout's `inplace` stays off."""
    return replace_modules(module, lambda part, _: _restored(part))


def _restored(module: nn.Module) -> nn.Module:
    if isinstance(module, TaskRandom):
        return module.module.train(module.training)
    return _with_state_of(module, nn.MultiheadAttention) if type(module) is TaskAttention else module


def _with_state_of(module: nn.Module, cls: type[nn.Module], **attributes: str) -> nn.Module:
    """Makes a module of another class with the same parameter objects, hooks and attributes."""
    result = cls.__new__(cls)
    vars(result).update({**vars(module), **attributes})
    return result


def _run_by_node(layer: TaskRandom | TaskAttention, run: Callable[..., Tensor], dim: int, *inputs: Tensor) -> Tensor:
    """Runs each node's inputs with the device's default generator seeded for this node.

    The generator's state is restored afterwards, so other random draws are not affected.
    """
    assert layer.nodes is not None
    assert layer.seed_function is not None
    again = (f"run {layer.runs}",) if layer.runs else ()  # a block that runs one dropout twice draws two masks
    layer.runs += 1
    prefixes = layer.nodes.prefixes.tolist()
    parts_of = {id(tensor): tensor.chunk(len(prefixes), dim) for tensor in inputs}  # self-attention has one input
    chunks = zip(*(parts_of[id(tensor)] for tensor in inputs), strict=True)
    with _borrowed_generator(inputs[0].device) as reseed:
        outputs = []
        for prefix, parts in zip(prefixes, chunks, strict=True):
            reseed(layer.seed_function(layer.path, *prefix, *again))
            outputs.append(run(*parts))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim)


@contextmanager
def _borrowed_generator(device: torch.device) -> Iterator[Callable[[int], object]]:
    """Yields the seeding function of a device's default generator, and restores its state afterwards."""
    if device.type in ("cpu", "cuda"):
        index = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
        generator = torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[index or 0]
        state = generator.get_state()
        try:
            yield generator.manual_seed
        finally:
            generator.set_state(state)
    else:
        with torch.random.fork_rng([device.index or 0], device_type=device.type):
            yield torch.manual_seed
