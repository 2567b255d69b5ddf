"""A search distribution: initial state, samples, mode, entropy and log-probability, and its use as a module."""

import copy
import itertools
import math

import pytest
import torch
from distributions import F64, all_assignments, quick, random_distribution, sizes_of_layers
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution

# Construction


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_starts_uniform_over_each_layers_own_copies(dtype):
    distribution = SearchDistribution([3, 1, 2], num_tasks=2, dtype=dtype)
    rows = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [1, 0, 0], [0.5, 0.5, 0]], dtype=F64).to(dtype)
    assert distribution.probs.equal(rows[:, None].repeat(1, 2, 1))
    assert distribution.probs.dtype == dtype
    assert distribution.num_layers == 3
    assert distribution.num_tasks == 2
    assert distribution.weights_per_layer == (3, 1, 2)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_initial_probs_are_taken(as_tensor):
    rows = [[[0.2, 0.8], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]]
    initial = torch.tensor(rows) if as_tensor else rows
    distribution = SearchDistribution([2, 1], 2, initial_probs=initial)
    torch.testing.assert_close(distribution.probs, torch.tensor(rows))


def test_initial_probs_are_copied():
    initial = torch.tensor([[[0.5, 0.5]]], dtype=F64)
    distribution = SearchDistribution([2], 1, initial_probs=initial, dtype=F64)
    initial.zero_()
    assert distribution.probs.equal(torch.tensor([[[0.5, 0.5]]], dtype=F64))


def test_rounded_initial_probs_are_renormalised():
    distribution = SearchDistribution([3], 1, initial_probs=[[[0.33333, 0.33333, 0.33333]]], dtype=F64)
    assert (distribution.probs.sum(-1) - 1).abs().max() < 1e-15


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        ([[[0.5, 0.5]]], "shape"),
        ([[[0.5, 0.5], [0.5, 0.5]], [[1.0], [1.0]]], "rectangular"),
        ([[[0.5, 0.6], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]]], "sum to 1"),
        ([[[1.5, -0.5], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]]], "non-negative"),
        ([[[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [1.0, 0.0]]], "0 beyond"),
        ([[[0.5, float("nan")], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]]], "sum to 1"),
        ("uniform", "initial_probs"),
    ],
    ids=["shape", "ragged", "sum", "negative", "padding", "nan", "text"],
)
def test_initial_probs_that_are_no_distribution_are_refused(initial, message):
    with pytest.raises(ValueError, match=message):
        SearchDistribution([2, 1], 2, initial_probs=initial)


@pytest.mark.parametrize("weights_per_layer", [[], [2, 0], [-1]])
def test_weights_per_layer_must_be_positive(weights_per_layer):
    with pytest.raises(ValueError, match="weights_per_layer"):
        SearchDistribution(weights_per_layer, 2)


def test_at_least_one_task():
    with pytest.raises(ValueError, match="num_tasks"):
        SearchDistribution([2], 0)


@pytest.mark.parametrize("min_probability", [0.25, 0.3, 1.0, -0.1, float("nan")])
def test_a_floor_without_room_is_refused(min_probability):
    with pytest.raises(ValueError, match=r"min_probability.*weights_per_layer 4"):
        SearchDistribution([2, 4], 2, min_probability)


def test_many_copies_under_the_papers_floor():
    SearchDistribution([999], 1)
    with pytest.raises(ValueError, match="min_probability"):
        SearchDistribution([1000], 1)


# Sampling


def test_sample_is_a_function_of_generator_and_probs_alone():
    distribution = random_distribution([3, 2], 4)
    torch.manual_seed(1)
    first = distribution.sample(6, generator_for(7, "population", 0))
    torch.manual_seed(2)
    distribution.sample(3, generator_for(8))
    assert copy.deepcopy(distribution).sample(6, generator_for(7, "population", 0)).equal(first)
    assert not distribution.sample(6, generator_for(7, "population", 1)).equal(first)


def test_sampling_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    random_distribution([3], 2).sample(5, generator_for(0))
    assert torch.get_rng_state().equal(state)


