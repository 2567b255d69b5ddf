"""`python -m benchmarks.step`: a training step of Learned Weight Sharing against a plain loop, in the same run.

Both do one NES pass in eval mode and one pass with gradients over the same populations and images, and an Adam step;
the plain loop runs each task's network under each assignment for itself, once in PyTorch's default memory layout, as
one would write it, and once in channels_last, which this package uses and which is faster. They take turns, so that the
ratio holds when the machine's speed drifts. The numbers are medians and quartiles of the rounds' ratios.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.plain_loop import PlainLoop
from lws_lightning.methods.losses import task_losses
from lws_lightning.methods.optimization import clear_gradients
from lws_lightning.networks import build_network, make_multi_task_network
from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution
from lws_lightning.sharing import MultiTaskNetwork, plan_population

NUM_CLASSES = [10, 26, 10]
IMAGE_SHAPE = (1, 28, 28)
K, S, B = 3, 8, 16
ROUNDS = 25


def main() -> None:
    """Prints a table."""
    network = make_multi_task_network(build_network("dkl_convnet", IMAGE_SHAPE), NUM_CLASSES, [K] * 4, seed=0)
    images = torch.rand(len(NUM_CLASSES), B, *IMAGE_SHAPE)
    labels = torch.stack([torch.randint(classes, (B,)) for classes in NUM_CLASSES])
    print(f"DKL-MNIST ConvNet, T=3, K={K}, S={S}, B={B}, float32, {torch.get_num_threads()} threads, {ROUNDS} rounds")
    loops = {
        "default layout": _in_default_layout(PlainLoop(network)),
        "channels_last": PlainLoop(network),
    }
    ours = _our_step(network, images, labels)
    print(f"{'pi':<11}{'plain loop':<16}{'loop / ours':>12}{'quartiles':>18}{'passes, ours / loop':>22}")
    for name, distribution in (("uniform", _uniform()), ("converged", _converged())):
        plain = {layout: _plain_step(loop, images, labels) for layout, loop in loops.items()}
        ratios: dict[str, list[float]] = {layout: [] for layout in loops}
        for number in range(-3, ROUNDS):
            phases = ("nes", "sgd")
            populations = [distribution.sample(S, generator_for(0, "benchmark", number, phase)) for phase in phases]
            seconds = _seconds(ours, populations)
            for layout, step in plain.items():
                ratio = _seconds(step, populations) / seconds
                if number >= 0:
                    ratios[layout].append(ratio)
        share = _nodes(distribution) / (S * len(NUM_CLASSES))
        for layout in loops:
            low, median, high = statistics.quantiles(ratios[layout], n=4)
            print(f"{name:<11}{layout:<16}{median:>11.2f}x{f'{low:.2f} .. {high:.2f}':>18}{share:>22.2f}")


def _in_default_layout(loop: PlainLoop) -> PlainLoop:
    for parameter in loop.parameters():
        parameter.data = torch.empty(parameter.shape).copy_(parameter.data)
    return loop


def _uniform() -> SearchDistribution:
    return SearchDistribution([K] * 4, len(NUM_CLASSES))


def _converged() -> SearchDistribution:
    """Every entry at the floor of 0.1 % but one."""
    row = [0.998, 0.001, 0.001]
    return SearchDistribution([K] * 4, len(NUM_CLASSES), initial_probs=[[row] * len(NUM_CLASSES)] * 4)


def _our_step(network: MultiTaskNetwork, images: Tensor, labels: Tensor) -> Callable[[list[Tensor]], None]:
    optimizer = torch.optim.Adam(network.parameters(), fused=True)

    def step(populations: list[Tensor]) -> None:
        with torch.no_grad(), network.evaluating():
            task_losses(network(images, populations[0]), labels)
        clear_gradients(network.parameters())
        task_losses(network(images, populations[1]), labels).mean().backward()
        network.commit_running_stats()
        optimizer.step()

    return step


def _plain_step(loop: PlainLoop, images: Tensor, labels: Tensor) -> Callable[[list[Tensor]], None]:
    optimizer = torch.optim.Adam(loop.parameters(), fused=True)

    def step(populations: list[Tensor]) -> None:
        loop.eval()
        with torch.no_grad():
            for assignment in populations[0]:
                _mean_loss(loop, images, labels, assignment)
        loop.train()
        clear_gradients(loop.parameters())
        for assignment in populations[1]:
            (_mean_loss(loop, images, labels, assignment) / S).backward()
        optimizer.step()

    return step


def _mean_loss(loop: PlainLoop, images: Tensor, labels: Tensor, assignment: Tensor) -> Tensor:
    losses = [
        nn.functional.cross_entropy(loop.visit(images[task], assignment, task), labels[task])
        for task in range(len(images))
    ]
    return torch.stack(losses).mean()


def _seconds(step: Callable[[list[Tensor]], None], populations: list[Tensor]) -> float:
    start = time.perf_counter()
    step(populations)
    return time.perf_counter() - start


def _nodes(distribution: SearchDistribution) -> float:
    """Returns the mean number of nodes of a convolutional layer."""
    counts = [
        len(layer.parents)
        for draw in range(20)
        for layer in plan_population(
            distribution.sample(S, generator_for(0, "nodes", draw)), list(range(distribution.num_layers))
        ).layers[:3]
    ]
    return statistics.mean(counts)


if __name__ == "__main__":
    main()
