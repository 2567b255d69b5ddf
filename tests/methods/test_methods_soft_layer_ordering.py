"""Soft layer ordering."""

import dataclasses
import logging

import pytest
import torch
from small import assert_resumes_bit_for_bit, batch_of, digits, equal_layers, losses_and_gradients, make, tiny_network
from torch.nn import functional as F

from lws_lightning import SoftLayerOrdering
from lws_lightning.methods import inference_costs, inference_parameters
from lws_lightning.methods.soft_layer_ordering import longest_uniform_run
from lws_lightning.networks import cifar100_convnet, dkl_convnet, omniglot_convnet, resnet18_cifar100
from lws_lightning.randomness import generator_for
from lws_lightning.sharing.batch_norm import restore_batch_norms
from lws_lightning.training import to_inputs

EXACT = {"rtol": 0, "atol": 1e-10}
ORDERS = [[0, 1, 2], [2, 0, 1], [1, 0, 2], [1, 1, 1]]  # of each task, the layer at each depth


def soft(data, **options):
    return make(SoftLayerOrdering, data, network=equal_layers, **options).double()


def plain_losses(module, batch, choose):
    """A loop over tasks, depths and layers with torch's modules.

    `choose` gives the weights of the layers for a task and depth. Each task and depth takes the blocks of the first.
    """
    network = module.network
    first = restore_batch_norms(network.layers[0].copies[0], task=0)
    blocks = [restore_batch_norms(block, task=0) for block in network.layers[1].copies]
    losses = []
    for task in range(4):
        activations = first(batch.images[task].double() / 255)
        for depth in range(3):
            weights = choose(task, depth)
            activations = sum(w * block(activations) for w, block in zip(weights, blocks, strict=True))
        losses.append(F.cross_entropy(network.heads[task](activations), batch.labels[task]))
    return torch.stack(losses)


@pytest.mark.parametrize("bound", [None, 12, 30])
def test_one_hot_scales_make_the_permuted_network(bound):
    data = digits()
    batch = batch_of(data)
    module, twin = (soft(data, max_images_per_pass=bound) for _ in "ab")
    for scales, order in zip(module.network.scales, ORDERS, strict=True):
        scales.data = 1e4 * F.one_hot(torch.tensor(order), 3).double()
    losses, gradients = losses_and_gradients(module, batch)
    expected = plain_losses(twin, batch, lambda task, depth: F.one_hot(torch.tensor(ORDERS[task][depth]), 3).double())
    expected.mean().backward()
    torch.testing.assert_close(losses[0], expected.detach(), **EXACT)
    for name, parameter in twin.named_parameters():
        if "scales" not in name:
            torch.testing.assert_close(gradients[name], parameter.grad, **EXACT)


def test_soft_scales_and_their_gradients_are_those_of_plain_loops():
    data = digits()
    batch = batch_of(data)
    module, twin = (soft(data) for _ in "ab")
    for one in (module, twin):
        for task, scales in enumerate(one.network.scales):
            scales.data = torch.randn(3, 3, generator=generator_for(0, "scales", task), dtype=torch.float64)
    losses, gradients = losses_and_gradients(module, batch)
    expected = plain_losses(twin, batch, lambda task, depth: twin.network.scales[task][depth].softmax(0))
    expected.mean().backward()
    torch.testing.assert_close(losses[0], expected.detach(), **EXACT)
    assert len(gradients) == len(dict(module.named_parameters()))
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, **EXACT)


