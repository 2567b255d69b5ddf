"""`python -m benchmarks.planted_rules --out FILE.csv RULE ...`: rules for moving pi on planted families, side by side.

The networks, images and step of `benchmarks.planted` in plain PyTorch, all runs at once: every tensor has a first
dimension for the run, so that some dozens of runs cost little more than one. Search distributions, ranks and evidence
are the product's. A RULE is a comma-separated list of `name=value` (`Rule`); each runs with every seed. Appends a row
for each run and measured step, and prints a table of the last ones; without a RULE only the table.
docs/research_notes.md says what came out.
"""

import argparse
import csv
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.planted import IMAGES_PER_TASK, LAYERS, planted_families
from benchmarks.planted_table import Rule, parse_rule, read, summary
from lws_lightning.search import SearchDistribution, rank_utilities

UNITS, BATCH = 12, 16
UNDIRECTED_PART = 2 / 3
"""Of a run: where undirected training and the last restart end."""


class Networks:
    """The networks of R runs, T tasks each; K copies of two dense layers and a head for each task."""

    def __init__(self, runs: int, tasks: int, copies: int, seeds: Sequence[int]) -> None:
        self.runs, self.tasks, self.copies = runs, tasks, copies

        def he(*shape: int) -> Tensor:
            drawn = [
                torch.rand(shape, generator=torch.Generator().manual_seed(100_003 * seed + sum(shape)))
                for seed in seeds
            ]
            return ((2 * torch.stack(drawn) - 1) * math.sqrt(6 / shape[-2])).requires_grad_()

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(runs, *shape, requires_grad=True)

        self.w1, self.b1 = he(copies, 64, UNITS), zeros(copies, 1, UNITS)
        self.w2, self.b2 = he(copies, UNITS, UNITS), zeros(copies, 1, UNITS)
        self.w3, self.b3 = he(tasks, UNITS, 10), zeros(tasks, 1, 10)

    @property
    def parameters(self) -> list[Tensor]:
        """All weights."""
        return [self.w1, self.b1, self.w2, self.b2, self.w3, self.b3]

    def losses(self, images: Tensor, labels: Tensor, population: Tensor) -> Tensor:
        """Computes the losses of a population.

        Args:
            images: `(R, T, B, 64)`.
            labels: `(R, T, B)`.
            population: `(S, 2, R, T)`.

        Returns:
            `(R, T, S)`.
        """
        logits = self.logits(images, population)
        target = labels[:, :, None, :].expand(logits.shape[:-1])
        losses = nn.functional.cross_entropy(logits.flatten(0, 3), target.flatten(), reduction="none")
        return losses.view(logits.shape[:-1]).mean(-1)

    def logits(self, images: Tensor, population: Tensor) -> Tensor:
        """Returns `(R, T, S, B, 10)`."""
        runs, tasks, copies = self.runs, self.tasks, self.copies
        batch = images.shape[2]
        flat = self.w1.transpose(1, 2).reshape(runs, 64, copies * UNITS)
        hidden = torch.bmm(images.view(runs, tasks * batch, 64), flat).view(runs, tasks, batch, copies, UNITS)
        hidden = (hidden + self.b1.view(runs, 1, 1, copies, UNITS)).relu()  # (R, T, B, K, U)
        first, second = (nn.functional.one_hot(population[:, layer], copies).float() for layer in range(2))
        chosen = torch.einsum("srtk,rtbku->rtsbu", first, hidden)
        weights = torch.einsum("srtk,rkuv->rtsuv", second, self.w2)
        biases = torch.einsum("srtk,rkuv->rtsuv", second, self.b2)
        top = (chosen @ weights + biases).relu()
        return top @ self.w3[:, :, None] + self.b3[:, :, None]


