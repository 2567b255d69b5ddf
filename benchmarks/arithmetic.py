"""How many multiply-adds a training step cannot do without, and how many the machine can do."""

import copy
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.workloads import Workload
from lws_lightning.networks import BaseNetwork, build_network
from lws_lightning.sharing import plan_population

__all__ = ["LayerCost", "layer_costs", "matmul_rate", "nodes_of_layers", "step_multiply_adds"]


@dataclass(frozen=True)
class LayerCost:
    """What one image costs in one copy of a layer, forward.

    Attributes:
        name: The layer's.
        multiply_adds: Of convolutions and matrix products.
        parameters: Of one copy.
        activations: Values that its modules without children write.
    """

    name: str
    multiply_adds: int
    parameters: int
    activations: int


def layer_costs(base: BaseNetwork, image_shape: Sequence[int]) -> list[LayerCost]:
    """Counts for each layer of a base network, by running it on one image."""
    images = torch.zeros(1, *image_shape)
    costs = []
    for layer in base.layers:
        block = copy.deepcopy(layer.block).eval()
        written = 0

        def count(_: object, __: object, output: Tensor) -> None:
            nonlocal written
            written += output.numel()

        for module in block.modules():
            if not list(module.children()):
                module.register_forward_hook(count)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            images = block(images)
        parameters = sum(parameter.numel() for parameter in block.parameters())
        costs.append(LayerCost(layer.name, counter.get_total_flops() // 2, parameters, written))
    return costs


def nodes_of_layers(base: BaseNetwork, population: Tensor) -> list[tuple[int, int]]:
    """Returns for each layer how many nodes a population makes it compute, and how many copies they use."""
    learned = iter(range(len(base.learned_layers)))
    plan = plan_population(population, [next(learned) if layer.learned else None for layer in base.layers])
    return [(len(layer.parents), len(layer.copies)) for layer in plan.layers]


def step_multiply_adds(workload: Workload, nes: Tensor, sgd: Tensor) -> int:
    """Counts the multiply-adds of a step: forward for NES; forward and two products backward for the weights.

    The first layer needs no gradient of its input. Heads are left out: they are less than a hundredth.
    """
    base = build_network(workload.network, workload.image_shape)
    costs = layer_costs(base, workload.image_shape)
    total = 0
    pairs = zip(costs, nodes_of_layers(base, nes), nodes_of_layers(base, sgd), strict=True)
    for number, (cost, (nes_nodes, _), (sgd_nodes, _)) in enumerate(pairs):
        passes = nes_nodes + sgd_nodes * (2 if number == 0 else 3)
        total += cost.multiply_adds * workload.batch_size * passes
    return total


def matmul_rate(dtype: torch.dtype = torch.float32, size: int = 1024, rounds: int = 5) -> float:
    """Measures multiply-adds per second of a square matrix product, the median of some rounds."""
    left, right = torch.rand(2, size, size).to(dtype)
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        left @ right
        seconds.append(time.perf_counter() - start)
    return size**3 / statistics.median(seconds[1:])
