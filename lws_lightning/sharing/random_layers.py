"""Dropout and its kin, whose masks depend on what is computed and not on what was drawn before.

A mask is a function of the step, the random layer, the task and the copies that the task's batch has passed (its node).
So it is the same whatever else a pass computes, on whichever rank, and after a resume.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from lws_lightning.sharing.plan import LayerPlan
from lws_lightning.sharing.replacing import replace_modules

__all__ = [
    "NodeName",
    "PassDraws",
    "SeedOf",
    "TaskAttention",
    "TaskRandom",
    "convert_random_layers",
    "is_random",
    "restore_random_layers",
]

NodeName = tuple[int, ...]
"""A task and the copies that its batch has passed: what tells a node from all others of a step."""

SeedOf = Callable[..., int]
"""Makes a seed of counters; different counters give independent ones."""

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
"""Modules without weights that draw in training."""


class _DrawsByNode(nn.Module):
    """Base of the random layers.

    `path` is the layer's place in its block, `drawn_for` the nodes of the pass, `runs` how often it has run in it.
    """

    path: str = ""
    drawn_for: tuple[SeedOf, tuple[int | str, ...], tuple[NodeName, ...]] | None = None
    runs: int = 0

    def _run_by_node(self, run: Callable[..., Tensor], dim: int, *inputs: Tensor) -> Tensor:
        """Runs each node's part of the inputs with the device's own generator seeded for this node.

        The generator is put back afterwards: nothing else that is drawn in the program notices.
        """
        if self.drawn_for is None:
            return run(*inputs)
        seed_of, where, names = self.drawn_for
        again = (f"run {self.runs}",) if self.runs else ()  # a block that runs a dropout twice draws two masks
        self.runs += 1
        parts_of = {id(tensor): tensor.chunk(len(names), dim) for tensor in inputs}  # self-attention has one input
        chunks = zip(*(parts_of[id(tensor)] for tensor in inputs), strict=True)
        with _own_generator(inputs[0].device) as reseed:
            outputs = []
            for name, parts in zip(names, chunks, strict=True):
                reseed(seed_of(*where, self.path, *name, *again))
                outputs.append(run(*parts))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim)


class TaskRandom(_DrawsByNode):
    """A random layer (dropout, stochastic depth) that draws for each node by itself.

    Outside of a training pass of the networks of several tasks it is the plain module.

    Args:
        plain: The module; a dropout's `inplace` is switched off, because nodes share their input.
        path: Its place in its block.
    """

    def __init__(self, plain: nn.Module, path: str) -> None:
        super().__init__()
        if hasattr(plain, "inplace"):
            plain.inplace = False  # type: ignore[assignment]
        self.plain, self.path = plain, path
        self.train(plain.training)

    def forward(self, input: Tensor) -> Tensor:
        """Maps `(n * B, ...)` to the same shape."""
        if not self.training or self.drawn_for is None:
            return self.plain(input)  # type: ignore[no-any-return]
        return self._run_by_node(self._run_in_order, 0, input)

    def _run_in_order(self, part: Tensor) -> Tensor:
        """Draws in the same order whatever the input's layout in memory, which depends on what else is computed."""
        if part.dim() != 4:
            return self.plain(part.contiguous())  # type: ignore[no-any-return]
        return self.plain(part.contiguous(memory_format=torch.channels_last))  # type: ignore[no-any-return]


