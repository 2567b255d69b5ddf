"""Steps of pi only on evidence: the exact null variance, and what is held back and passed on."""

import itertools
import math

import pytest
import torch
from distributions import F64, padding_of, quick, random_distribution, sizes_of_layers
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution, false_alarm_probability, rank_utilities
from lws_lightning.search.evidence import Evidence, null_variance


def moments_over_all_orders(distribution, population, column):
    """Mean and variance of the natural gradient over every order of the distinct assignments, one by one."""
    _, group = torch.unique(column, dim=0, return_inverse=True)
    gradients = []
    for order in itertools.permutations(range(int(group.max()) + 1)):
        losses = torch.tensor(order, dtype=F64)[group]
        gradients.append(distribution.natural_gradient(population, rank_utilities(losses)))
    stacked = torch.stack(gradients)
    return stacked.mean(0), stacked.square().mean(0)


CASES = [([3], 1, 6), ([2, 3], 2, 5), ([4, 1, 2], 3, 6), ([2], 2, 6), ([1], 1, 4)]


@pytest.mark.parametrize(("weights_per_layer", "num_tasks", "size"), CASES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sampling", ["independent", "systematic"])
def test_variance_of_joint_utilities_is_that_over_all_orders(weights_per_layer, num_tasks, size, seed, sampling):
    distribution = random_distribution(weights_per_layer, num_tasks, seed)
    population = distribution.sample(size, generator_for(seed), sampling)
    mean, variance = moments_over_all_orders(distribution, population, population.flatten(1))
    assert mean.abs().max() < 1e-15
    ours = null_variance(population, max(weights_per_layer), per_task=False)
    assert ours.dtype == F64
    torch.testing.assert_close(ours, variance, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(("weights_per_layer", "num_tasks", "size"), CASES)
@pytest.mark.parametrize("seed", range(4))
def test_variance_of_utilities_of_each_task_is_that_over_all_orders(weights_per_layer, num_tasks, size, seed):
    distribution = random_distribution(weights_per_layer, num_tasks, seed)
    population = distribution.sample(size, generator_for(seed))
    ours = null_variance(population, max(weights_per_layer), per_task=True)
    for task in range(num_tasks):
        _, variance = moments_over_all_orders(distribution, population, population[:, :, task])
        torch.testing.assert_close(ours[:, task], variance[:, task], rtol=1e-12, atol=1e-16)


@quick
@given(size=st.integers(2, 9), seed=st.integers(0, 99))
def test_of_distinct_assignments_it_is_the_variance_under_permuted_utilities(size, seed):
    """sum(u^2) q (1 - q) / (S (S - 1)), q being the share of the copy in the population."""
    population = torch.randint(0, 3, (size, 2, 2), generator=generator_for(seed))
    population[:, 1, 0] = torch.arange(size)  # all distinct
    utilities = rank_utilities(torch.randn(size, generator=generator_for(seed), dtype=F64))
    share = nn.functional.one_hot(population, 9).to(F64).mean(0)
    expected = utilities.square().sum() * share * (1 - share) / (size * (size - 1))
    torch.testing.assert_close(null_variance(population, 9, per_task=False), expected, rtol=1e-12, atol=1e-16)


@quick
@given(weights_per_layer=sizes_of_layers, num_tasks=st.integers(1, 3), size=st.integers(2, 6), seed=st.integers(0, 99))
def test_equal_losses_of_distinct_assignments_only_lower_the_variance(weights_per_layer, num_tasks, size, seed):
    distribution = random_distribution(weights_per_layer, num_tasks, seed)
    population = distribution.sample(size, generator_for(seed))
    _, group = torch.unique(population.flatten(1), dim=0, return_inverse=True)
    few = torch.randint(0, 2, (int(group.max()) + 1,), generator=generator_for(seed)).double()  # two values only
    orders = itertools.permutations(few.tolist())
    squares = [
        distribution.natural_gradient(population, rank_utilities(torch.tensor(order, dtype=F64)[group])).square()
        for order in orders
    ]
    bound = null_variance(population, max(weights_per_layer), per_task=False)
    assert (torch.stack(squares).mean(0) <= bound + 1e-15).all()


@quick
@given(weights_per_layer=sizes_of_layers, num_tasks=st.integers(1, 3), seed=st.integers(0, 99), per_task=st.booleans())
def test_padding_and_single_copies_have_no_variance(weights_per_layer, num_tasks, seed, per_task):
    distribution = random_distribution(weights_per_layer, num_tasks, seed)
    population = distribution.sample(5, generator_for(seed))
    variance = null_variance(population, max(weights_per_layer), per_task)
    assert variance.shape == distribution.probs.shape
    assert (variance >= 0).all()
    assert variance[padding_of(distribution)].eq(0).all()
    assert variance[torch.tensor(weights_per_layer) == 1].eq(0).all()


def gradients_of(shape, number, seed=0):
    return torch.randn(number, *shape, generator=generator_for(seed), dtype=F64)


def test_the_sum_is_held_back_until_one_entry_is_significant_and_then_starts_again():
    evidence = Evidence((1, 1, 2), critical_value=3.0)
    one, two = torch.tensor([[[1.0, -1.0]]], dtype=F64), torch.full((1, 1, 2), 0.5, dtype=F64)
    released = [evidence.release(one, two) for _ in range(12)]
    # After n steps z is n / sqrt(n / 2) = sqrt(2 n), which exceeds 3 at n = 5.
    assert [step for step, row in enumerate(released, 1) if row.any()] == [5, 10]
    torch.testing.assert_close(released[4], 5 * one)
    torch.testing.assert_close(evidence.gradient, 2 * one)
    torch.testing.assert_close(evidence.variance, 2 * two)


@quick
@given(seed=st.integers(0, 99), critical=st.floats(0.1, 3))
def test_nothing_is_lost(seed, critical):
    evidence, shape = Evidence((2, 3, 4), critical), (2, 3, 4)
    gradients = gradients_of(shape, 20, seed)
    released = sum(evidence.release(gradient, torch.ones(shape, dtype=F64)) for gradient in gradients)
    torch.testing.assert_close(released + evidence.gradient, gradients.sum(0))


def test_categoricals_are_tested_one_by_one():
    evidence = Evidence((1, 2, 2), critical_value=2.0)
    gradient = torch.tensor([[[3.0, -3.0], [1.0, -1.0]]], dtype=F64)
    released = evidence.release(gradient, torch.ones(1, 2, 2, dtype=F64))
    assert released.tolist() == [[[3.0, -3.0], [0.0, 0.0]]]
    assert evidence.gradient.tolist() == [[[0.0, 0.0], [1.0, -1.0]]]


@quick
@given(seed=st.integers(0, 99), per_task=st.booleans(), dtype=st.sampled_from([torch.float32, F64]))
def test_a_vanishing_critical_value_is_the_step_of_the_paper(seed, per_task, dtype):
    plain = random_distribution([3, 2], 2, seed, dtype)
    gated = SearchDistribution([3, 2], 2, initial_probs=plain.probs, dtype=dtype, critical_z=1e-9)
    for step in range(5):
        population = plain.sample(4, generator_for(seed, step))
        losses = torch.randn((4, 2) if per_task else (4,), generator=generator_for(seed, step), dtype=F64)
        for distribution in (plain, gated):
            distribution.update(population, rank_utilities(losses), 0.1)
        torch.testing.assert_close(gated.probs, plain.probs, rtol=1e-5, atol=1e-7)


def test_without_the_option_there_is_no_state():
    assert list(SearchDistribution([3], 2).state_dict()) == ["probs"]
    assert list(SearchDistribution([3], 2, critical_z=4.0).state_dict()) == [
        "probs",
        "evidence.gradient",
        "evidence.variance",
    ]


def test_a_categorical_without_evidence_keeps_its_bits():
    below_the_floor = [[[0.9996, 0.0003, 0.0001]] * 2]
    distribution = SearchDistribution([3], 2, initial_probs=below_the_floor, critical_z=4.0)
    before = distribution.probs.clone()
    for step in range(20):
        population = distribution.sample(4, generator_for(step))
        distribution.update(population, torch.randn(4, generator=generator_for(step)), 0.1)
    assert distribution.probs.equal(before)


def test_a_clear_signal_moves_only_the_categorical_that_has_it():
    distribution = SearchDistribution([3, 3], 1, dtype=F64, critical_z=5.0)
    generator = generator_for(0)
    for _ in range(400):
        population = distribution.sample(8, generator)
        noise = torch.randn(3, 3, generator=generator, dtype=F64)  # of each assignment
        losses = noise[population[:, 0, 0], population[:, 1, 0]] - (population[:, 0, 0] == 1).double()
        distribution.update(population, rank_utilities(losses), 0.1)
    assert distribution.probs[0, 0, 1] > 0.9
    assert distribution.probs[1, 0].sub(1 / 3).abs().max() < 1e-12


def test_a_snapshot_brings_back_what_was_held_back():
    distribution = SearchDistribution([3], 2, critical_z=4.0)
    population = distribution.sample(4, generator_for(0))
    utilities = torch.tensor([1.0, 1 / 3, -1 / 3, -1.0])
    distribution.update(population, utilities, 0.1)
    before = distribution.snapshot()
    distribution.update(population, utilities, 0.1)
    assert not distribution.evidence.gradient.equal(before["evidence.gradient"])
    distribution.restore(before)
    for name, value in distribution.state_dict().items():
        assert value.equal(before[name])


def test_casts_and_moves_leave_the_sums_in_float64_on_the_cpu():
    parent = nn.ModuleDict({"pi": SearchDistribution([3], 2, critical_z=4.0)}).to(torch.bfloat16).to("meta")
    for buffer in parent["pi"].evidence.buffers():
        assert (buffer.device.type, buffer.dtype) == ("cpu", F64)


@pytest.mark.parametrize("copies", [2, 4])
def test_false_alarms_are_no_more_frequent_than_the_bound_says(copies):
    """Noise alone, per-task utilities of 500 tasks that choose at two layers."""
    critical, steps, tasks = 3.0, 400, 500
    distribution = SearchDistribution([copies, copies], tasks, dtype=F64, critical_z=critical)
    generator = generator_for(1)
    for _ in range(steps):
        population = distribution.sample(8, generator)
        noise = torch.randn(copies, copies, tasks, generator=generator, dtype=F64)
        losses = noise[population[:, 0], population[:, 1], torch.arange(tasks)]
        distribution.update(population, rank_utilities(losses), 1e-3)
    moved = (distribution.probs - 1 / copies).abs().amax(-1).gt(1e-12).double().mean()
    bound = false_alarm_probability(critical, steps, copies)
    assert 0 < moved < bound < 1


def test_the_bound_on_false_alarms_by_hand():
    density = math.exp(-8) / math.sqrt(2 * math.pi)
    assert false_alarm_probability(4, math.e, 3) == pytest.approx(3 * density * (4 - 0.25 + 1))
    assert false_alarm_probability(0, 10, 3) == false_alarm_probability(2, 1e9, 30) == 1
    assert false_alarm_probability(4, math.inf, 3) == 1
