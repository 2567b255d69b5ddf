import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution, rank_utilities

quick = settings(deadline=None, max_examples=30)
sizes_of_layers = st.lists(st.integers(1, 4), min_size=1, max_size=3)
F64 = torch.float64


def random_probs(weights_per_layer, num_tasks, generator):
    """Rows on the simplex, `(L, T, max K)` float64, exact zeros beyond K_l."""
    probs = torch.zeros(len(weights_per_layer), num_tasks, max(weights_per_layer), dtype=F64)
    for layer, size in enumerate(weights_per_layer):
        weights = torch.rand(num_tasks, size, generator=generator, dtype=F64) + 0.05
        probs[layer, :, :size] = weights / weights.sum(-1, keepdim=True)
    return probs


def random_distribution(weights_per_layer, num_tasks, seed=0, dtype=F64, min_probability=1e-3):
    probs = random_probs(weights_per_layer, num_tasks, generator_for(seed))
    return SearchDistribution(weights_per_layer, num_tasks, min_probability, probs, dtype)


def all_assignments(weights_per_layer, num_tasks):
    """Every assignment there is, `(S, L, T)`."""
    ranges = [range(size) for size in weights_per_layer for _ in range(num_tasks)]
    return torch.tensor(list(itertools.product(*ranges))).view(-1, len(weights_per_layer), num_tasks)


def padding_of(distribution):
    numbers = torch.arange(distribution.probs.shape[-1])
    return numbers >= torch.tensor(distribution.weights_per_layer)[:, None, None].expand(-1, distribution.num_tasks, 1)


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
    """Draws are given instead of random."""

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
    distribution.restore(short.expand(2, 1, 4))
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
    """In the paper's parameters: of each categorical, the probabilities of all copies but the last."""
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
    with pytest.raises(ValueError, match="does not fit"):
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
    distribution.restore(torch.tensor([[[0.5, 1.5]]]))
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
    """The whole search on a problem whose answer is known: each task is best with a copy of its own."""
    distribution = SearchDistribution([3, 2], 2)
    target = torch.tensor([[0, 2], [1, 0]])
    for step in range(600):
        population = distribution.sample(8, generator_for(0, step))
        losses = (population != target).sum((1, 2)).float()
        distribution.update(population, rank_utilities(losses), 0.1)
    assert distribution.mode().equal(target)
    assert distribution.normalized_entropy().max() < 0.2


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
    distribution.restore(before)
    assert distribution.probs.equal(before)


def test_has_no_parameters_and_no_gradients():
    distribution = random_distribution([3], 2)
    assert list(distribution.parameters()) == []
    distribution.update(distribution.sample(2, generator_for(0)), torch.ones(2, requires_grad=True), 0.5)
    assert not distribution.probs.requires_grad
