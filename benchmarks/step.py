"""`python -m benchmarks.step`: what a training step of Learned Weight Sharing costs, as ratios from one run.

Every figure compares steps that take turns, so that it holds when the machine's speed drifts; it is the median of the
rounds' ratios, with their quartiles.

- Against a plain loop: both do one NES pass in eval mode and one pass with gradients over the same populations and
  images, and an Adam step. The loop runs each task's network under each assignment for itself, once in PyTorch's
  default memory layout, as one would write it, and once in channels_last, which this package uses and which is faster.
- Against a fixed assignment: forward, backward and Adam on the same images under one assignment and without NES. This
  is what learning the sharing costs over not learning it: with the paper's two populations of 8, and in one pass, with
  two systematic draws that train the weights and move pi, drawing, ranking and moving pi included.
- Against the arithmetic bound: the multiply-adds that the step cannot do without (`benchmarks.arithmetic`), at the rate
  of a large float32 matrix product with the same number of threads, which is measured in turn with the steps.
- How the step grows with S, K, T and B.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.arithmetic import matmul_rate, step_multiply_adds
from benchmarks.workloads import PI, WORKLOADS, Workload
from lws_lightning.sharing import keep_freed_memory

Timed = Callable[[Tensor, Tensor], object]

GROWTH = {"size": (2, 4, 8, 16), "copies": (1, 2, 3, 6), "num_tasks": (1, 3, 6), "batch_size": (8, 16, 32)}
SYMBOLS = {"size": "S", "copies": "K", "num_tasks": "T", "batch_size": "B"}
PRECISIONS = ("float32", "bf16-mixed")
SIZE = 1024
"""Of the matrix product that the arithmetic bound is made of."""


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+", default=["dkl_convnet", "cifar100_convnet"], choices=WORKLOADS)
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--growth", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    keep_freed_memory()  # as training does, here for all that is compared
    float32, bf16 = matmul_rate() / 1e9, matmul_rate(torch.bfloat16, rounds=1) / 1e9
    print(f"{torch.get_num_threads()} thread(s), {options.rounds} rounds, median and quartiles of ratios")
    print(f"matrix products: {float32:.3g} G multiply-adds/s in float32, {bf16:.3g} in bfloat16", flush=True)
    for name in options.networks:
        for precision in options.precisions:
            _print_costs(WORKLOADS[name], precision, options.rounds)
    if options.growth:
        _print_growth(WORKLOADS[options.networks[0]], options.rounds)


def _print_costs(workload: Workload, precision: str, rounds: int) -> None:
    print(f"\n{workload}, {precision}")
    print(f"{'pi':<11}{'':<38}{'median':>8}{'quartiles':>16}")
    fixed = workload.fixed_step(precision)
    for pi in PI:
        ours = workload.our_step(workload.make_network(), precision)
        default = workload.plain_step(workload.make_network(), "default", precision)
        channels_last = workload.plain_step(workload.make_network(), "channels_last", precision)
        populations = workload.populations(pi, rounds)
        one_pass = workload.one_pass_step(pi, precision)
        steps: list[Timed] = [ours, default, channels_last, fixed, _matrix_product(SIZE), one_pass]
        times = _take_turns(steps, populations)
        bounds = [
            step_multiply_adds(workload, *drawn) / SIZE**3 * seconds
            for drawn, seconds in zip(populations, times[4], strict=True)
        ]
        _print_row(pi, "plain loop in default layout / ours", times[1], times[0])
        _print_row("", "plain loop in channels_last / ours", times[2], times[0])
        _print_row("", "ours / fixed assignment without NES", times[0], times[3])
        _print_row("", "one pass, two draws / fixed assignment", times[5], times[3])
        _print_row("", "ours / arithmetic bound", times[0], bounds)
        share = statistics.median(bound / own for bound, own in zip(bounds, times[0], strict=True))
        print(f"{'':<11}{'share of the matrix products rate':<38}{share:>8.0%}")


def _print_growth(workload: Workload, rounds: int) -> None:
    print(f"\n{workload}, float32: time and multiply-adds of other sizes over those of this one")
    print(f"{'pi':<11}" + "".join(f"{SYMBOLS[name] + '=' + str(n):>13}" for name in GROWTH for n in GROWTH[name]))
    for pi in PI:
        cells = []
        for name, values in GROWTH.items():
            changed = [workload.changed(**{name: value}) for value in values]
            drawn = [other.populations(pi, rounds) for other in (workload, *changed)]
            steps = [other.our_step(other.make_network()) for other in (workload, *changed)]
            seconds: list[list[float]] = [[] for _ in steps]
            for number in range(-1, rounds):
                for step, populations, own in zip(steps, drawn, seconds, strict=True):
                    spent = _seconds(step, populations[max(number, 0)])
                    if number >= 0:
                        own.append(spent)
            work = [
                statistics.mean(step_multiply_adds(other, *pair) for pair in populations[:5])
                for other, populations in zip((workload, *changed), drawn, strict=True)
            ]
            for own, macs in zip(seconds[1:], work[1:], strict=True):
                ratio = statistics.median(spent / base for spent, base in zip(own, seconds[0], strict=True))
                cells.append(f"{ratio:.2f} ({macs / work[0]:.2f})")
        print(f"{pi:<11}" + "".join(f"{cell:>13}" for cell in cells), flush=True)


def _take_turns(steps: Sequence[Timed], populations: Sequence[tuple[Tensor, Tensor]]) -> list[list[float]]:
    """Times every step on every pair of populations, after one unmeasured round."""
    times: list[list[float]] = [[] for _ in steps]
    for number, drawn in enumerate([populations[0], *populations]):
        for step, own in zip(steps, times, strict=True):
            spent = _seconds(step, drawn)
            if number > 0:
                own.append(spent)
    return times


def _matrix_product(size: int) -> Timed:
    left, right = torch.rand(2, size, size)
    return lambda nes, sgd: left @ right


def _seconds(step: Timed, populations: tuple[Tensor, Tensor]) -> float:
    start = time.perf_counter()
    step(*populations)
    return time.perf_counter() - start


def _print_row(pi: str, what: str, over: Sequence[float], under: Sequence[float]) -> None:
    low, median, high = statistics.quantiles([a / b for a, b in zip(over, under, strict=True)], n=4)
    print(f"{pi:<11}{what:<38}{median:>7.2f}x{f'{low:.2f} .. {high:.2f}':>16}", flush=True)


if __name__ == "__main__":
    main()
