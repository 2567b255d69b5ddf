import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from lws_lightning.search import SearchDistribution, fastest_decision, rank_utilities

quick = settings(deadline=None, max_examples=60)
# Few distinct values, so that ties are common.
loss_lists = st.lists(st.integers(-4, 4).map(float), min_size=2, max_size=9)
distinct_losses = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9, unique=True)


def utilities_of(losses):
    return rank_utilities(torch.tensor(losses, dtype=torch.float64))


@quick
@given(losses=distinct_losses)
def test_without_ties_it_is_the_formula_of_the_paper(losses):
    size = len(losses)
    descending = sorted(losses, reverse=True)
    expected = [2 * (descending.index(loss) + 1 - 1) / (size - 1) - 1 for loss in losses]
    torch.testing.assert_close(utilities_of(losses), torch.tensor(expected, dtype=torch.float64))


@quick
@given(losses=loss_lists)
def test_ties_share_the_mean_rank(losses):
    ranks = torch.from_numpy(rankdata([-loss for loss in losses], method="average"))
    torch.testing.assert_close(utilities_of(losses), 2 * (ranks - 1) / (len(losses) - 1) - 1)


@quick
@given(losses=loss_lists)
def test_lies_in_the_unit_interval_and_sums_to_zero(losses):
    utilities = utilities_of(losses)
    assert utilities.abs().max() <= 1
    assert utilities.sum().abs() < 1e-12


@quick
@given(losses=loss_lists, scale=st.sampled_from([1e-3, 0.5, 3.0, 1e8]))
def test_only_the_order_matters(losses, scale):
    values = torch.tensor(losses, dtype=torch.float64)
    for increasing in (values * scale, values + 100, values.exp(), values**3 + values):
        assert rank_utilities(increasing).equal(rank_utilities(values))


@quick
@given(losses=loss_lists, seed=st.integers(0, 5))
def test_permuting_the_losses_permutes_the_utilities(losses, seed):
    order = torch.randperm(len(losses), generator=torch.Generator().manual_seed(seed))
    values = torch.tensor(losses, dtype=torch.float64)
    assert rank_utilities(values[order]).equal(rank_utilities(values)[order])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_are_ranked_by_themselves(dtype):
    losses = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=dtype)
    losses[2, 1] = losses[5, 1]
    utilities = rank_utilities(losses)
    assert utilities.shape == losses.shape
    assert utilities.dtype == dtype
    for task in range(3):
        assert utilities[:, task].equal(rank_utilities(losses[:, task]))


@pytest.mark.parametrize("shape", [(2,), (8,), (5, 3)])
def test_equal_losses_say_nothing(shape):
    assert rank_utilities(torch.full(shape, 2.3)).equal(torch.zeros(shape))


def test_two_losses():
    assert utilities_of([0.1, 0.2]).tolist() == [1, -1]


@pytest.mark.parametrize("shape", [(0,), (1,), (1, 4)])
def test_fewer_than_two_losses_are_refused(shape):
    with pytest.raises(ValueError, match="at least two"):
        rank_utilities(torch.zeros(shape))


@pytest.mark.parametrize("losses", [torch.tensor([1.0, float("nan")]), torch.full((3, 2), float("nan"))])
def test_nan_is_refused(losses):
    with pytest.raises(ValueError, match="NaN"):
        rank_utilities(losses)


def test_infinite_losses_rank_at_the_ends():
    """Diverged assignments rank last, and tie."""
    inf = float("inf")
    assert utilities_of([inf, 1.0, -inf]).tolist() == [-1, 0, 1]
    assert utilities_of([inf, inf, 1.0]).tolist() == [-0.5, -0.5, 1]


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_fastest_rise_of_a_probability_is_logistic(size, share):
    """By enumeration of all populations: the loss is low exactly where the copy is drawn."""
    distribution = SearchDistribution([2], 1, 0.0, [[[share, 1 - share]]], torch.float64)
    expected = 0.0
    for draws in product((0, 1), repeat=size):
        population = torch.tensor(draws).reshape(size, 1, 1)
        gradient = distribution.natural_gradient(population, rank_utilities(torch.tensor(draws, dtype=torch.float64)))
        expected += math.prod(share if draw == 0 else 1 - share for draw in draws) * float(gradient[0, 0, 0])
    assert expected == pytest.approx(share * (1 - share), abs=1e-12)


def test_the_fewest_steps_are_those_of_the_logistic_curve():
    steps, probability = 0, 1 / 3
    while probability < 0.9:
        probability += 1e-3 * probability * (1 - probability)
        steps += 1
    assert fastest_decision(1 / 3, 0.9, 1e-3) == pytest.approx(steps, abs=2)
    assert fastest_decision(1.0, 0.9, 0.1) == 0
    assert fastest_decision(0.5, 0.9, 0.0) == math.inf
