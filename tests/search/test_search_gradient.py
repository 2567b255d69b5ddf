"""A search distribution's natural gradient, and the update along it."""

import itertools

import pytest
import torch
from distributions import F64, all_assignments, padding_of, quick, random_distribution, sizes_of_layers
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution, drift_half_life, rank_utilities

# Natural gradient

SPACES = [([3], 1), ([2, 3], 2), ([4, 1], 2)]


def scores(distribution, population):
    """The natural gradient of each assignment's log-probability, `(S, L, T, max K)`."""
    one = torch.ones(1, dtype=F64)
    return torch.stack([distribution.natural_gradient(assignment[None], one) for assignment in population])


@pytest.mark.parametrize(("weights_per_layer", "num_tasks"), SPACES)
def test_the_expected_score_is_zero(weights_per_layer, num_tasks):
    distribution = random_distribution(weights_per_layer, num_tasks, seed=5)
    population = all_assignments(weights_per_layer, num_tasks)
    probabilities = distribution.log_prob(population).exp()
    expected = torch.einsum("s,sltk->ltk", probabilities, scores(distribution, population))
    assert expected.abs().max() < 1e-14


@pytest.mark.parametrize(("weights_per_layer", "num_tasks"), SPACES)
def test_it_is_the_inverse_fisher_matrix_times_the_gradient(weights_per_layer, num_tasks):
    """In the paper's parameters: the probabilities of all copies but the last of each categorical."""
    distribution = random_distribution(weights_per_layer, num_tasks, seed=6)
    population = all_assignments(weights_per_layer, num_tasks)
    rows = [(layer, task) for layer in range(len(weights_per_layer)) for task in range(num_tasks)]
    sizes = [weights_per_layer[layer] - 1 for layer, _ in rows]
    mu = torch.cat([distribution.probs[row][:size] for row, size in zip(rows, sizes, strict=True)])

    def log_prob(mu, assignment):
        total = mu.new_zeros(())
        for row, part in zip(rows, mu.split(sizes), strict=True):
            total = total + torch.cat([part, 1 - part.sum()[None]])[assignment[row]].log()
        return total

    gradients = torch.stack([torch.func.grad(log_prob)(mu, assignment) for assignment in population])
    probabilities = torch.stack([log_prob(mu, assignment) for assignment in population]).exp()
    fisher = torch.einsum("s,si,sj->ij", probabilities, gradients, gradients)
    natural = torch.linalg.solve(fisher, gradients.T).T
    ours = scores(distribution, population)
    restricted = torch.cat([ours[:, layer, t, :size] for (layer, t), size in zip(rows, sizes, strict=True)], dim=1)
    torch.testing.assert_close(natural, restricted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("weights_per_layer", "num_tasks"), SPACES)
def test_the_expected_gradient_ascends_the_expected_utility(weights_per_layer, num_tasks):
    distribution = random_distribution(weights_per_layer, num_tasks, seed=7, min_probability=0)
    population = all_assignments(weights_per_layer, num_tasks)
    utility = torch.randn(len(population), generator=generator_for(1), dtype=F64)
    probabilities = distribution.log_prob(population).exp()
    # The estimator is a mean over the population: importance weights turn it into the exact expectation.
    weighted = utility * probabilities * len(population)
    gradient = distribution.natural_gradient(population, weighted)
    one_hot = nn.functional.one_hot(population, max(weights_per_layer)).to(F64)
    exact = torch.einsum("s,s,sltk->ltk", probabilities, utility, one_hot - distribution.probs)
    torch.testing.assert_close(gradient, exact, rtol=1e-12, atol=1e-14)

    before = probabilities @ utility
    distribution.update(population, weighted, learning_rate=1e-3)
    after = distribution.log_prob(population).exp() @ utility
    # To first order the gain is the squared length of the gradient in the Fisher metric, sum(g^2 / pi).
    gain = 1e-3 * (exact**2 / distribution.probs.clamp(min=1e-300)).sum()
    assert (after - before).item() == pytest.approx(gain.item(), rel=0.02)
    assert after > before


def test_the_estimate_of_a_drawn_population_is_unbiased():
    distribution = random_distribution([3], 2, seed=8)
    population = distribution.sample(40_000, generator_for(3))
    table = torch.randn(3, 3, generator=generator_for(2), dtype=F64)

    def utility(assignments):
        return table[assignments[:, 0, 0], assignments[:, 0, 1]]

    everything = all_assignments([3], 2)
    probabilities = distribution.log_prob(everything).exp()
    exact = distribution.natural_gradient(everything, utility(everything) * probabilities * len(everything))
    estimate = distribution.natural_gradient(population, utility(population))
    assert (estimate - exact).abs().max() < 0.02