class TaskAttention(nn.MultiheadAttention, _DrawsByNode):
    """Attention with dropout of its weights, drawn for each node by itself."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        """Attends as `nn.MultiheadAttention` does, to `(n * B, length, features)` or, not batch first, with dim 1.

        Raises:
            ValueError: In a training pass, if the weights are asked for or a mask is given for each image.
        """
        if not self.training or self.drawn_for is None:
            return super().forward(query, key, value, *args, **kwargs)
        if args or kwargs.get("need_weights", True) or kwargs.get("key_padding_mask") is not None:
            raise ValueError(
                "nn.MultiheadAttention with dropout can be trained here only with need_weights=False, without a "
                "key_padding_mask, and with options given by name. Set its dropout to 0 otherwise."
            )
        attend = super().forward

        def run(*parts: Tensor) -> Tensor:
            return attend(*parts, **kwargs)[0]  # type: ignore[arg-type]

        return self._run_by_node(run, 0 if self.batch_first else 1, query, key, value), None


class PassDraws:
    """Tells the random layers of a pass which nodes they compute.

    Args:
        seed_of: Makes seeds of counters; None: the layers draw from the global generator.
        tasks: The tasks whose batches the pass starts from.
    """

    def __init__(self, seed_of: SeedOf | None, tasks: Sequence[int]) -> None:
        self._seed_of = seed_of
        self._names: list[NodeName] = [(task,) for task in tasks]

    def layer(self, position: int, copies: nn.ModuleList, plan: LayerPlan) -> AbstractContextManager[None]:
        """Names the nodes of the layer at a position of the chain, made of those of the layer before it."""
        if self._seed_of is None:
            return nullcontext()
        parents = plan.parents.tolist()
        numbers = [copy for copy, size in zip(plan.copies, plan.sizes, strict=True) for _ in range(size)]
        self._names = [(*self._names[parent], number) for parent, number in zip(parents, numbers, strict=True)]
        parts = _split(self._names, plan.sizes)
        blocks = [copies[number] for number in plan.copies]
        return _drawing(self._seed_of, (position,), list(zip(blocks, parts, strict=True)))

    def head(self, head: nn.Module, nodes: Sequence[int]) -> AbstractContextManager[None]:
        """Names the nodes of a head's input, given as nodes of the last layer."""
        if self._seed_of is None:
            return nullcontext()
        return _drawing(self._seed_of, ("head",), [(head, tuple(self._names[node] for node in nodes))])

    def restart(self, tasks: Sequence[int]) -> None:
        """Begins again with one node a task, where a network has put the nodes of each task together."""
        self._names = [(task,) for task in tasks]


def is_random(module: nn.Module) -> bool:
    """Says whether a module has layers that draw for each node."""
    return any(isinstance(part, _DrawsByNode) for part in module.modules())


def convert_random_layers(module: nn.Module) -> nn.Module:
    """Replaces torch's and torchvision's random layers in a module by `TaskRandom` and `TaskAttention`.

    Args:
        module: Changed in place, unless it is itself a random layer.
    """
    return replace_modules(module, _converted)


def _converted(module: nn.Module, path: str) -> nn.Module:
    if isinstance(module, TaskRandom):  # anew, so that the plain module within is not converted
        return TaskRandom(module.plain, module.path)
    if isinstance(module, _RANDOM):
        return TaskRandom(module, path)
    if type(module) is nn.MultiheadAttention and module.dropout > 0:
        attention: Any = module
        attention.__class__ = TaskAttention  # keeps weights, hooks and whoever refers to it
        attention.path = path
    return module


def restore_random_layers(module: nn.Module) -> nn.Module:
    """Undoes `convert_random_layers`, but for dropout's `inplace`, which stays off."""
    return replace_modules(module, lambda part, _: _restored(part))


def _restored(module: nn.Module) -> nn.Module:
    if isinstance(module, TaskRandom):
        return module.plain.train(module.training)
    if type(module) is TaskAttention:
        attention: Any = module
        attention.__class__ = nn.MultiheadAttention
    return module


def _split(names: Sequence[NodeName], sizes: Sequence[int]) -> list[tuple[NodeName, ...]]:
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [tuple(names[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


@contextmanager
def _drawing(
    seed_of: SeedOf, where: tuple[int | str, ...], parts: Sequence[tuple[nn.Module, tuple[NodeName, ...]]]
) -> Iterator[None]:
    layers = [(layer, names) for block, names in parts for layer in block.modules() if isinstance(layer, _DrawsByNode)]
    for layer, names in layers:
        layer.drawn_for, layer.runs = (seed_of, where, names), 0
    try:
        yield
    finally:
        for layer, _ in layers:
            layer.drawn_for = None


@contextmanager
def _own_generator(device: torch.device) -> Iterator[Callable[[int], object]]:
    """Lends the default generator of a device, which is put back into its state afterwards."""
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
