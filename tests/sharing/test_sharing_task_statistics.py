"""Running statistics per task, against one plain network per task."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_networks import PROPERTY, cases
from torch import nn
from torch_loop import POPULATION, TASKS, batch, conv_block, flat_head, pair

from lws_lightning.sharing import split_population, standalone_network
from lws_lightning.sharing.batch_norm import restore_batch_norms

CLOSE = {"rtol": 0, "atol": 1e-10}


class TasksAlone:
    """Torch's modules of all copies for each task, whose normalisations average over a step."""

    def __init__(self, network):
        self.tasks = range(len(network.heads))
        self.networks = [restore_batch_norms(copy.deepcopy(network), task=0).train() for _ in self.tasks]
        self.norms = [[m for m in n.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)] for n in self.networks]
        self.momenta = {norm: norm.momentum for norms in self.norms for norm in norms}
        self.seen = {norm: [] for norm in self.momenta}
        self.moves = {norm: int(norm.num_batches_tracked) for norm in self.momenta}
        for norm in self.momenta:
            norm.momentum = 0.0
            norm.register_forward_pre_hook(self._see)

    def _see(self, norm, inputs):
        if norm.training:
            dims = [d for d in range(inputs[0].dim()) if d != 1]
            self.seen[norm].append((inputs[0].detach().mean(dims), inputs[0].detach().var(dims)))

    def __call__(self, images, population):
        rows = [[self._visit(images[t], assignment, t) for t in self.tasks] for assignment in population]
        return [torch.stack([row[task] for row in rows]) for task in self.tasks]

    def _visit(self, images, assignment, task):
        for module in self.networks[task].task_modules(assignment, task):
            images = module(images)
        return images

    def commit(self):
        for norm, seen in self.seen.items():
            if seen:
                momentum = max(self.momenta[norm], 1 / (self.moves[norm] + 1))
                for buffer, values in zip((norm.running_mean, norm.running_var), zip(*seen, strict=True), strict=True):
                    buffer.mul_(1 - momentum).add_(momentum * torch.stack(values).mean(0))
                self.moves[norm] += 1
            seen.clear()


def trained(case, steps=3, bound=None):
    """A network and its oracle after some training passes on changing images under changing assignments."""
    network = case.network.train()
    oracle = TasksAlone(network)
    network.set_running_stats("per_task")
    for step in range(steps):
        images, population = case.images * (step + 1) - step / 3, case.population.roll(step, 2)
        parts = [None] if bound is None else split_population(population, images.shape[1], bound)
        outputs = [network(images, population, population_pass=part) for part in parts]
        expected = oracle(images, population)
        if bound is None:
            for ours, plain in zip(outputs[0], expected, strict=True):
                torch.testing.assert_close(ours, plain, **CLOSE)
        network.commit_running_stats()
        oracle.commit()
    return network, oracle


def assert_same_statistics(network, oracle):
    in_heads = {norm for head in network.heads for norm in head.modules()}
    for index, norm in enumerate(network.norms()):
        if norm in in_heads:
            continue
        for task in oracle.tasks:
            plain = oracle.norms[task][index]
            torch.testing.assert_close(norm.running_mean[task], plain.running_mean, **CLOSE)
            torch.testing.assert_close(norm.running_var[task], plain.running_var, **CLOSE)
            assert norm.num_batches_tracked[task] == oracle.moves[plain]


@PROPERTY
@given(cases())
def test_each_task_moves_its_own_statistics(case):
    assert_same_statistics(*trained(case))


@PROPERTY
@given(cases(), st.integers(0, 30))
def test_in_several_passes_too(case, more):
    assert_same_statistics(*trained(case, bound=case.images.shape[1] + more))