@quick
@given(weights_per_layer=sizes_of_layers, num_tasks=st.integers(1, 3), size=st.integers(1, 6), seed=st.integers(0, 9))
def test_gradient_sums_to_zero_and_leaves_the_padding(weights_per_layer, num_tasks, size, seed):
    distribution = random_distribution(weights_per_layer, num_tasks, seed)
    population = distribution.sample(size, generator_for(seed))
    gradient = distribution.natural_gradient(population, torch.randn(size, num_tasks, generator=generator_for(seed)))
    assert gradient.shape == distribution.probs.shape
    assert gradient.sum(-1).abs().max() < 1e-14
    assert gradient[padding_of(distribution).expand_as(gradient)].eq(0).all()


def test_utilities_of_each_task_move_only_that_task():
    distribution = random_distribution([3, 2], 3, seed=9)
    population = distribution.sample(5, generator_for(0))
    utilities = torch.randn(5, 3, generator=generator_for(1), dtype=F64)
    gradient = distribution.natural_gradient(population, utilities)
    for task in range(3):
        of_all = distribution.natural_gradient(population, utilities[:, task])
        torch.testing.assert_close(gradient[:, task], of_all[:, task])


def test_one_utility_for_all_tasks_is_the_same_as_repeating_it():
    distribution = random_distribution([3, 2], 5, seed=9)
    population = distribution.sample(5, generator_for(0))  # S = T: shapes alone do not tell the dimensions apart
    utilities = torch.randn(5, generator=generator_for(1), dtype=F64)
    repeated = utilities[:, None].expand(5, 5)
    torch.testing.assert_close(
        distribution.natural_gradient(population, utilities), distribution.natural_gradient(population, repeated)
    )


@pytest.mark.parametrize(
    ("population_shape", "utilities_shape"),
    [((4, 2, 3), (5,)), ((4, 2, 3), (4, 2)), ((4, 2, 3), (4, 1)), ((4, 1, 3), (4,)), ((4, 2, 2), (4,))],
)
def test_shapes_that_do_not_fit_are_refused(population_shape, utilities_shape):
    distribution = SearchDistribution([2, 2], 3)
    with pytest.raises(ValueError, match="does not match"):
        distribution.natural_gradient(torch.zeros(population_shape, dtype=torch.int64), torch.zeros(utilities_shape))


# Update


def test_update_by_hand():
    rows = [[[0.5, 0.3, 0.2]]]
    distribution = SearchDistribution([3], 1, min_probability=0.05, initial_probs=rows, dtype=F64)
    population = torch.tensor([[[0]], [[2]]])
    utilities = torch.tensor([1.0, -1.0], dtype=F64)
    # mean of (1, 0, 0) - pi and -((0, 0, 1) - pi) is (0.5, 0, -0.5)
    torch.testing.assert_close(
        distribution.natural_gradient(population, utilities), torch.tensor([[[0.5, 0, -0.5]]], dtype=F64)
    )
    distribution.update(population, utilities, learning_rate=0.1)
    torch.testing.assert_close(distribution.probs, torch.tensor([[[0.55, 0.3, 0.15]]], dtype=F64))
    # The next step goes to (0.75, 0.3, -0.05), is clamped to (0.75, 0.3, 0.05) and divided by 1.1.
    distribution.update(population, utilities, learning_rate=0.4)
    torch.testing.assert_close(distribution.probs, torch.tensor([[[0.75, 0.3, 0.05]]], dtype=F64) / 1.1)
    assert distribution.probs[0, 0, 2] < 0.05, "as in the paper, an entry may end just below the floor"


@quick
@given(
    weights_per_layer=sizes_of_layers,
    num_tasks=st.integers(1, 3),
    size=st.integers(2, 6),
    seed=st.integers(0, 1000),
    learning_rate=st.sampled_from([0.0, 0.01, 0.3, 1.0, 5.0]),
    min_probability=st.sampled_from([0.0, 1e-3, 0.1, 0.24]),
    dtype=st.sampled_from([torch.float32, F64]),
    per_task=st.booleans(),
)
def test_many_updates_stay_on_the_simplex_above_the_floor(
    weights_per_layer, num_tasks, size, seed, learning_rate, min_probability, dtype, per_task
):
    distribution = SearchDistribution(weights_per_layer, num_tasks, min_probability, dtype=dtype)
    padding = padding_of(distribution).expand_as(distribution.probs)
    for step in range(15):
        population = distribution.sample(size, generator_for(seed, step))
        losses = torch.rand(size, *([num_tasks] if per_task else []), generator=generator_for(seed, "loss", step))
        distribution.update(population, rank_utilities(losses), learning_rate)
        probs = distribution.probs
        assert probs.dtype == dtype
        assert (probs.sum(-1) - 1).abs().max() < 1e-6
        assert probs[padding].eq(0).all()
        assert probs.min() >= 0
        # Clamping raises each of K entries by at most the floor plus the step; the division takes that back.
        raised = 1 + max(weights_per_layer) * (min_probability + learning_rate)
        assert probs[~padding].min() >= min_probability / raised - 1e-7


