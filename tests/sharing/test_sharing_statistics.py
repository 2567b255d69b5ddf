"""Running statistics of batch normalisation, against torch's modules visit by visit."""

import copy

import pytest
import torch
from torch import nn
from torch_loop import CLOSE, POPULATION, TASKS, assert_same_step, batch, conv_block, flat_head, pair

from lws_lightning.sharing import CommonLayer, MultiTaskNetwork, TaskBatchNorm


@pytest.mark.parametrize("momentum", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_momentum_and_eps(momentum, eps):
    assert_same_step(*pair([conv_block(momentum=momentum, eps=eps)], flat_head()), batch(4, 2, 8, 8))


def test_mean_does_not_depend_on_the_order_of_assignments_and_tasks():
    network, _ = pair([conv_block()], flat_head())
    other, images = copy.deepcopy(network), batch(4, 2, 8, 8)
    network(images, POPULATION)
    other(images.flip(0), POPULATION.flip(0, 2), tasks=[2, 1, 0])
    for one in (network, other):
        one.commit_running_stats()
    for mine, theirs in zip(network.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_per_visit_lets_the_last_tasks_dominate():
    """With 50 visits, the last ten contribute 65 % of the update (PyTorch's momentum, 0.1)."""
    network = MultiTaskNetwork([CommonLayer(TaskBatchNorm(1, momentum=0.1))], [nn.Identity() for _ in range(50)])
    network.set_running_stats("per_visit")
    images = torch.randn(50, 4, 1)
    images[:40] -= images[:40].mean(1, keepdim=True)
    images[40:] += 1 - images[40:].mean(1, keepdim=True)
    network(images, torch.zeros(1, 0, 50, dtype=torch.int64))
    network.commit_running_stats()
    assert next(network.norms()).running_mean.item() == pytest.approx(1 - 0.9**10)


def test_cumulative_average_over_steps():
    """`momentum=None` is torch's cumulative average; here over steps, each the mean of its visits."""
    network, _ = pair([nn.Sequential(nn.BatchNorm1d(2, momentum=None))], lambda: nn.Linear(2, 2), [1])
    means = []
    for seed in range(3):
        images = batch(5, 2, seed=seed)
        network(images, torch.zeros(1, 0, TASKS, dtype=torch.int64))
        network.commit_running_stats()
        means.append(images.mean((0, 1)))
    torch.testing.assert_close(next(network.norms()).running_mean, torch.stack(means).mean(0))


def test_a_pass_is_committed_once_and_a_discarded_one_never():
    network, _ = pair([conv_block()], flat_head())
    once = copy.deepcopy(network)
    first, last = batch(4, 2, 8, 8, seed=1), batch(4, 2, 8, 8, seed=2)
    network(first, POPULATION)
    network.discard_running_stats()
    network(last, POPULATION)
    network.commit_running_stats()
    network.commit_running_stats()
    once(last, POPULATION)
    once.commit_running_stats()
    for mine, theirs in zip(network.buffers(), once.buffers(), strict=True):
        assert torch.equal(mine, theirs)


def test_evaluation_between_pass_and_commit_changes_nothing():
    network, _ = pair([conv_block()], flat_head())
    undisturbed = copy.deepcopy(network)
    for one in (network, undisturbed):
        one(batch(4, 2, 8, 8), POPULATION)
    with torch.no_grad(), network.evaluating():
        network(batch(4, 2, 8, 8, seed=5), POPULATION)
        network.forward_task(batch(4, 2, 8, 8, seed=6)[0], POPULATION[0], 0)
    for one in (network, undisturbed):
        one.commit_running_stats()
    for mine, theirs in zip(network.buffers(), undisturbed.buffers(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_normalisation_without_running_statistics(training, grad):
    """Such a module uses batch statistics in eval mode, too; they must be separate for each task."""
    block = nn.Sequential(*conv_block(track_running_stats=False), nn.Flatten(), nn.Linear(48, 4))
    block.append(nn.BatchNorm1d(4, track_running_stats=False))
    network, loop = pair([block], lambda: nn.Linear(4, 2))
    network.train(training)
    loop.modules.train(training)
    images = batch(4, 2, 8, 8)
    with torch.set_grad_enabled(grad):
        ours, plain = torch.stack(network(images, POPULATION), dim=1), loop(images, POPULATION)
    torch.testing.assert_close(ours, plain, **CLOSE)
    network.commit_running_stats()


def test_some_normalisations_frozen():
    """Only some copies of a block use their running statistics."""
    network, loop = pair([conv_block()], flat_head())
    for modules in (network, loop.modules):
        modules.get_submodule("layers.0.copies.1.1").eval()
    assert_same_step(network, loop, batch(4, 2, 8, 8))
    with torch.no_grad():
        ours, plain = network(batch(4, 2, 8, 8), POPULATION), loop(batch(4, 2, 8, 8), POPULATION)
    torch.testing.assert_close(torch.stack(ours, 1), plain, **CLOSE)


def test_an_error_within_a_pass_leaves_no_trace():
    network, loop = pair([conv_block()], flat_head())
    with pytest.raises(RuntimeError):
        network(batch(4, 5, 8, 8), POPULATION)
    assert_same_step(network, loop, batch(4, 2, 8, 8))


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_statistics_of_constant_images_stay_usable(offset):
    """The variance is recovered from the inverse standard deviation, and must not come out far below zero."""
    network, _ = pair([nn.Sequential(nn.BatchNorm2d(2, momentum=1.0))], flat_head(128), [1])
    network.float()
    network(torch.full((TASKS, 4, 2, 8, 8), offset), torch.zeros(1, 0, TASKS, dtype=torch.int64))
    network.commit_running_stats()
    (norm,) = network.norms()
    assert norm.running_var.abs().max() < 1e-6
    with torch.no_grad(), network.evaluating():
        outputs = network(torch.full((TASKS, 4, 2, 8, 8), offset), torch.zeros(1, 0, TASKS, dtype=torch.int64))
    assert all(bool(torch.isfinite(output).all()) for output in outputs)


@pytest.mark.parametrize("running_stats", ["mean", "per_visit", "per_task"])
def test_autocast_does_not_round_what_normalisations_of_float32_have_seen(running_stats):
    images = torch.randn(3, 16, 5)
    seen = []
    for enabled in (False, True):
        network = MultiTaskNetwork([CommonLayer(TaskBatchNorm(5))], [nn.Identity() for _ in range(3)])
        network.set_running_stats(running_stats)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            network(images, torch.zeros(2, 0, 3, dtype=torch.int64))
        network.commit_running_stats()
        norm = next(network.norms())
        seen.append((norm.running_mean, norm.running_var))
    for without, under in zip(*seen, strict=True):
        assert torch.equal(without, under)
