"""A population's forward pass against a plain double loop."""

import copy

import pytest
import torch
from hypothesis import given
from random_networks import PROPERTY, cases
from torch import nn
from torch.nn import functional as F

from benchmarks.plain_loop import PlainLoop
from lws_lightning.networks import BaseLayer, BaseNetwork, build_network, he_uniform_, make_multi_task_network

CLOSE = {"rtol": 0, "atol": 1e-10}


def losses_of(logits, labels):
    rows = [
        torch.stack([F.cross_entropy(sample, task_labels) for sample in task_logits])
        for task_logits, task_labels in zip(logits, labels, strict=True)
    ]
    return torch.stack(rows, dim=1)


def gradients(network):
    return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in network.named_parameters()}


def assert_all_close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], **CLOSE, msg=lambda m, name=name: f"{name}: {m}")


class _MeanOfVisits:
    """Averages the statistics of a batch normalisation's visits, like `running_stats: mean`."""

    def __init__(self, norm):
        self.norm, self.means, self.variances = norm, [], []
        self.start = norm.running_mean.clone(), norm.running_var.clone()
        norm.register_forward_pre_hook(self._see)

    def _see(self, norm, inputs):
        dims = [d for d in range(inputs[0].dim()) if d != 1]
        self.means.append(inputs[0].detach().mean(dims))
        self.variances.append(inputs[0].detach().var(dims))

    def expected(self):
        if not self.means:
            return self.start
        momentum = self.norm.momentum
        seen = torch.stack(self.means).mean(0), torch.stack(self.variances).mean(0)
        return tuple((1 - momentum) * old + momentum * new for old, new in zip(self.start, seen, strict=True))


def plain_norms(loop):
    return [m for m in loop.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


@PROPERTY
@given(cases())
def test_training_pass_is_the_plain_loop(case):
    network, loop = case.network.train(), PlainLoop(case.network).train()
    network.set_running_stats("per_visit")
    ours = losses_of(network(case.images, case.population), case.labels)
    plain = losses_of(loop(case.images, case.population), case.labels)
    torch.testing.assert_close(ours, plain, **CLOSE)
    ours.mean().backward()
    plain.mean().backward()
    assert_all_close(gradients(network), gradients(loop.network))
    network.commit_running_stats()
    for norm, expected in zip(network.norms(), plain_norms(loop), strict=True):
        torch.testing.assert_close(norm.running_mean, expected.running_mean, **CLOSE)
        torch.testing.assert_close(norm.running_var, expected.running_var, **CLOSE)


@PROPERTY
@given(cases())
def test_running_statistics_move_towards_the_mean_over_visits(case):
    network, loop = case.network.train(), PlainLoop(case.network).train()
    oracles = [_MeanOfVisits(norm) for norm in plain_norms(loop)]
    before = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in network.norms()]
    network(case.images, case.population)
    for norm, (mean, variance) in zip(network.norms(), before, strict=True):  # not before commit
        assert torch.equal(norm.running_mean, mean)
        assert torch.equal(norm.running_var, variance)
    loop(case.images, case.population)
    network.commit_running_stats()
    for norm, oracle in zip(network.norms(), oracles, strict=True):
        mean, variance = oracle.expected()
        torch.testing.assert_close(norm.running_mean, mean, **CLOSE)
        torch.testing.assert_close(norm.running_var, variance, **CLOSE)


@PROPERTY
@given(cases())
def test_evaluation_pass_is_the_plain_loop_and_the_tasks_own_networks(case):
    network, loop = case.network.eval(), PlainLoop(case.network).eval()
    state = copy.deepcopy(network.state_dict())
    with torch.no_grad():
        ours, plain = network(case.images, case.population), loop(case.images, case.population)
        for task, (mine, expected) in enumerate(zip(ours, plain, strict=True)):
            torch.testing.assert_close(mine, expected, **CLOSE)
            for assignment, logits in zip(case.population, mine, strict=True):
                torch.testing.assert_close(network.forward_task(case.images[task], assignment, task), logits, **CLOSE)
    network.commit_running_stats()
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())


@PROPERTY
@given(cases())
def test_gradients_in_evaluation_mode_and_for_some_of_the_tasks(case):
    network, loop = case.network.eval(), PlainLoop(case.network).eval()
    tasks = list(range(len(case.labels)))[::-1][:2]
    images, population, labels = case.images[tasks], case.population[:, :, tasks], case.labels[tasks]
    ours = losses_of(network(images, population, tasks), labels)
    plain = losses_of([loop(case.images, case.population)[task] for task in tasks], labels)
    torch.testing.assert_close(ours, plain, **CLOSE)
    ours.sum().backward()
    plain.sum().backward()
    assert_all_close(gradients(network), gradients(loop.network))


def dkl(seed=0, copies=3):
    return make_multi_task_network(build_network("dkl_convnet", (1, 28, 28)), [10, 26, 10], [copies] * 4, seed)


def population_of(network, size=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(k, (size, 3), generator=generator) for k in network.weights_per_layer], dim=1)