@quick
@given(weights_per_layer=sizes_of_layers, num_tasks=st.integers(1, 3), size=st.integers(1, 20), seed=st.integers(0, 9))
def test_samples_have_shape_dtype_and_range(weights_per_layer, num_tasks, size, seed):
    population = random_distribution(weights_per_layer, num_tasks, seed).sample(size, generator_for(seed))
    assert population.shape == (size, len(weights_per_layer), num_tasks)
    assert population.dtype == torch.int64
    assert population.min() >= 0
    for layer, copies in enumerate(weights_per_layer):
        assert population[:, layer].max() < copies


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_frequencies_match_the_probabilities(dtype):
    """Pearson's statistic of each row stays below the 99.99 % quantile of chi-squared with K - 1 degrees."""
    distribution = random_distribution([4, 2], 3, seed=3, dtype=dtype)
    size = 20_000
    population = distribution.sample(size, generator_for(11))
    counts = nn.functional.one_hot(population, 4).double().sum(0)
    expected = distribution.probs.double() * size
    statistic = ((counts - expected) ** 2 / expected.clamp(min=1e-300)).sum(-1)
    assert statistic[0].max() < 21.1
    assert statistic[1].max() < 15.2


def test_layers_tasks_and_assignments_are_drawn_independently():
    population = SearchDistribution([2, 2], 2).sample(4000, generator_for(5)).double().flatten(1)
    variables = torch.cat([population[:-1], population[1:]], 1).T
    correlations = torch.corrcoef(variables) - torch.eye(8, dtype=F64)
    correlations[:4, 4:].fill_diagonal_(0)
    assert correlations.abs().max() < 0.08


class _Edge(SearchDistribution):
    """With given instead of random draws."""

    def sample_at(self, draw, monkeypatch):
        monkeypatch.setattr(torch, "rand", lambda shape, generator, dtype: torch.full(shape, draw, dtype=dtype))
        return self.sample(1, torch.Generator()).item()


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.5, 1 - 2**-53])
@pytest.mark.parametrize(
    "row", [[0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.5], [0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 0.3, 0.7]]
)
def test_copies_of_probability_zero_are_never_drawn(row, draw, monkeypatch):
    distribution = _Edge([4], 1, min_probability=0, initial_probs=[[row]])
    assert row[distribution.sample_at(draw, monkeypatch)] > 0


def test_rounding_below_one_draws_the_last_possible_copy(monkeypatch):
    distribution = _Edge([4, 3], 1, min_probability=0)
    short = torch.tensor([0.5, 0.49, 0.0, 0.0])
    distribution.restore({"probs": short.expand(2, 1, 4)})
    monkeypatch.setattr(torch, "rand", lambda shape, generator, dtype: torch.full(shape, 0.999, dtype=dtype))
    assert distribution.sample(2, torch.Generator()).unique().tolist() == [1]


def test_inverse_transform_at_the_thresholds(monkeypatch):
    distribution = _Edge([4], 1, initial_probs=[[[0.25, 0.25, 0.25, 0.25]]])
    draws = [0.0, 0.2499, 0.25, 0.5, 0.7499, 0.75, 1 - 2**-53]
    assert [distribution.sample_at(draw, monkeypatch) for draw in draws] == [0, 0, 1, 2, 2, 3, 3]


# Mode, entropy, log-probability


