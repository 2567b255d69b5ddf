"""Systematic sampling."""

import pytest
import torch
from distributions import F64, quick
from hypothesis import given
from hypothesis import strategies as st

from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution

PROBS = torch.tensor([[[0.62, 0.3, 0.08], [0.5, 0.5, 0.0]], [[0.1, 0.9, 0.0], [1.0, 0.0, 0.0]]], dtype=F64)


@pytest.fixture
def distribution():
    return SearchDistribution([3, 3], 2, 0.0, initial_probs=PROBS, dtype=F64)


@quick
@given(st.integers(2, 40), st.integers(0, 2**16))
def test_a_systematic_population_holds_every_weight_as_often_as_pi_says(size, seed):
    distribution = SearchDistribution([3, 3], 2, 0.0, initial_probs=PROBS, dtype=F64)
    population = distribution.sample(size, generator_for(seed), "systematic")
    counts = torch.nn.functional.one_hot(population, 3).sum(0)
    assert ((counts - size * PROBS).abs() < 1 + 1e-9).all()
    assert (counts[PROBS == 0] == 0).all()


def test_every_single_assignment_of_a_systematic_population_is_distributed_as_pi(distribution):
    draws = torch.stack([distribution.sample(4, generator_for(seed), "systematic") for seed in range(4000)])
    frequencies = torch.nn.functional.one_hot(draws, 3).to(F64).mean(0)  # (S, L, T, K), of each position by itself
    deviation = (PROBS * (1 - PROBS) / len(draws)).sqrt()
    assert ((frequencies - PROBS).abs() <= 4.5 * deviation + 1e-12).all()


def test_layers_and_tasks_of_a_systematic_population_are_independent(distribution):
    """The joint frequencies of two choices within one assignment are the products of their probabilities."""
    draws = torch.cat([distribution.sample(4, generator_for(seed), "systematic") for seed in range(4000)])
    first, second = draws[:, 0, 0], draws[:, 1, 0]
    joint = torch.bincount(first * 3 + second, minlength=9).view(3, 3) / len(draws)
    torch.testing.assert_close(joint.to(F64), torch.outer(PROBS[0, 0], PROBS[1, 0]), atol=0.012, rtol=0)


def test_the_natural_gradient_from_a_systematic_population_is_unbiased_and_varies_less(distribution):
    """For a reward that is a sum over layers, against the exact value by enumeration of one task's choices."""
    reward = torch.tensor([[0.3, -1.0, 2.0], [0.7, 0.1, -0.4]], dtype=F64)

    def gradient(sampling, seed):
        population = distribution.sample(8, generator_for(seed), sampling)
        utilities = sum(reward[layer][population[:, layer, 0]] for layer in range(2))
        return distribution.natural_gradient(population, utilities)

    exact = torch.stack([row * (reward[layer] - row @ reward[layer]) for layer, row in enumerate(PROBS[:, 0])])
    variances = {}
    for sampling in ("independent", "systematic"):
        found = torch.stack([gradient(sampling, seed)[:, 0] for seed in range(3000)])
        torch.testing.assert_close(found.mean(0), exact, atol=0.02, rtol=0)
        variances[sampling] = found.var(0).sum()
    assert variances["systematic"] < 0.7 * variances["independent"]


def test_independent_draws_are_the_default(distribution):
    plain = distribution.sample(6, generator_for(1))
    assert torch.equal(plain, distribution.sample(6, generator_for(1), "independent"))
