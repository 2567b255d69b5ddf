"""A population in several passes against a single pass and against a plain loop."""

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_networks import PROPERTY, cases
from torch.nn import functional as F

from benchmarks.plain_loop import PlainLoop
from lws_lightning.sharing import plan_population, split_population

CLOSE = {"rtol": 0, "atol": 1e-10}


@st.composite
def populations(draw):
    size, tasks = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    copies = draw(st.lists(st.integers(1, 4), min_size=0, max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    rows = [torch.randint(count, (size, tasks), generator=generator) for count in copies]
    return torch.stack(rows, dim=1) if rows else torch.zeros(size, 0, tasks, dtype=torch.int64)


def chain_of(population):
    """A chain with common layers around the learned ones."""
    return [None, *range(population.shape[1]), None]


def widest(population, population_pass=None):
    return max(
        len(layer.parents) for layer in plan_population(population, chain_of(population), population_pass).layers
    )


@settings(deadline=None, max_examples=200)
@given(populations(), st.integers(1, 4), st.integers(0, 40))
def test_passes_hold_everything_once_and_stay_within_the_bound(population, batch_size, more):
    bound = batch_size + more
    passes = split_population(population, batch_size, bound)
    pairs = [(task, row) for part in passes for task in part.tasks for row in part.rows]
    assert sorted(pairs) == list(itertools.product(range(population.shape[2]), range(len(population))))
    for part in passes:
        assert widest(population, part) * batch_size <= bound
        assert list(part.rows) == sorted(part.rows)


@settings(deadline=None, max_examples=100)
@given(populations(), st.integers(1, 12))
def test_neighbouring_passes_would_not_fit_together(population, bound):
    passes = split_population(population, 1, bound)
    whole = [part for part in passes if len(part.rows) == len(population)]
    for one, other in itertools.pairwise(whole):
        if one.tasks.stop == other.tasks.start:
            together = population[:, :, one.tasks.start : other.tasks.start + 1]
            assert widest(together) > bound


@settings(deadline=None, max_examples=100)
@given(populations(), st.integers(1, 6))
def test_passes_compute_no_leaf_twice(population, bound):
    computed = [widest(population, part) for part in split_population(population, 1, bound)]
    assert sum(computed) == widest(population)


def test_tasks_first_then_assignments_with_common_prefixes():
    wide, narrow = [[0, 0], [1, 0], [0, 1], [1, 1], [0, 0]], [[2, 2]] * 5
    population = torch.tensor([wide, narrow, narrow, wide]).permute(1, 2, 0)
    passes = split_population(population, 16, 32)
    assert [(list(part.tasks), part.rows) for part in passes] == [
        ([0], (0, 2, 4)),
        ([0], (1, 3)),
        ([1, 2], (0, 1, 2, 3, 4)),
        ([3], (0, 2, 4)),
        ([3], (1, 3)),
    ]
    assert len(split_population(population, 16, 160)) == 1
    assert [list(part.tasks) for part in split_population(population, 16, 159)] == [[0, 1, 2], [3]]
    assert split_population(population, 16, None) == split_population(population, 16, 10**9)


@pytest.mark.parametrize("bound", [15, 0, -1])
def test_a_bound_below_one_batch_is_refused(bound):
    with pytest.raises(ValueError, match=rf"max_images_per_pass is {bound}.*batch size, 16.*data\.batch_size"):
        split_population(torch.zeros(2, 1, 3, dtype=torch.int64), 16, bound)


@settings(deadline=None, max_examples=100)
@given(populations(), st.integers(1, 6))
def test_visits_of_all_passes_are_those_of_the_plain_loop(population, bound):
    chain = chain_of(population)
    seen = [{} for _ in chain]  # by copy: the numbers of its visits, and their (task, prefix)
    for part in split_population(population, 1, bound):
        plan = plan_population(population, chain, part)
        for layer, found in zip(plan.layers, seen, strict=True):
            for number_of_copy, own in zip(layer.copies, layer.nodes, strict=True):
                found.setdefault(number_of_copy, []).extend((number, own.total) for number in own.numbers.tolist())
    for index, found in zip(chain, seen, strict=True):
        copies = torch.zeros_like(population.sum(1)) if index is None else population[:, index]
        for number_of_copy, count in zip(*copies.unique(return_counts=True), strict=True):
            assert sorted(found.pop(int(number_of_copy))) == [(number, int(count)) for number in range(count)]
        assert not found


def losses_of(logits, labels):
    rows = [
        torch.stack([F.cross_entropy(sample, task_labels) for sample in task_logits])
        for task_logits, task_labels in zip(logits, labels, strict=True)
    ]
    return torch.stack(rows, dim=1)


def run_in_passes(network, case, bound):
    """Losses `(S, T)`; accumulates gradients pass by pass."""
    losses = torch.zeros(len(case.population), len(case.labels), dtype=torch.float64)
    for part in split_population(case.population, case.images.shape[1], bound):
        columns = slice(part.tasks.start, part.tasks.stop)
        found = losses_of(network(case.images, case.population, population_pass=part), case.labels[columns])
        (found.sum() / losses.numel()).backward()
        losses[list(part.rows), columns] = found.detach()
    return losses


def gradients(network):
    return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in network.named_parameters()}


def assert_all_close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], **CLOSE, msg=lambda m, name=name: f"{name}: {m}")