def run(rules: Sequence[Rule], seeds: Sequence[int], steps: int, every: int) -> Iterator[dict[str, Any]]:
    """Trains every rule with every seed, all at once; yields rows of what was measured.

    Args:
        rules: Equal in `Rule.shapes`.
        seeds: Of images, weights and draws.
        steps: How many.
        every: Steps between measurements.
    """
    from sklearn.metrics import adjusted_rand_score

    pairs = [(rule, seed) for rule in rules for seed in seeds]
    data = {seed: planted_families(3, 2, 0.0, seed) for seed in seeds}
    families = next(iter(data.values())).families
    parts = {seed: one.load_tasks() for seed, one in data.items()}
    train = [torch.stack([part.train.images.flatten(1).float() / 255 for part in parts[seed]]) for _, seed in pairs]
    labels = torch.stack([torch.stack([part.train.labels for part in parts[seed]]) for _, seed in pairs])
    images = torch.stack(train)
    runs, tasks, copies, size = len(pairs), len(families), rules[0].copies, rules[0].samples

    def column(name: str) -> Tensor:
        return torch.tensor([[float(getattr(rule, name))] * tasks for rule, _ in pairs]).view(1, -1, 1).double()

    net = Networks(runs, tasks, copies, [seed for _, seed in pairs])
    adam = torch.optim.Adam(net.parameters, lr=1e-3, weight_decay=rules[0].l2)
    left = 1 - torch.tensor([rule.decay for rule, _ in pairs]).view(-1, 1, 1, 1)
    initial = torch.stack([_initial(rule, families) for rule, _ in pairs], 1).flatten(1, 2)  # (2, R T, K)
    pi = SearchDistribution([copies] * 2, runs * tasks, rules[0].floor, initial, torch.float64, critical_z=1.0)
    assert pi.evidence is not None
    pi.evidence.critical_value = column("critical_z")  # type: ignore[assignment]
    moving = torch.tensor([rule.search == "per_task" for rule, _ in pairs]).repeat_interleave(tasks).view(1, -1, 1)
    rate, wait = column("nes_lr") * moving, column("wait")
    memory = column("memory")
    kept = torch.where(memory > 0, torch.exp(-1 / memory.clamp(min=1e-9)), 1.0)
    generator = torch.Generator().manual_seed(1 + sum(seeds))
    order = iter(())  # type: ignore[var-annotated]
    sampling = "systematic" if rules[0].systematic else "independent"
    start = time.process_time()

    def batch() -> tuple[Tensor, Tensor]:
        nonlocal order
        index = next(order, None)
        if index is None:
            shuffled = torch.rand(runs, tasks, IMAGES_PER_TASK, generator=generator).argsort(-1)
            order = iter(shuffled[..., : IMAGES_PER_TASK // BATCH * BATCH].split(BATCH, -1))
            index = next(order)
        picked = images.gather(2, index[..., None].expand(*index.shape, 64))
        return picked, labels.gather(2, index)

    def draw() -> Tensor:
        return pi.sample(size, generator, sampling)  # type: ignore[arg-type]

    for step in range(1, steps + 1):
        if step == round(UNDIRECTED_PART * steps) + 1:
            _settle(pi, pairs, families)
        again = torch.tensor([step in _restarts(rule, steps) for rule, _ in pairs]).repeat_interleave(tasks)
        if bool(again.any()):
            _begin_again(pi, again.view(1, -1, 1))
        population = draw()
        if not rules[0].one_pass:
            with torch.no_grad():
                found = net.losses(*batch(), population.unflatten(-1, (runs, tasks)))
            _move(pi, population, found.flatten(0, 1), rate * (step > wait), kept * (step > wait))
            population = draw()
        losses = net.losses(*batch(), population.unflatten(-1, (runs, tasks)))
        adam.zero_grad()
        losses.mean((1, 2)).sum().backward()
        if rules[0].one_pass:
            _move(pi, population, losses.detach().flatten(0, 1), rate * (step > wait), kept * (step > wait))
        adam.step()
        if bool((left < 1).any()):
            with torch.no_grad():
                for weights in net.parameters:
                    weights.mul_(left)
        if step % every == 0 or step == steps:
            errors = _test_errors(net, pi, [parts[seed] for _, seed in pairs]) if step == steps else [math.nan] * runs
            entropy = pi.entropy().view(2, runs, tasks).mean((0, 2))
            mode = pi.mode().view(2, runs, tasks)
            seconds = (time.process_time() - start) / runs
            for number, (rule, seed) in enumerate(pairs):
                rand = [adjusted_rand_score(families, mode[layer, number].tolist()) for layer in range(2)]
                yield (
                    asdict(rule)
                    | {"seed": seed, "steps": steps, "step": step}
                    | dict(zip(LAYERS, rand, strict=True))
                    | {"entropy": float(entropy[number]), "error": errors[number], "seconds": seconds}
                )


def _initial(rule: Rule, families: Sequence[int]) -> Tensor:
    """Returns `(2, T, K)`."""
    tasks, copies = len(families), rule.copies
    uniform = torch.full((2, tasks, copies), 1 / copies, dtype=torch.float64)
    eye = torch.eye(copies, dtype=torch.float64)
    if rule.search == "none":
        return eye[torch.arange(tasks)].repeat(2, 1, 1)
    if rule.search == "full":
        return eye[torch.zeros(tasks, dtype=torch.int64)].repeat(2, 1, 1)
    if rule.search == "families":
        return torch.stack([eye[torch.tensor(families)], eye[torch.zeros(tasks, dtype=torch.int64)]])
    if rule.own:
        one = eye[torch.arange(tasks)]
        return (one * rule.own + (1 - one) * (1 - rule.own) / (copies - 1)).repeat(2, 1, 1)
    return uniform


def _settle(pi: SearchDistribution, pairs: Sequence[tuple[Rule, int]], families: Sequence[int]) -> None:
    """Ends the undirected part of the controls."""
    probs = pi.probs.clone().unflatten(1, (len(pairs), len(families)))
    for number, (rule, _) in enumerate(pairs):
        if rule.search.startswith("undirected-"):
            given = Rule(search=rule.search.removeprefix("undirected-"), copies=rule.copies)
            probs[:, number] = _initial(given, families)
    pi.restore(pi.snapshot() | {"probs": probs.flatten(1, 2)})


def _restarts(rule: Rule, steps: int) -> list[int]:
    return [round(UNDIRECTED_PART * steps * number / rule.restarts) for number in range(1, rule.restarts + 1)]


def _begin_again(pi: SearchDistribution, again: Tensor) -> None:
    """Begins the search of some runs again; `again` is `(1, R T, 1)`."""
    assert pi.evidence is not None
    pi.restore(pi.snapshot() | {"probs": pi.initial.where(again, pi.probs)})
    pi.evidence.gradient.masked_fill_(again, 0.0)
    pi.evidence.variance.masked_fill_(again, 0.0)


def _move(pi: SearchDistribution, population: Tensor, losses: Tensor, rate: Tensor, kept: Tensor) -> None:
    """Moves pi by losses `(R T, S)`, and lets evidence fade; step sizes and what is kept of it `(1, R T, 1)`."""
    assert pi.evidence is not None
    pi.update(population, rank_utilities(losses.T.double()), rate)  # type: ignore[arg-type]
    pi.evidence.gradient.mul_(kept)
    pi.evidence.variance.mul_(kept.square())


@torch.no_grad()
def _test_errors(net: Networks, pi: SearchDistribution, parts: Sequence[Sequence[Any]]) -> list[float]:
    """Returns each run's percentage of misclassified test images, over all tasks."""
    size = min(len(part.test.labels) for part in parts[0])
    images = torch.stack([torch.stack([part.test.images[:size].flatten(1) for part in own]) for own in parts])
    labels = torch.stack([torch.stack([part.test.labels[:size] for part in own]) for own in parts])
    mode = pi.mode()[None].unflatten(-1, (net.runs, net.tasks))
    wrong = net.logits(images.float() / 255, mode)[:, :, 0].argmax(-1) != labels
    return [100 * float(value) for value in wrong.double().mean((1, 2))]


def main() -> None:
    """Runs the rules, in groups of equal shapes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rules", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0-4", help="first and last")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--every", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, last = map(int, options.seeds.split("-"))
    rules = [parse_rule(text) for text in options.rules]
    for shapes in dict.fromkeys(rule.shapes for rule in rules):
        group = [rule for rule in rules if rule.shapes == shapes]
        for row in run(group, range(first, last + 1), options.steps, options.every):
            with options.out.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(row))
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerow({name: round(v, 5) if isinstance(v, float) else v for name, v in row.items()})
    print("\n".join(summary(read(options.out))))


if __name__ == "__main__":
    main()
