"""A network as a torch module: checkpoints, replaced modules, hooks, other precisions."""

import copy

import pytest
import torch
from torch import nn
from torch_loop import CLOSE, POPULATION, assert_same_step, batch, conv_block, flat_head, pair


def test_checkpoints_pass_between_the_network_and_torchs_modules():
    network, loop = pair([conv_block(), nn.Sequential(nn.Flatten(), nn.Linear(48, 4))], lambda: nn.Linear(4, 2))
    images, population = batch(4, 2, 8, 8), POPULATION.repeat(1, 2, 1)
    network(images, population)
    network.commit_running_stats()
    loop.modules.load_state_dict(network.state_dict())
    network.eval()
    loop.modules.eval()
    torch.testing.assert_close(torch.stack(network(images, population), 1), loop(images, population), **CLOSE)


def test_a_module_put_in_place_of_another_is_used():
    network, loop = pair([conv_block()], flat_head())
    for copies in (network.layers[0].copies, loop.modules["layers"][0]["copies"]):
        copies[1][2] = nn.Tanh()
    for copies in (network.layers[0].copies, loop.modules["layers"][0]["copies"]):
        copies[0][2] = nn.Tanh()
    assert_same_step(network, loop, batch(4, 2, 8, 8))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("position", [None, 0, 1, 2, 3])
def test_forward_hooks_see_every_pass_of_a_copy(position, training):
    network, loop = pair([conv_block()], flat_head())
    network.train(training)
    loop.modules.train(training)
    seen = []
    block = network.layers[0].copies[1]
    hooked = block if position is None else block[position]
    hooked.register_forward_hook(lambda module, inputs, output: seen.append(module))
    with torch.no_grad():
        ours, plain = network(batch(4, 2, 8, 8), POPULATION), loop(batch(4, 2, 8, 8), POPULATION)
    assert seen == [hooked]
    torch.testing.assert_close(torch.stack(ours, 1), plain, **CLOSE)


def test_hooks_may_change_what_passes():
    network, loop = pair([conv_block()], flat_head())
    for modules in (network, loop.modules):
        for number in range(2):
            norm = modules.get_submodule(f"layers.0.copies.{number}.1")
            norm.register_forward_hook(lambda module, inputs, output: output - 0.5)
            norm.register_forward_pre_hook(lambda module, inputs: inputs[0] * 2)
    assert_same_step(network, loop, batch(4, 2, 8, 8))


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_backward_hooks_fire(position):
    network, loop = pair([conv_block()], flat_head())
    seen = []
    network.layers[0].copies[0][position].register_full_backward_hook(lambda *_: seen.append(position))
    assert_same_step(network, loop, batch(4, 2, 8, 8).requires_grad_())
    assert seen == [position]


def test_a_second_backward_through_a_kept_graph_adds_the_same():
    network, _ = pair([conv_block()], flat_head())
    loss = torch.stack(network(batch(4, 2, 8, 8), POPULATION)).square().sum()
    loss.backward(retain_graph=True)
    once = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    loss.backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.grad, 2 * once[name])


def test_bfloat16_weights():
    network, _ = pair([conv_block()], flat_head())
    network.bfloat16()
    outputs = network(batch(4, 2, 8, 8).bfloat16(), POPULATION)
    sum(output.float().square().sum() for output in outputs).backward()
    network.commit_running_stats()
    assert {output.dtype for output in outputs} == {torch.bfloat16}
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in network.parameters())
    assert all(bool(torch.isfinite(buffer).all()) for buffer in network.buffers())


@pytest.mark.parametrize("running_stats", ["mean", "per_task"])
def test_inference_mode_is_evaluation_without_gradients(running_stats):
    network, _ = pair([conv_block(), conv_block(channels=3)], flat_head(12))
    network.set_running_stats(running_stats)
    network.eval()
    images, population = batch(4, 2, 8, 8), POPULATION.repeat(1, 2, 1)
    expected = network(images, population)
    for context in (torch.inference_mode, torch.no_grad):
        with context():
            found = network(images, population)
        torch.testing.assert_close(found, [logits.detach() for logits in expected], **CLOSE)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = network.float()(images.float(), population)
    for found, logits in zip(mixed, expected, strict=True):
        torch.testing.assert_close(found.double(), logits.detach(), rtol=0.1, atol=0.1)


def test_autocast_is_near_float32():
    network, _ = pair([conv_block(), conv_block(affine=False, channels=3)], flat_head(12))
    network, images = network.float(), batch(8, 2, 8, 8).float()
    mixed, population = copy.deepcopy(network), POPULATION.repeat(1, 2, 1)
    network(images, population)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed(images, population)
    for one in (network, mixed):
        one.commit_running_stats()
    for mine, theirs in zip(network.buffers(), mixed.buffers(), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=0.03, atol=0.03)
