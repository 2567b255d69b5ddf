"""Joint and per-task credit (docs/algorithm.md, "Credit"), by enumeration of all assignments of a tiny space."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution, rank_utilities

F64 = torch.float64


def space(weights_per_layer, num_tasks, seed):
    """A distribution, all assignments with their probabilities, and a loss for each task's choices."""
    generator = generator_for(seed)
    layers, widest = len(weights_per_layer), max(weights_per_layer)
    probs = torch.rand(layers, num_tasks, widest, generator=generator, dtype=F64) + 0.1
    probs *= torch.arange(widest) < torch.tensor(weights_per_layer)[:, None, None]
    distribution = SearchDistribution(weights_per_layer, num_tasks, 0.0).double()
    distribution.restore({"probs": probs / probs.sum(-1, keepdim=True)})  # the constructor rounds to float32
    choices = [range(size) for size in weights_per_layer for _ in range(num_tasks)]
    population = torch.tensor(list(itertools.product(*choices))).view(-1, layers, num_tasks)
    place = torch.zeros(len(population), num_tasks, dtype=torch.int64)
    for layer, size in enumerate(weights_per_layer):
        place = place * size + population[:, layer]
    tables = torch.randn(num_tasks, int(place.max()) + 1, generator=generator, dtype=F64)
    losses = torch.stack([tables[task, place[:, task]] for task in range(num_tasks)], 1)
    return distribution, population, distribution.log_prob(population).exp(), losses


def estimates(distribution, population, losses):
    """The gradient estimate of each single assignment, `(S, L, T, K)`, with joint and with per-task credit."""
    tasks = losses.shape[1]
    joint = [distribution.natural_gradient(a[None], f[None]) for a, f in zip(population, losses.mean(1), strict=True)]
    own = [distribution.natural_gradient(a[None], f[None] / tasks) for a, f in zip(population, losses, strict=True)]
    return torch.stack(joint), torch.stack(own)


def moments(probabilities, values):
    mean = torch.einsum("s,s...->...", probabilities, values)
    return mean, torch.einsum("s,s...->...", probabilities, (values - mean) ** 2)


SPACES = pytest.mark.parametrize(
    ("sizes", "tasks"), [([2], 2), ([3], 2), ([2, 2], 2), ([2], 4), ([1, 3], 2), ([2, 1], 3)]
)


@SPACES
def test_both_credits_expect_the_same_gradient(sizes, tasks):
    distribution, population, probabilities, losses = space(sizes, tasks, 0)
    joint, own = estimates(distribution, population, losses)
    torch.testing.assert_close(moments(probabilities, joint)[0], moments(probabilities, own)[0], rtol=0, atol=1e-12)


@SPACES
@pytest.mark.parametrize("seed", range(3))
def test_per_task_credit_varies_less_for_centred_losses(sizes, tasks, seed):
    distribution, population, probabilities, losses = space(sizes, tasks, seed)
    losses -= probabilities @ losses
    joint, own = (moments(probabilities, values)[1] for values in estimates(distribution, population, losses))
    assert bool((own <= joint + 1e-12).all())
    assert float(own.sum()) < 0.9 * float(joint.sum())


@SPACES
def test_the_difference_of_the_variances(sizes, tasks):
    distribution, population, probabilities, losses = space(sizes, tasks, 7)
    joint, own = (moments(probabilities, values)[1] for values in estimates(distribution, population, losses))
    one_hot = torch.nn.functional.one_hot(population, max(sizes)).to(F64)
    squared = (one_hot - distribution.probs) ** 2
    for task in range(tasks):
        rest = losses.sum(1) - losses[:, task]
        expected = (probabilities @ rest**2) * moments(probabilities, squared[:, :, task])[0]
        expected += (
            2 * (probabilities @ rest) * moments(probabilities, losses[:, task, None, None] * squared[:, :, task])[0]
        )
        torch.testing.assert_close(joint[:, task] - own[:, task], expected / tasks**2, rtol=0, atol=1e-12)


def test_without_centring_joint_credit_can_vary_less():
    distribution, population, probabilities, losses = space([2], 2, 0)
    losses[:, 0], losses[:, 1] = 1.0, -1.0
    joint, own = (moments(probabilities, values)[1] for values in estimates(distribution, population, losses))
    assert float(joint.max()) == 0
    assert float(own.min()) > 0


@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 1000), st.floats(1e-3, 1e3))
def test_per_task_utilities_know_nothing_of_other_tasks(size, tasks, seed, scale):
    losses = torch.randn(size, tasks, generator=generator_for(seed), dtype=F64)
    changed = losses.clone()
    changed[:, 1:] *= scale
    assert rank_utilities(losses).equal(rank_utilities(changed))
    assert rank_utilities(losses)[:, 0].equal(rank_utilities(losses[:, 0]))


def test_after_ranking_the_objectives_differ():
    # Task 1 has the larger losses: the joint ranks are its own, whatever task 0 says.
    losses = torch.tensor([[1.0, 10.0], [0.5, 20.0], [0.0, 30.0]], dtype=F64)
    assert rank_utilities(losses.mean(1)).tolist() == [1.0, 0.0, -1.0]
    assert rank_utilities(losses).tolist() == [[-1.0, 1.0], [0.0, 0.0], [1.0, -1.0]]
