"""The price on weights: the ranked values, and that a high price makes tasks share."""

import pytest
import torch
from small import digits, learned

from lws_lightning.batches import TaskBatch
from lws_lightning.randomness import generator_for
from lws_lightning.search import marginal_parameters

COPY = {"conv": 4 * 9 + 4 + 8, "dense": 4 * 4 * 4 * 8 + 8}  # parameters of one copy in `tiny_network`


def ranked_losses(method, losses, population):
    return method.scheme.ranked_losses(losses, population, method.objective)


def used(rows):
    return sum(size * len(set(row)) for size, row in zip(COPY.values(), rows, strict=True))


@pytest.mark.parametrize("credit", ["joint", "per_task"])
def test_what_is_ranked(credit):
    method = learned(digits(), credit=credit, weight_price=0.7, loss_weights=[1.0, 1.0, 2.0, 4.0])
    weights = torch.tensor([0.5, 0.5, 1.0, 2.0], dtype=torch.float64)
    generator = generator_for(3)
    population = method.distribution.sample(6, generator)
    losses = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    ranked = ranked_losses(method, losses, population)
    one_copy = sum(COPY.values())
    for s, assignment in enumerate(population.tolist()):
        if credit == "joint":
            expected = ((losses[s] * weights).sum() + 0.7 * used(assignment) / one_copy) / 4
            assert float(ranked[s]) == pytest.approx(float(expected), abs=1e-12)
            continue
        for task in range(4):
            others = [[*row[:task], *row[task + 1 :]] for row in assignment]
            expected = losses[s, task] * weights[task] + 0.7 * (used(assignment) - used(others)) / one_copy
            assert float(ranked[s, task]) == pytest.approx(float(expected), abs=1e-12)


def test_without_a_price_nothing_changes():
    losses = torch.rand(4, 4, generator=generator_for(0))
    population = torch.zeros(4, 2, 4, dtype=torch.int64)
    assert torch.equal(ranked_losses(learned(digits()), losses, population), losses.mean(1))
    assert torch.equal(ranked_losses(learned(digits(), credit="per_task"), losses, population), losses)


@pytest.mark.parametrize("credit", ["joint", "per_task"])
def test_a_high_price_makes_tasks_share(credit):
    """All tasks, with joint credit. With per-task prices a task has no reason to leave a copy that another one uses."""
    method = learned(digits(), credit=credit, weight_price=1e6, nes_samples=16, nes_lr=0.1, seed=1)
    images = torch.rand(4, 4, 1, 8, 8, generator=generator_for(0))
    labels = torch.zeros(4, 4, dtype=torch.int64)
    for step in range(200):  # no Trainer counts the steps here
        method.scheme.sample = lambda size, update, phase, step=step: method.distribution.sample(
            size, generator_for(step, phase)
        )
        method.scheme.update_distribution(method.update, TaskBatch(images, labels))
    if credit == "joint":
        assert used(method.assignment.tolist()) == sum(COPY.values())
    else:
        assert not marginal_parameters(method.assignment[None], list(COPY.values())).any()


@pytest.mark.parametrize("price", [-0.1, float("inf"), float("nan")])
def test_a_price_that_is_none_is_refused(price):
    with pytest.raises(ValueError, match="weight_price must be"):
        learned(digits(), weight_price=price)