def test_float32_agrees_with_the_plain_loop():
    network = dkl()
    loop, images, population = PlainLoop(network), torch.rand(3, 4, 1, 28, 28), population_of(network)
    for one, other in zip(network(images, population), loop(images, population), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_one_backward_is_the_sum_of_three():
    network, images = dkl().double(), torch.rand(3, 4, 1, 28, 28, dtype=torch.float64)
    populations = population_of(network, size=3).split(1)
    sum(output.sum() for p in populations for output in network(images, p)).backward()
    together = {name: gradient.clone() for name, gradient in gradients(network).items()}
    network.zero_grad()
    for population in populations:
        sum(output.sum() for output in network(images, population)).backward()
    assert_all_close(together, gradients(network))


def test_autocast_keeps_statistics_in_float32():
    network, population = dkl(), None
    population = population_of(network)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = network(torch.rand(3, 4, 1, 28, 28), population)
    sum(output.float().sum() for output in outputs).backward()
    network.commit_running_stats()
    assert {norm.running_var.dtype for norm in network.norms()} == {torch.float32}
    assert all(bool(torch.isfinite(norm.running_var).all()) for norm in network.norms())
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients(network).values())


def test_discarded_statistics_never_arrive():
    network = dkl()
    before = [norm.running_mean.clone() for norm in network.norms()]
    network(torch.rand(3, 4, 1, 28, 28), population_of(network))
    network.discard_running_stats()
    network.commit_running_stats()
    assert all(torch.equal(norm.running_mean, old) for norm, old in zip(network.norms(), before, strict=True))


def test_a_frozen_batch_normalisation_uses_and_keeps_its_statistics():
    network = dkl().double()
    for norm in network.norms():
        norm.eval()
    loop = PlainLoop(network)
    images, population = torch.rand(3, 4, 1, 28, 28, dtype=torch.float64), population_of(network)
    for one, other in zip(network(images, population), loop(images, population), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    network.commit_running_stats()
    assert all(not norm.running_mean.any() for norm in network.norms())


def test_evaluating_restores_every_mode_after_an_error():
    network = dkl()
    frozen = next(iter(network.norms())).eval()
    with pytest.raises(RuntimeError, match="within"), network.evaluating():
        _fail_in_evaluation_mode(network)
    assert [module for module in network.modules() if not module.training] == [frozen]


def _fail_in_evaluation_mode(network):
    assert not any(module.training for module in network.modules())
    raise RuntimeError("within")


def test_hooks_of_users_fire():
    network, seen = dkl(), []
    relu = network.layers[0].copies[1][2]
    relu.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    network(torch.rand(3, 4, 1, 28, 28), torch.ones(2, 4, 3, dtype=torch.int64))
    assert seen == [(12, 32, 28, 28)]


def test_parameters_in_use_by_hand():
    network = dkl()
    conv = [1 * 9 * 32 + 64, 32 * 9 * 32 + 64, 32 * 9 * 32 + 64]
    dense, heads = 288 * 128 + 128, 129 * (10 + 26 + 10)
    assert network.parameters_in_use(torch.zeros(4, 3, dtype=torch.int64)) == sum(conv) + dense + heads
    own = torch.arange(3).expand(4, 3)
    assert network.parameters_in_use(own) == 3 * (sum(conv) + dense) + heads
    mixed = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 2], [2, 2, 1]])
    assert network.parameters_in_use(mixed) == conv[0] + 2 * conv[1] + 3 * conv[2] + 2 * dense + heads


def test_initial_weights_depend_on_seed_layer_and_copy_alone():
    few, many, other = dkl(copies=2), dkl(copies=5), dkl(seed=1, copies=2)
    for layer in range(4):
        for number in range(2):
            one, two = few.layers[layer].copies[number], many.layers[layer].copies[number]
            assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(few.layers[1].copies[0][0].weight, few.layers[1].copies[1][0].weight)
    assert not torch.equal(few.layers[1].copies[0][0].weight, other.layers[1].copies[0][0].weight)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(few.heads, many.heads, strict=True))


def test_layers_that_are_common_are_in_no_assignment():
    blocks = [nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), nn.Linear(4, 4), nn.Linear(4, 4)]
    layers = [BaseLayer(str(i), block, learned=i == 1) for i, block in enumerate(blocks)]
    network = make_multi_task_network(
        BaseNetwork(layers, lambda classes: nn.Linear(4, classes), 0, he_uniform_), [2, 3], [5], 0
    )
    assert network.weights_per_layer == [5]
    outputs = network(torch.rand(2, 3, 1, 4, 4), torch.tensor([[[0, 4]], [[3, 4]]]))
    assert [output.shape for output in outputs] == [(2, 3, 2), (2, 3, 3)]
    with pytest.raises(ValueError, match=r"weights_per_layer has 2 entries.*1"):
        make_multi_task_network(BaseNetwork(layers, nn.Identity, 0, he_uniform_), [2, 3], [5, 5], 0)


@pytest.mark.parametrize(
    ("population", "message"),
    [
        (torch.zeros(2, 3, 3, dtype=torch.int64), "4 learned layers"),
        (torch.zeros(2, 4, 2, dtype=torch.int64), "3 tasks"),
        (torch.full((2, 4, 3), -1), "outside"),
        (torch.full((2, 4, 3), 3), "outside"),
    ],
)
def test_a_population_that_does_not_fit_is_refused(population, message):
    with pytest.raises(ValueError, match=message):
        dkl()(torch.rand(3, 2, 1, 28, 28), population)


def test_weight_sets_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="at least one copy"):
        dkl(copies=0)
    layers = [BaseLayer("odd", nn.Sequential(nn.Conv2d(1, 2, 3), nn.SyncBatchNorm(2), nn.Flatten()))]
    with pytest.raises(ValueError, match="SyncBatchNorm would normalise"):
        make_multi_task_network(BaseNetwork(layers, nn.Identity, 0, he_uniform_), [2], [2], 0)