def test_padding_survives_a_gradient_that_would_clamp_it():
    distribution = SearchDistribution([2, 4], 1, min_probability=0.2)
    population = torch.tensor([[[0], [0]], [[1], [3]]])
    for _ in range(20):
        distribution.update(population, torch.tensor([1.0, -1.0]), 0.5)
    assert distribution.probs[0, 0, 2:].tolist() == [0, 0]
    assert distribution.sample(500, generator_for(0))[:, 0].max() == 1


def test_learning_rate_zero_keeps_what_is_normalised():
    distribution = random_distribution([3, 2], 2, seed=3)
    before = distribution.probs.clone()
    population = distribution.sample(4, generator_for(0))
    distribution.update(population, torch.tensor([1.0, 0.5, -0.5, -1.0]), learning_rate=0)
    torch.testing.assert_close(distribution.probs, before, rtol=1e-15, atol=0)


def test_learning_rate_zero_renormalises():
    distribution = SearchDistribution([2], 1)
    distribution.restore({"probs": torch.tensor([[[0.5, 1.5]]])})
    distribution.update(torch.tensor([[[0]], [[1]]]), torch.zeros(2), learning_rate=0)
    assert distribution.probs.tolist() == [[[0.25, 0.75]]]


def test_zero_utilities_change_nothing():
    distribution = random_distribution([3], 2, seed=3)
    before = distribution.probs.clone()
    distribution.update(distribution.sample(4, generator_for(0)), torch.zeros(4), learning_rate=1.0)
    torch.testing.assert_close(distribution.probs, before, rtol=1e-15, atol=0)


def test_a_single_copy_stays_certain():
    distribution = SearchDistribution([1, 2], 2)
    for step in range(5):
        population = distribution.sample(3, generator_for(step))
        distribution.update(population, torch.tensor([1.0, 0.0, -1.0]), 0.7)
    assert distribution.probs[0].tolist() == [[1, 0], [1, 0]]


def test_learns_the_best_assignment():
    """The whole search on a problem with a known solution: each task does best with its own copy."""
    distribution = SearchDistribution([3, 2], 2)
    target = torch.tensor([[0, 2], [1, 0]])
    for step in range(600):
        population = distribution.sample(8, generator_for(0, step))
        losses = (population != target).sum((1, 2)).float()
        distribution.update(population, rank_utilities(losses), 0.1)
    assert distribution.mode().equal(target)
    assert distribution.normalized_entropy().max() < 0.2


@pytest.mark.parametrize(("size", "copies"), [(2, 2), (3, 2), (3, 3), (4, 3)])
def test_utilities_that_say_nothing_let_pi_drift_as_the_docs_say(size, copies):
    """Over all populations, E[H'] = (1 - rho) H, where H is the probability that two draws differ."""
    distribution = random_distribution([copies], 1, seed=9, min_probability=0)
    probs, learning_rate = distribution.probs.flatten(), 0.3
    before = 1 - probs.square().sum()
    utilities = rank_utilities(torch.randperm(size, generator=generator_for(2)).to(F64))
    after = torch.zeros((), dtype=F64)
    for draws in itertools.product(range(copies), repeat=size):
        gradient = distribution.natural_gradient(torch.tensor(draws).view(size, 1, 1), utilities).flatten()
        chance = probs[list(draws)].prod()
        after += chance * (1 - (probs + learning_rate * gradient).square().sum())
    kept = 0.5 ** (1 / drift_half_life(size, learning_rate))  # of H in one step
    torch.testing.assert_close(after, kept * before, rtol=1e-12, atol=0)


@pytest.mark.parametrize("counts", [(2, 2), (2, 1, 1), (3, 1), (3, 2, 1)])
def test_systematic_draws_drift_faster_as_the_docs_say(counts):
    """Over all orders of the utilities, where every copy is drawn exactly as often as pi says."""
    size, learning_rate = sum(counts), 0.3
    distribution = SearchDistribution([len(counts)], 1, 0, torch.tensor(counts, dtype=F64).view(1, 1, -1) / size, F64)
    before = 1 - distribution.probs.square().sum()
    draws = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).view(size, 1, 1)
    utilities = rank_utilities(torch.arange(size, dtype=F64))
    orders = list(itertools.permutations(range(size)))
    after = torch.zeros((), dtype=F64)
    for order in orders:
        gradient = distribution.natural_gradient(draws, utilities[list(order)])
        after += (1 - (distribution.probs + learning_rate * gradient).square().sum()) / len(orders)
    kept = 0.5 ** (1 / drift_half_life(size, learning_rate, "systematic"))
    torch.testing.assert_close(after, kept * before, rtol=1e-12, atol=0)


def test_the_half_life_of_a_drifting_pi():
    assert [round(drift_half_life(8, rate)) for rate in (0.1, 0.03, 0.01, 0.003)] == [1294, 14376, 129387, 1437638]
    assert drift_half_life(8, 0.0) == float("inf")
    assert drift_half_life(2, 3.0) == 0