@PROPERTY
@given(cases(), st.integers(0, 30), st.sampled_from(["mean", "per_visit"]))
def test_several_passes_are_one(case, more, running_stats):
    network = case.network.train()
    network.set_running_stats(running_stats)
    start = {name: value.clone() for name, value in network.state_dict().items()}
    losses = losses_of(network(case.images, case.population), case.labels)
    losses.mean().backward()
    network.commit_running_stats()
    expected_gradients = {name: gradient.clone() for name, gradient in gradients(network).items()}
    expected = {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(start)
    network.zero_grad()
    in_passes = run_in_passes(network, case, case.images.shape[1] + more)
    assert all(torch.equal(value, start[name]) for name, value in network.state_dict().items())  # not before commit
    network.commit_running_stats()
    torch.testing.assert_close(in_passes, losses.detach(), **CLOSE)
    assert_all_close(gradients(network), expected_gradients)
    assert_all_close(dict(network.state_dict()), expected)  # num_batches_tracked too


@PROPERTY
@given(cases(), st.sampled_from(["mean", "per_visit", "per_task"]))
def test_statistics_of_passes_on_two_processes_add_up(case, running_stats):
    """Each process runs every other pass; the sum of their statistics is that of one process that runs all."""
    whole = case.network.train()
    whole.set_running_stats(running_stats)
    one, other = copy.deepcopy(whole), copy.deepcopy(whole)
    bound = case.images.shape[1]
    for number, part in enumerate(split_population(case.population, bound, bound)):
        for network in (whole, other if number % 2 else one):
            network(case.images, case.population, population_pass=part)
    for ours, theirs in zip(one.norms(), other.norms(), strict=True):
        ours.replace_pending(ours.pending(1.0) + theirs.pending(1.0))
    one.commit_running_stats()
    whole.commit_running_stats()
    assert_all_close(dict(one.state_dict()), dict(whole.state_dict()))  # num_batches_tracked too


@PROPERTY
@given(cases(), st.integers(0, 30))
def test_several_passes_are_the_plain_loop(case, more):
    network, loop = case.network.train(), PlainLoop(case.network).train()
    network.set_running_stats("per_visit")
    plain = losses_of(loop(case.images, case.population), case.labels)
    plain.mean().backward()
    losses = run_in_passes(network, case, case.images.shape[1] + more)
    network.commit_running_stats()
    torch.testing.assert_close(losses, plain.detach(), **CLOSE)
    assert_all_close(gradients(network), gradients(loop.network))
    norms = [m for m in loop.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for norm, expected in zip(network.norms(), norms, strict=True):
        torch.testing.assert_close(norm.running_mean, expected.running_mean, **CLOSE)
        torch.testing.assert_close(norm.running_var, expected.running_var, **CLOSE)


@PROPERTY
@given(cases(), st.integers(0, 30))
def test_parts_of_some_of_the_tasks(case, more):
    network = case.network.eval()
    tasks = list(range(len(case.labels)))[::-1][:2]
    images, population = case.images[tasks], case.population[:, :, tasks]
    with torch.no_grad():
        expected = network(images, population, tasks)
        for part in split_population(population, images.shape[1], images.shape[1] + more):
            found = network(images, population, tasks, part)
            for task, logits in zip(part.tasks, found, strict=True):
                torch.testing.assert_close(logits, expected[task][list(part.rows)], **CLOSE)


@PROPERTY
@given(cases())
def test_a_pass_that_was_discarded_leaves_nothing(case):
    network = case.network.train()
    start = {name: value.clone() for name, value in network.state_dict().items()}
    bound = case.images.shape[1]
    network(case.images, case.population, population_pass=split_population(case.population, bound, bound)[0])
    network.discard_running_stats()
    network.commit_running_stats()
    assert all(torch.equal(value, start[name]) for name, value in network.state_dict().items())
