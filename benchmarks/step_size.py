"""`python -m benchmarks.step_size --out FOLDER`: steps of pi that follow the losses, and steps that follow chance.

No network: the losses of a population are drawn, and equal assignments of a task have equal losses. A task has 12
layers with K = 3 copies; at half of them, one copy lowers the loss by `SIGNAL` standard deviations, the others do
nothing. `signal.csv` has the probability of the right copy and what the layers without a signal keep of their variety,
1 - sum(pi^2) over that of the uniform pi, for step sizes without and with `critical_z` and for the adaptive step of
ASNG; `noise.csv` has how often noise alone exceeds `critical_z` in many more steps. docs/research_notes.md says what
came out.
"""

import argparse
import csv
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution, false_alarm_probability, rank_utilities
from lws_lightning.search.evidence import null_variance

LAYERS, COPIES, SAMPLES, SIGNAL = 12, 3, 8, 0.1

Step = Callable[[SearchDistribution, Tensor, Tensor], None]
"""Moves a distribution given a population and its utilities."""


def nes(learning_rate: float) -> Step:
    """Returns the step of `LearnedWeightSharing`."""
    return lambda distribution, population, utilities: distribution.update(population, utilities, learning_rate)


class Asng:
    """The adaptive step of ASNG (Akimoto et al. 2019, arXiv 1905.08537, Algorithm 1), one state for each task.

    The step has the length `delta` in the Fisher metric; its factor grows while successive natural gradients agree and
    shrinks while they do not. The utilities and the floor under pi are this package's.

    Args:
        delta: Initial length.
        alpha: Threshold of the signal-to-noise ratio, in ASNG 1.5.
    """

    def __init__(self, delta: float, alpha: float = 1.5) -> None:
        self.first, self.alpha = delta, alpha
        self.shrink = self.path = self.gamma = torch.zeros(())

    def __call__(self, distribution: SearchDistribution, population: Tensor, utilities: Tensor) -> None:
        """Takes a step."""
        gradient, probs = distribution.natural_gradient(population, utilities), distribution.probs
        layers, tasks, copies = probs.shape
        if self.shrink.dim() == 0:
            self.shrink, self.gamma = probs.new_ones(tasks, 1), probs.new_zeros(tasks, 1)
            self.path = probs.new_zeros(layers, tasks, copies - 1)
        delta = self.first / self.shrink
        beta = delta / math.sqrt(layers * (copies - 1))
        own, last = probs[..., :-1].clamp(min=1e-12), probs[..., -1:].clamp(min=1e-12)
        scaled = gradient[..., :-1] / own.sqrt()
        scaled = scaled + own.sqrt() * gradient[..., :-1].sum(-1, keepdim=True) / (last + last.sqrt())
        length = scaled.square().sum((0, 2))[:, None].sqrt()
        some = length > 1e-18  # no step where all draws are equal
        length = length.clamp(min=1e-18)
        stepped = (probs + delta * gradient / length).clamp(min=distribution.min_probability)
        moved = torch.where(some, stepped / stepped.sum(-1, keepdim=True), probs)
        distribution.restore({"probs": moved})
        path = (1 - beta) * self.path + (beta * (2 - beta)).clamp(min=0).sqrt() * scaled / length
        gamma = (1 - beta) ** 2 * self.gamma + beta * (2 - beta)
        agreement = path.square().sum((0, 2))[:, None]
        shrink = self.shrink * torch.exp(beta * (gamma - agreement / self.alpha))
        self.path, self.gamma = torch.where(some, path, self.path), torch.where(some, gamma, self.gamma)
        self.shrink = torch.where(some, shrink, self.shrink)


def variety(distribution: SearchDistribution) -> Tensor:
    """Returns 1 - sum(pi^2) over that of a uniform pi, `(L, T)`."""
    largest = 1 - 1 / torch.tensor(distribution.weights_per_layer, dtype=torch.float64)
    return (1 - distribution.probs.square().sum(-1)) / largest[:, None]


def simulate(
    step: Step,
    critical_z: float,
    sizes: Sequence[int],
    signals: Sequence[float],
    tasks: int,
    steps: int,
    seed: int,
) -> Iterator[SearchDistribution]:
    """Yields the distribution after every step.

    Args:
        step: How pi moves.
        critical_z: As of `SearchDistribution`.
        sizes: K of each layer.
        signals: For each layer, by how many standard deviations copy 0 lowers the loss.
        tasks: Tasks, which do not interact: repetitions.
        steps: How many.
        seed: Of draws and losses.
    """
    distribution = SearchDistribution(sizes, tasks, dtype=torch.float64, critical_z=critical_z)
    generator = generator_for(seed, "step size")
    lower = torch.tensor(signals, dtype=torch.float64)[:, None]
    for _ in range(steps):
        population = distribution.sample(SAMPLES, generator)
        noise = _equal_for_equal(population, generator)
        step(distribution, population, rank_utilities(noise - ((population == 0) * lower).sum(1)))
        yield distribution


