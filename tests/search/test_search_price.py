"""The cost of assignments in parameters, against sets and by enumeration of all assignments of a tiny space."""

import pytest
import torch
from distributions import all_assignments, quick, random_distribution, sizes_of_layers
from hypothesis import given
from hypothesis import strategies as st

from lws_lightning.randomness import generator_for
from lws_lightning.search import marginal_parameters, shared_parameters


def counted(assignment, sizes):
    """Parameters in use, one distinct copy after the other."""
    return sum(size * len(set(row)) for row, size in zip(assignment, sizes, strict=True))


@quick
@given(st.integers(1, 4), sizes_of_layers, st.integers(1, 4), st.integers(0, 1000))
def test_against_sets(size, weights_per_layer, tasks, seed):
    generator = generator_for(seed)
    layers = len(weights_per_layer)
    population = torch.stack(
        [torch.randint(0, k, (size, tasks), generator=generator) for k in weights_per_layer], 1
    )  # (S, L, T)
    sizes = torch.randint(1, 100, (layers,), generator=generator).tolist()
    totals = shared_parameters(population, sizes)
    marginal = marginal_parameters(population, sizes)
    for s, assignment in enumerate(population.tolist()):
        assert totals[s] == counted(assignment, sizes)
        for task in range(tasks):
            others = [[*row[:task], *row[task + 1 :]] for row in assignment]
            assert marginal[s, task] == counted(assignment, sizes) - counted(others, sizes)


@pytest.mark.parametrize(("weights_per_layer", "tasks"), [([2], 2), ([3], 3), ([2, 3], 2), ([2, 1], 3)])
def test_a_tasks_marginal_cost_gives_the_gradient_of_the_expected_total(weights_per_layer, tasks):
    distribution = random_distribution(weights_per_layer, tasks, seed=5)
    population = all_assignments(weights_per_layer, tasks)
    sizes = [7, 100][: len(weights_per_layer)]
    probabilities = distribution.log_prob(population).exp()
    gradients = torch.stack(
        [
            torch.stack(
                [distribution.natural_gradient(a[None], cost[None]) for a, cost in zip(population, costs, strict=True)]
            )
            for costs in (shared_parameters(population, sizes), marginal_parameters(population, sizes))
        ]
    )
    total, marginal = torch.einsum("s,cs...->c...", probabilities, gradients)
    torch.testing.assert_close(marginal, total, rtol=0, atol=1e-10)
    assert float(total.abs().max()) > 0.1
    spread = torch.einsum("s,cs...->c...", probabilities, (gradients - torch.stack([total, marginal])[:, None]) ** 2)
    assert float(spread[1].sum()) < 0.7 * float(spread[0].sum())  # less noise


def test_a_task_alone_pays_for_everything_and_full_sharing_nothing():
    population = torch.tensor([[[0, 0, 0], [2, 2, 2]], [[0, 1, 2], [2, 2, 0]]])
    assert shared_parameters(population, [10, 1]).tolist() == [11, 32]
    assert marginal_parameters(population, [10, 1]).tolist() == [[0, 0, 0], [10, 10, 11]]
    assert marginal_parameters(population[:, :, :1], [10, 1]).tolist() == [[11], [11]]