def test_in_eval_mode_too_one_hot_scales_make_the_permuted_network():
    """Each depth has its own running statistics, so those of a single task are the permuted network's."""
    data = digits(tasks=["upright_digit"])
    batch = batch_of(data)
    module, twin = (soft(data) for _ in "ab")
    order = [2, 0, 1]
    module.network.scales[0].data = 1e4 * F.one_hot(torch.tensor(order), 3).double()
    with torch.no_grad():
        module.network(to_inputs(batch.images, module.dtype), module.assignment[None])
        module.network.commit_running_stats()
        chain = [twin.network.layers[0].copies[0], *(twin.network.layers[1].copies[i] for i in order)]
        permuted = torch.nn.Sequential(*(restore_batch_norms(block, task=0) for block in chain), twin.network.heads[0])
        permuted(batch.images[0].double() / 255)
        module.eval()
        permuted.eval()
        torch.testing.assert_close(module(batch.images[0], 0), permuted(batch.images[0].double() / 255), **EXACT)


def test_layers_have_one_set_of_parameters_wherever_they_stand():
    module = soft(digits())
    assert module.weights_per_layer == [1, 3, 3, 3]
    convolutions = sum(p.numel() for layer in equal_layers((1, 8, 8)).layers for p in layer.block.parameters())
    heads = sum(p.numel() for p in module.network.heads.parameters())
    assert sum(p.numel() for p in module.network.parameters()) == convolutions + heads + 4 * 9
    assert module.network.parameters_in_use(module.assignment) == convolutions + heads + 4 * 9
    assert inference_parameters(module, 1) == convolutions + (4 + 1) * 2 + 9
    per_image = 4 * 9 * 64 + 3 * 16 * 9 * (64 + 16 + 4) + 4 * 2
    mixing = 3 * 4 * (16 + 4 + 1)
    assert inference_costs(module)[module.task_names[1]]["multiply_adds"] == per_image + mixing


def test_all_layers_weigh_the_same_at_first(quiet_trainer, caplog):
    data = digits()
    module = soft(data)
    assert module.details()["scales"]["upright_digit"] == [[pytest.approx(1 / 3)] * 3] * 3
    with caplog.at_level(logging.INFO, logger="lightning.pytorch.utilities.rank_zero"):
        quiet_trainer(max_steps=1, limit_val_batches=0).fit(module.float(), datamodule=data)
    assert "mixes a, b, c" in caplog.text


@pytest.mark.parametrize(
    ("build", "shape", "names"),
    [
        (dkl_convnet, (1, 28, 28), ["conv2", "conv3"]),
        (omniglot_convnet, (1, 105, 105), ["conv2", "conv3", "conv4"]),
        (cifar100_convnet, (3, 32, 32), ["dense2", "dense3"]),
        (equal_layers, (1, 8, 8), ["a", "b", "c"]),
    ],
)
def test_the_longest_run_of_equal_layers(build, shape, names):
    base = build(shape)
    assert [base.layers[position].name for position in longest_uniform_run(base)] == names


def test_residual_blocks_of_one_stage_are_equal():
    base = resnet18_cifar100((3, 32, 32), channels=(2, 4, 6, 8))
    assert [base.layers[position].name for position in longest_uniform_run(base)] == ["stage1_block1", "stage1_block2"]


def test_common_layers_end_a_run():
    base = equal_layers((1, 8, 8))
    layers = list(base.layers)
    layers[1] = dataclasses.replace(layers[1], learned=False)
    run = longest_uniform_run(dataclasses.replace(base, layers=layers))
    assert list(run) == [2, 3]


def test_too_few_equal_layers_are_refused():
    with pytest.raises(ValueError, match=r"network has no two consecutive.*conv \(4, 1, 3, 3\).*dense \(8, 64\)"):
        make(SoftLayerOrdering, digits(), network=tiny_network)


def test_a_bad_factor_is_refused():
    with pytest.raises(ValueError, match="scale_lr_factor must be positive"):
        soft(digits(), scale_lr_factor=0.0)


def test_two_and_two_steps_are_four(tmp_path, quiet_trainer):
    record = assert_resumes_bit_for_bit(SoftLayerOrdering, tmp_path, quiet_trainer, network=equal_layers)
    assert record["method"] == "soft_layer_ordering"
    assert record["assignment"] == []
    assert record["details"]["mixed_layers"] == ["a", "b", "c"]