RULES: dict[str, tuple[Callable[[], Step], float]] = {
    "nes_lr 0.1": (lambda: nes(0.1), 0.0),
    "nes_lr 0.01": (lambda: nes(0.01), 0.0),
    "nes_lr 0.003": (lambda: nes(0.003), 0.0),
    "ASNG, delta 1": (lambda: Asng(1.0), 0.0),
    "ASNG, delta 0.1": (lambda: Asng(0.1), 0.0),
    "nes_lr 0.1, critical_z 3": (lambda: nes(0.1), 3.0),
    "nes_lr 0.1, critical_z 4": (lambda: nes(0.1), 4.0),
    "nes_lr 0.1, critical_z 5": (lambda: nes(0.1), 5.0),
    "nes_lr 0.01, critical_z 4": (lambda: nes(0.01), 4.0),
}
"""By name, the step and `critical_z`."""

CHUNK = 1_000
LOOKS = (1_000, 5_000, 20_000, 50_000, 100_000)


def signal_rows(steps: int, tasks: int) -> Iterator[dict[str, Any]]:
    """Half of the layers with a signal, half without."""
    half = LAYERS // 2
    for rule, (make, critical_z) in RULES.items():
        signals = [SIGNAL] * half + [0.0] * half
        states = simulate(make(), critical_z, [COPIES] * LAYERS, signals, tasks, steps, seed=0)
        for number, distribution in enumerate(states, 1):
            if number % 500 == 0:
                right, kept = float(distribution.probs[:half, :, 0].mean()), float(variety(distribution)[half:].mean())
                yield {"rule": rule, "step": number, "right": right, "kept": kept, "categoricals": half * tasks}


def noise_rows(steps: int, tasks: int) -> Iterator[dict[str, Any]]:
    """Noise alone, in two layers of 3 and two of 6 copies: how often a critical value is exceeded.

    Until a categorical moves, its pi is uniform and its steps are independent, so that many steps are computed at once,
    as if they were tasks. One walk serves for all critical values. A categorical that has not moved keeps all of its
    variety.
    """
    sizes, generator = torch.tensor([3, 3, 6, 6]), generator_for(1, "step size")
    distribution = SearchDistribution(sizes.tolist(), CHUNK, dtype=torch.float64)
    largest = torch.zeros(len(LOOKS), len(sizes), tasks, dtype=torch.float64)  # |z| up to each look
    for task in range(tasks):
        shape = (len(sizes), 1, int(sizes.max()))
        gradient, variance = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        highest = torch.zeros(len(sizes), dtype=torch.float64)
        for number in range(CHUNK, steps + 1, CHUNK):
            population = distribution.sample(SAMPLES, generator)
            utilities = rank_utilities(_equal_for_equal(population, generator))
            gradients = gradient + distribution.natural_gradient(population, utilities).cumsum(1)
            variances = variance + null_variance(population, shape[-1], per_task=True).cumsum(1)
            z = torch.where(variances > 0, gradients.abs() / variances.sqrt(), 0.0)
            highest = highest.maximum(z.amax((1, 2)))
            gradient, variance = gradients[:, -1:], variances[:, -1:]
            if number in LOOKS:
                largest[LOOKS.index(number), :, task] = highest
    for critical_z in (3.0, 4.0, 4.5, 5.0):
        for copies in (3, 6):
            for look, number in enumerate(LOOKS):
                moved = (largest[look, sizes == copies] > critical_z).double()
                yield {
                    "critical_z": critical_z,
                    "copies": copies,
                    "step": number,
                    "moved": float(moved.mean()),
                    "bound": false_alarm_probability(critical_z, number, copies),
                    "categoricals": moved.numel(),
                }


def _equal_for_equal(population: Tensor, generator: torch.Generator) -> Tensor:
    """Returns random losses `(S, T)`, equal for equal assignments of a task."""
    noise = torch.randn(population.shape[0], population.shape[-1], generator=generator, dtype=torch.float64)
    equal = (population.unsqueeze(0) == population.unsqueeze(1)).all(2)  # (S, S, T)
    return noise.gather(0, equal.to(torch.uint8).argmax(1))


def main() -> None:
    """Simulates and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--noise_steps", type=int, default=100_000)
    parser.add_argument("--tasks", type=int, default=20, help="repetitions")
    parser.add_argument("--noise_tasks", type=int, default=40, help="repetitions, of noise alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    write(options.out / "signal.csv", signal_rows(options.steps, options.tasks))
    write(options.out / "noise.csv", noise_rows(options.noise_steps, options.noise_tasks))


def write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Writes rows as they come, and prints them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = None
        for row in rows:
            row = {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
            writer = writer or csv.DictWriter(file, list(row))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            print(*row.values(), sep="\t", flush=True)


if __name__ == "__main__":
    main()
