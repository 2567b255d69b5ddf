"""Networks by name, path and callable."""

import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from lws_lightning.networks import NETWORKS, BaseLayer, BaseNetwork, build_network, he_uniform_, torch_default_


class _Drawing(nn.Module):
    def forward(self, images):
        return nn.functional.dropout(images, 0.5, self.training)


def drawing_network():
    return BaseNetwork([BaseLayer("a", _Drawing())], nn.Identity, 0, he_uniform_)


def parameters(base, classes):
    modules = [layer.block for layer in base.layers] + [base.make_head(classes)]
    return [sum(p.numel() for p in module.parameters()) for module in modules]


def run(base, images, classes=7):
    for layer in base.layers:
        images = layer.block(images)
    return base.make_head(classes)(images)


def test_dkl_convnet_is_the_papers():
    base = build_network("dkl_convnet", (1, 28, 28))
    assert [layer.name for layer in base.layers] == ["conv1", "conv2", "conv3", "dense1"]
    assert all(layer.learned for layer in base.layers)
    assert parameters(base, 26) == [288 + 64, 9216 + 64, 9216 + 64, 288 * 128 + 128, 129 * 26]
    assert base.prior_layers == 2
    assert run(base, torch.rand(2, 1, 28, 28)).shape == (2, 7)


def test_digits_convnet():
    base = build_network("digits_convnet", (1, 8, 8))
    assert parameters(base, 10) == [144 + 32, 16 * 9 * 32 + 64, 128 * 64 + 64, 65 * 10]
    assert run(base, torch.rand(2, 1, 8, 8)).shape == (2, 7)


@pytest.mark.parametrize(("name", "shape"), [("dkl_convnet", (1, 28, 7)), ("digits_convnet", (3, 3, 8))])
def test_images_that_are_too_small_are_refused(name, shape):
    with pytest.raises(ValueError, match=f"{name}.*{shape[1]}x{shape[2]}"):
        build_network(name, shape)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("resnet", "no network named 'resnet'.*dkl_convnet.*package.module:build"),
        ("no_such_module:build", "no_such_module"),
        ("json:no_such_function", "no_such_function.*package.module:build"),
        (".relative:build", "relative import.*package.module:build"),
        (":build", "Empty module name.*package.module:build"),
        ("json:", "cannot be imported.*package.module:build"),
        ("math:pi", "not a function but a float.*package.module:build"),
        (lambda shape: nn.Linear(2, 2), "cannot take images of shape"),
        (lambda shape: nn.Sequential(nn.Flatten(), nn.Linear(784, 2)), "no layer with weights besides"),
        (lambda shape: nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten()), "does not end with nn.Linear but with Flatten"),
        (lambda shape: [nn.Linear(2, 2)], "BaseNetwork.*ends with nn.Linear.*list"),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 2)), "function that builds"),
        (lambda shape: drawing_network(), "draws random numbers"),
    ],
)
def test_what_is_no_network_is_refused(network, message):
    with pytest.raises(ValueError, match=message):
        build_network(network, (1, 28, 28))


def test_own_networks_by_path_and_callable(tmp_path, monkeypatch):
    (tmp_path / "own_networks.py").write_text("from lws_lightning.networks import dkl_convnet as build\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert parameters(build_network("own_networks:build", (1, 8, 8)), 2)[0] == 352
    sys.modules.pop("own_networks")
    assert build_network(NETWORKS["dkl_convnet"], (3, 8, 8)).layers[0].block[0].in_channels == 3


def test_a_base_network_needs_something_to_share_and_distinct_names():
    base = build_network("digits_convnet", (1, 8, 8))
    with pytest.raises(ValueError, match="at least one learned layer"):
        replace(base, layers=[replace(layer, learned=False) for layer in base.layers])
    with pytest.raises(ValueError, match="must be unique"):
        BaseNetwork([BaseLayer("a", nn.Flatten()), BaseLayer("a", nn.ReLU())], nn.Identity, 0, he_uniform_)


@pytest.mark.parametrize(("initialise", "factor"), [(he_uniform_, 6**0.5), (torch_default_, 1.0)])
def test_initial_weights_fill_their_range(initialise, factor):
    module = nn.Sequential(nn.Conv2d(16, 64, 3), nn.BatchNorm2d(64), nn.Linear(144, 512))
    initialise(module, torch.Generator().manual_seed(0))
    bound = factor / 12  # 1 / sqrt(fan_in) with a fan-in of 144 in both
    for part in (module[0], module[2]):
        assert part.weight.abs().max() <= bound
        assert part.weight.abs().max() > 0.99 * bound
        assert part.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
        assert bool(part.bias.any()) == (initialise is torch_default_)
    assert torch.equal(module[1].weight, torch.ones(64))
