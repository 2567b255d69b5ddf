"""Sluice networks."""

import logging

import pytest
import torch
from small import (
    assert_resumes_bit_for_bit,
    batch_of,
    digits,
    fixed,
    losses_and_gradients,
    make,
    tiny_network,
)
from torch import nn

from lws_lightning import Sluice
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_
from lws_lightning.randomness import generator_for
from lws_lightning.training import to_inputs

EXACT = {"rtol": 0, "atol": 1e-10}


def dense_layers(image_shape):
    """Three layers, the last two with outputs of the same shape."""
    layers = [
        BaseLayer("wide", nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.ReLU())),
        BaseLayer("one", nn.Sequential(nn.Linear(10, 6), nn.ReLU())),
        BaseLayer("two", nn.Sequential(nn.Linear(6, 6), nn.ReLU())),
    ]
    return BaseNetwork(layers, lambda classes: nn.Linear(6, classes), 1, he_uniform_)


@pytest.mark.parametrize("network", [tiny_network, dense_layers])
def test_identity_alpha_without_penalty_makes_independent_networks(network):
    data = digits()
    batch = batch_of(data)
    module = make(Sluice, data, network=network, same_subspace=1.0, last_layer=1.0, penalty=0.0)
    independent = fixed(data, "none", network=network)
    losses, gradients = losses_and_gradients(module, batch)
    expected, wanted = losses_and_gradients(independent, batch, independent.assignment.unsqueeze(0))
    torch.testing.assert_close(losses, expected, **EXACT)
    for name, gradient in wanted.items():
        torch.testing.assert_close(gradients[name], gradient, **EXACT)


def randomised(data, **options):
    module = make(Sluice, data, network=dense_layers, **options).double()
    for number, gate in enumerate(module.network.gate_parameters()):
        gate.data += torch.randn(gate.shape, generator=generator_for(0, "gate", number), dtype=torch.float64)
    return module


@pytest.mark.parametrize("bound", [None, 32])
def test_losses_and_gradients_are_those_of_plain_loops(bound):
    data = digits()
    batch = batch_of(data)
    module, twin = (randomised(data, max_images_per_pass=bound) for _ in "ab")
    losses, gradients = losses_and_gradients(module, batch)
    network, expected = twin.network, []
    for task in range(4):
        columns, outputs = [batch.images[task].double() / 255] * 4, []
        for layer, unit in zip(network.layers, network.units, strict=True):
            parts = [part for t in range(4) for part in layer.copies[t](columns[t]).chunk(2, dim=1)]
            mixed = [sum(row[j] * parts[j] for j in range(8)) for row in unit.weight]
            columns = [torch.cat(mixed[2 * t : 2 * t + 2], dim=1) for t in range(4)]
            outputs.append(columns[task])
        features = network.skip_weights[task, 0] * outputs[1] + network.skip_weights[task, 1] * outputs[2]
        expected.append(nn.functional.cross_entropy(network.heads[task](features), batch.labels[task]))
    penalty = 0
    for layer in network.layers:
        for block in layer.copies:
            weight = next(part.weight for part in block if isinstance(part, nn.Linear))
            half = len(weight) // 2
            penalty += (weight[:half] @ weight[half:].T).square().sum()
    total = torch.stack(expected).mean() + 0.01 * penalty / 4
    total.backward()
    torch.testing.assert_close(losses[0], torch.stack(expected).detach(), **EXACT)
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, **EXACT)


def test_beta_mixes_layers_of_the_last_ones_shape_and_starts_at_the_last():
    module = make(Sluice, digits(), network=dense_layers, last_layer=0.75)
    details = module.details()
    assert details["beta_layers"] == ["one", "two"]
    assert details["beta"] == [[0.25, 0.75]] * 4
    assert torch.tensor(details["alpha"]["wide"]).sum(1).tolist() == pytest.approx([1.0] * 8)


def test_beta_is_left_out_aloud(quiet_trainer, caplog):
    data = digits()
    module = make(Sluice, data)
    with caplog.at_level(logging.INFO, logger="lightning.pytorch.utilities.rank_zero"):
        quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, datamodule=data)
    assert "beta is left out" in caplog.text
    assert module.details()["beta"] is None
    assert module.network.skip_weights is None


def test_prediction_and_training_agree_in_eval_mode():
    data = digits()
    batch = batch_of(data)
    module = randomised(data).eval()
    logits = module.network(to_inputs(batch.images, module.dtype), module.assignment[None])
    for task in range(4):
        torch.testing.assert_close(module(batch.images[task], task), logits[task][0], **EXACT)


@pytest.mark.parametrize("network", [tiny_network, dense_layers])
def test_two_and_two_steps_are_four(tmp_path, quiet_trainer, network):
    record = assert_resumes_bit_for_bit(Sluice, tmp_path, quiet_trainer, network=network)
    assert record["method"] == "sluice"
    assert record["assignment"] == []


def odd_channels(image_shape):
    layer = BaseLayer("odd", nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(2)))
    return BaseNetwork([layer], lambda classes: nn.Sequential(nn.Flatten(), nn.Linear(108, classes)), 1, he_uniform_)


def no_weights(image_shape):
    layers = [BaseLayer("only_pooling", nn.Sequential(nn.AvgPool2d(2), nn.Flatten()))]
    return BaseNetwork(layers, lambda classes: nn.Linear(16, classes), 1, he_uniform_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subspaces": 1}, "subspaces must be at least 2.*CrossStitch"),
        ({"subspaces": 3}, "subspaces is 3, but layer 'conv' has 4 channels"),
        ({"network": odd_channels}, "subspaces is 2, but layer 'odd' has 3 channels"),
        ({"network": no_weights}, "penalty cannot be computed: layer 'only_pooling'"),
        ({"same_subspace": -0.1}, "same_subspace"),
        ({"last_layer": 2.0}, "last_layer"),
        ({"penalty": -1.0}, "penalty must not be negative"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(Sluice, digits(), **options)