def test_mode_takes_the_most_likely_and_the_first_of_equals():
    rows = [[[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], [[0.5, 0.5, 0.0], [0.1, 0.9, 0.0]]]
    mode = SearchDistribution([3, 2], 2, initial_probs=rows).mode()
    assert mode.tolist() == [[1, 0], [0, 1]]
    assert mode.dtype == torch.int64


def test_mode_has_the_highest_probability_of_all():
    distribution = random_distribution([3, 2], 2, seed=4)
    everything = all_assignments([3, 2], 2)
    assert everything[distribution.log_prob(everything).argmax()].equal(distribution.mode())


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_entropy_of_the_uniform_distribution(copies):
    distribution = SearchDistribution([copies, 5], 2, dtype=F64)
    uniform = torch.full((2,), math.log(copies), dtype=F64)
    torch.testing.assert_close(distribution.entropy()[0], uniform)
    normalized = torch.full((2,), 0.0 if copies == 1 else 1.0, dtype=F64)
    torch.testing.assert_close(distribution.normalized_entropy()[0], normalized)


def test_entropy_of_a_certain_assignment_is_zero():
    distribution = SearchDistribution([3, 1], 1, initial_probs=[[[0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0]]])
    assert distribution.entropy().eq(0).all()
    assert distribution.normalized_entropy().eq(0).all()


def test_entropy_by_hand():
    distribution = SearchDistribution([2, 3], 1, initial_probs=[[[0.25, 0.75, 0]], [[0.5, 0.25, 0.25]]], dtype=F64)
    by_hand = [0.25 * math.log(4) + 0.75 * math.log(4 / 3), 1.5 * math.log(2)]
    torch.testing.assert_close(distribution.entropy()[:, 0], torch.tensor(by_hand, dtype=F64))
    normalized = [by_hand[0] / math.log(2), by_hand[1] / math.log(3)]
    torch.testing.assert_close(distribution.normalized_entropy()[:, 0], torch.tensor(normalized, dtype=F64))


def test_log_prob_is_the_product_over_layers_and_tasks():
    distribution = random_distribution([3, 2], 2, seed=2)
    population = all_assignments([3, 2], 2)
    for assignment, log_prob in zip(population, distribution.log_prob(population), strict=True):
        product = 1.0
        for layer, task in itertools.product(range(2), range(2)):
            product *= distribution.probs[layer, task, assignment[layer, task]].item()
        assert log_prob.exp().item() == pytest.approx(product, rel=1e-12)


@pytest.mark.parametrize(("weights_per_layer", "num_tasks"), [([3], 2), ([2, 3], 2), ([1, 4], 2), ([2, 2, 2], 3)])
def test_probabilities_of_all_assignments_sum_to_one(weights_per_layer, num_tasks):
    distribution = random_distribution(weights_per_layer, num_tasks, seed=1)
    total = distribution.log_prob(all_assignments(weights_per_layer, num_tasks)).exp().sum()
    assert total.item() == pytest.approx(1, abs=1e-12)


def test_log_prob_of_the_impossible():
    distribution = SearchDistribution([2], 1, initial_probs=[[[1.0, 0.0]]])
    assert distribution.log_prob(torch.tensor([[[0]], [[1]]])).tolist() == [0.0, -math.inf]


# As a module


@pytest.mark.parametrize(
    ("cast", "expected"),
    [
        (lambda module: module.to(torch.bfloat16), torch.float32),
        (lambda module: module.half(), torch.float32),
        (lambda module: module.bfloat16(), torch.float32),
        (lambda module: module.float(), torch.float32),
        (lambda module: module.double(), F64),
        (lambda module: module.to(F64), F64),
        (lambda module: module.double().half(), F64),
    ],
    ids=["to_bfloat16", "half", "bfloat16", "float", "double", "to_float64", "double_half"],
)
def test_a_parents_casts_keep_at_least_float32(cast, expected):
    parent = nn.ModuleDict({"net": nn.Linear(2, 2), "pi": random_distribution([3, 2], 2, dtype=torch.float32)})
    before = parent["pi"].probs.clone()
    cast(parent)
    assert parent["pi"].probs.dtype == expected
    assert parent["pi"].probs.equal(before.to(expected))
    assert dict(parent.named_buffers())["pi.probs"] is parent["pi"].probs


def test_a_move_leaves_it_on_the_host():
    parent = nn.ModuleDict({"net": nn.Linear(2, 2), "pi": SearchDistribution([3], 2)}).to("meta")
    assert parent["net"].weight.device.type == "meta"
    assert parent["pi"].probs.device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_state_dict_round_trip(dtype):
    source = random_distribution([3, 2], 2, dtype=dtype)
    state = source.state_dict()
    assert list(state) == ["probs"]
    target = SearchDistribution([3, 2], 2, dtype=dtype)
    target.load_state_dict(state)
    assert target.probs.equal(source.probs)
    population = target.sample(4, generator_for(0))
    target.update(population, torch.tensor([1.0, 0.0, 0.0, -1.0]), 0.1)
    assert not target.probs.equal(source.probs), "the loaded values must be a copy"


def test_restore_puts_back():
    distribution = random_distribution([3], 2)
    before = distribution.probs.clone()
    distribution.update(distribution.sample(2, generator_for(0)), torch.tensor([1.0, -1.0]), 0.5)
    distribution.restore({"probs": before})
    assert distribution.probs.equal(before)


def test_has_no_parameters_and_no_gradients():
    distribution = random_distribution([3], 2)
    assert list(distribution.parameters()) == []
    distribution.update(distribution.sample(2, generator_for(0)), torch.ones(2, requires_grad=True), 0.5)
    assert not distribution.probs.requires_grad