@PROPERTY
@given(cases())
def test_evaluation_is_that_of_each_tasks_own_network(case):
    network, oracle = trained(case)
    network.eval()
    for plain in oracle.networks:
        plain.eval()
    with torch.no_grad():
        found, expected = network(case.images, case.population), oracle(case.images, case.population)
    in_training = [logits.detach() for logits in network(case.images, case.population)]  # with gradients, not fused
    for task, (ours, plain) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(ours, plain, **CLOSE)
        torch.testing.assert_close(in_training[task], plain, **CLOSE)
        alone = network.forward_task(case.images[task], case.population[0], task)
        torch.testing.assert_close(alone, plain[0], **CLOSE)
        modules = network.task_modules(case.population[0], task)
        chain = standalone_network(modules, [str(number) for number in range(len(modules))], task)
        assert not any("lws_lightning" in type(part).__module__ for part in chain.modules())
        torch.testing.assert_close(chain.double()(case.images[task]), plain[0], rtol=1e-4, atol=1e-4)  # from float32


@PROPERTY
@given(cases())
def test_some_of_the_tasks(case):
    network, _ = trained(case)
    tasks = [len(network.heads) - 1]
    with torch.no_grad(), network.evaluating():
        expected = network(case.images, case.population)[tasks[0]]
        found = network(case.images[tasks], case.population[:, :, tasks], tasks)[0]
    torch.testing.assert_close(found, expected, **CLOSE)


@PROPERTY
@given(cases(), st.floats(0.1, 2))
def test_what_two_processes_have_seen_adds_up(case, weight):
    """The sum of two processes' `pending` commits what one process with both batches commits."""
    network, _ = trained(case, steps=1)
    whole, other = copy.deepcopy(network), copy.deepcopy(network)
    bound = case.images.shape[1]
    parts = split_population(case.population, bound, bound)
    networks = [network if number % 2 else other for number in range(len(parts))]
    for part, own in zip(parts, networks, strict=True):
        own(case.images, case.population, population_pass=part)
        whole(case.images, case.population, population_pass=part)
    for ours, theirs in zip(network.norms(), other.norms(), strict=True):
        ours.replace_pending(ours.pending(weight) + theirs.pending(weight))
    network.commit_running_stats()
    whole.commit_running_stats()
    in_heads = {id(norm) for head in network.heads for norm in head.modules()}
    for ours, expected in zip(network.norms(), whole.norms(), strict=True):
        if id(ours) not in in_heads:
            torch.testing.assert_close(ours.running_mean, expected.running_mean, **CLOSE)
            torch.testing.assert_close(ours.running_var, expected.running_var, **CLOSE)
            assert torch.equal(ours.num_batches_tracked, expected.num_batches_tracked)


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_copy_beside_one_in_training(frozen):
    """One uses its statistics and keeps them, the other does not, as when modules run one after the other."""
    network, _ = pair([conv_block()], flat_head())
    network.set_running_stats("per_task")
    norms = [block[1] for block in network.layers[0].copies]
    norms[frozen].eval()
    before = norms[frozen].running_mean.clone()
    one_by_one = copy.deepcopy(network)
    for block in one_by_one.layers[0].copies:
        block[1].register_forward_hook(lambda *_: None)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            found, expected = (each(batch(4, 2, 8, 8), POPULATION) for each in (network, one_by_one))
        torch.testing.assert_close(found, expected, **CLOSE)
    network.commit_running_stats()
    assert torch.equal(norms[frozen].running_mean, before)
    assert not torch.equal(norms[1 - frozen].running_mean, before)


def test_statistics_per_task_are_for_good():
    network, _ = pair([conv_block()], flat_head())
    for running_stats in ("per_task", "mean", "per_task"):
        network.set_running_stats(running_stats)
    assert {norm.running_mean.shape for norm in network.norms()} == {(TASKS, 3)}
    assert {norm.num_batches_tracked.shape for norm in network.norms()} == {(TASKS,)}


def test_a_module_alone_says_that_it_does_not_know_the_task():
    network, _ = pair([conv_block()], flat_head())
    network.set_running_stats("per_task")
    network.eval()
    with pytest.raises(ValueError, match="task_network"):
        network.layers[0].copies[0](batch(2, 2, 8, 8)[0])
