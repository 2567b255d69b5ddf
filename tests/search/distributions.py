"""Search distributions shared by the tests, and all assignments of a small space."""

import itertools

import torch
from hypothesis import settings
from hypothesis import strategies as st

from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution

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
    """All assignments, `(S, L, T)`."""
    ranges = [range(size) for size in weights_per_layer for _ in range(num_tasks)]
    return torch.tensor(list(itertools.product(*ranges))).view(-1, len(weights_per_layer), num_tasks)


def padding_of(distribution):
    numbers = torch.arange(distribution.probs.shape[-1])
    return numbers >= torch.tensor(distribution.weights_per_layer)[:, None, None].expand(-1, distribution.num_tasks, 1)
