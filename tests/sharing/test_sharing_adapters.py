"""Frozen layers, and copies that are parts of one frozen block."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_loop import CLOSE, POPULATION, TASKS, batch

from lws_lightning.networks import (
    BaseLayer,
    BaseNetwork,
    build_network,
    choose_frozen_layers,
    choose_learned_layers,
    make_multi_task_network,
    torch_default_,
)
from lws_lightning.sharing import standalone_network

KINDS = ["adapter", "lora", "norm"]


class Attention(nn.Module):
    """Sees the pixels of an image as tokens."""

    def __init__(self, channels):
        super().__init__()
        self.attention = nn.MultiheadAttention(channels, 2, dropout=0.5, batch_first=True)
        self.norm = nn.LayerNorm(channels)

    def forward(self, images):
        tokens = self.norm(images.flatten(2).transpose(1, 2))
        return self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).view_as(images)


def trunk(shape=(2, 8, 8), attention=False):
    stem = nn.Sequential(nn.Conv2d(shape[0], 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
    body = nn.Sequential(
        nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU()
    )
    layers = [BaseLayer("stem", stem), BaseLayer("body", body)]
    if attention:
        layers.append(BaseLayer("attention", Attention(4)))
    with torch.no_grad():
        for layer in layers:
            for name, tensor in [*layer.block.named_parameters(), *layer.block.named_buffers()]:
                if tensor.is_floating_point():
                    tensor.uniform_(0.2 if name.endswith("var") else -1, 1)

    def make_head(classes):
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))

    return BaseNetwork(layers, make_head, 1, torch_default_, pretrained=True)


def make(copies="weights", learned=("body",), frozen=("*",), base=None, count=2, **options):
    base = choose_frozen_layers(choose_learned_layers(base or trunk(), learned), frozen, learned, copies)
    sizes = [count] * len(base.learned_layers)
    return base, make_multi_task_network(base, [2] * TASKS, sizes, 0, copies=copies, **options).double()


@pytest.mark.parametrize("learned", ["body", "attention"])
@pytest.mark.parametrize("copies", KINDS)
def test_one_forward_is_the_plain_loop_over_copies(copies, learned):
    if (copies, learned) == ("adapter", "attention"):
        pytest.skip("attention has no convolution")
    _, network = make(copies, (learned,), base=trunk(attention=learned == "attention"))
    network.train()
    chain = [[copy.deepcopy(block).eval() for block in layer.copies] for layer in network.layers]
    heads = copy.deepcopy(network.heads)
    images, losses = batch(4, 2, 8, 8), []
    position = [len(blocks) > 1 for blocks in chain].index(True)
    for assignment in POPULATION:
        for task in range(TASKS):
            activations = images[task]
            for number, blocks in enumerate(chain):
                activations = blocks[int(assignment[0, task]) if number == position else 0](activations)
            losses.append(heads[task](activations))
    expected = torch.stack(losses).unflatten(0, (len(POPULATION), TASKS))
    actual = torch.stack(network(images, POPULATION), dim=1)
    torch.testing.assert_close(actual, expected, **CLOSE)
    actual.square().sum().backward()
    expected.square().sum().backward()
    for ours, plain in zip(network.layers[position].copies, chain[position], strict=True):
        trained = [(name, p) for name, p in ours.named_parameters() if p.requires_grad]
        assert trained
        for name, parameter in trained:
            torch.testing.assert_close(parameter.grad, plain.get_parameter(name).grad, rtol=1e-9, atol=1e-10, msg=name)
    assert all(p.grad is None for p in network.parameters() if not p.requires_grad)
    with network.evaluating():
        torch.testing.assert_close(torch.stack(network(images, POPULATION), dim=1), actual, **CLOSE)


def test_a_frozen_layer_has_no_gradient_and_keeps_its_statistics():
    base, network = make("weights", ("body",), ("stem",))
    stem = network.layers[0]
    before = copy.deepcopy(stem.state_dict())
    network.set_running_stats("per_task")
    network.train()
    images = batch(4, 2, 8, 8)
    torch.stack(network(images, POPULATION)).sum().backward()
    network.commit_running_stats()
    assert not stem.training
    assert not any(module.training for module in stem.modules())
    assert network.layers[1].training
    for name, tensor in stem.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in stem.parameters())
    assert all(parameter.grad is not None for parameter in network.layers[1].parameters())
    expected = copy.deepcopy(base.layers[0].block).double().eval()(images[0])
    torch.testing.assert_close(stem.forward_copy(images[0], 0, 0), expected, **CLOSE)
    with network.evaluating():
        assert not network.layers[1].training
    assert network.layers[1].training


@pytest.mark.parametrize("copies", KINDS)
def test_copies_start_different_and_near_the_pretrained_block(copies):
    base, network = make(copies)
    images = batch(4, 4, 8, 8)[0]
    expected = copy.deepcopy(base.layers[1].block).double().eval()(images)
    one, other = (block(images) for block in network.layers[1].copies)
    assert not torch.equal(one, other)
    for outputs in (one, other):
        distance = float((outputs - expected).norm() / expected.norm())
        assert 1e-4 < distance < 0.1
    again = make(copies, base=base, count=3)[1].layers[1].copies
    assert torch.equal(again[1](images), other)  # neither K nor other copies matter


@pytest.mark.parametrize("copies", KINDS)
def test_frozen_weights_exist_once(copies, tmp_path):
    base, network = make(copies, count=5)
    block = sum(parameter.numel() for parameter in base.layers[1].block.parameters())
    stem = sum(parameter.numel() for parameter in base.layers[0].block.parameters())
    heads = sum(parameter.numel() for parameter in network.heads.parameters())
    (added,) = network.layer_parameters()
    frozen = block - added if copies == "norm" else block
    assert network.parameters_in_use(POPULATION[0]) == stem + frozen + 2 * added + heads
    assert sum(p.numel() for p in network.parameters()) == stem + frozen + 5 * added + heads
    twin = network.unshared()
    assert {id(p) for p in network.parameters() if not p.requires_grad} <= {id(p) for p in twin.parameters()}
    for state, size in ((network.float().state_dict(), None), (make(copies, count=6)[1].float().state_dict(), added)):
        torch.save(state, tmp_path / "state.pt")
        written = len({tensor.untyped_storage().data_ptr() for tensor in torch.load(tmp_path / "state.pt").values()})
        assert written == len({tensor.untyped_storage().data_ptr() for tensor in state.values()})
        assert size is None or written < len(state)


def test_a_low_rank_copy_in_closed_form():
    _, network = make("lora", copy_rank=2)
    block = network.layers[1].copies[1]
    depthwise, pointwise, norm, _ = block
    weights = pointwise.parametrizations.weight
    assert weights[0].up.shape == (4, 2)
    assert not any(parameter.requires_grad for parameter in depthwise.parameters())
    images = batch(4, 4, 8, 8)[0]
    summed = weights.original + (weights[0].up @ weights[0].down)[:, :, None, None]
    hidden = F.conv2d(F.conv2d(images, depthwise.weight, depthwise.bias, 2, 1, groups=4), summed, pointwise.bias)
    torch.testing.assert_close(block(images), norm(hidden).relu(), **CLOSE)


def test_an_adapter_in_closed_form():
    _, network = make("adapter", copy_rank=3)
    block = network.layers[1].copies[1]
    adapted, pointwise, norm, _ = block
    assert isinstance(pointwise, nn.Conv2d)  # an adapter stands beside the wide convolution alone
    images = batch(4, 4, 8, 8)[0]
    pixels = F.avg_pool2d(images, 2).movedim(1, -1)
    added = ((pixels @ adapted.down.weight[:, :, 0, 0].T).relu() @ adapted.up.weight[:, :, 0, 0].T).movedim(-1, 1)
    wide = F.conv2d(images, adapted.convolution.weight, adapted.convolution.bias, 2, 1, groups=4)
    torch.testing.assert_close(block(images), norm(pointwise(wide + added)).relu(), **CLOSE)


@pytest.mark.parametrize("copies", KINDS)
def test_a_tasks_network_alone_is_merged_and_equal(copies):
    _, network = make(copies, ("body", "attention") if copies != "adapter" else ("body",), base=trunk(attention=True))
    assignment = torch.ones(len(network.weights_per_layer), TASKS, dtype=torch.int64)
    alone = standalone_network(network.task_modules(assignment, 1), ["a", "b", "c", "head"], 1)
    images = torch.rand(3, 2, 8, 8)
    network.eval()
    torch.testing.assert_close(alone(images), network.float().forward_task(images, assignment, 1))
    assert all(parameter.requires_grad for parameter in alone.parameters())
    again = standalone_network(network.task_modules(assignment, 1), ["a", "b", "c", "head"], 1)
    torch.testing.assert_close(again(images), alone(images))  # the first export has left the network as it was
    if copies != "adapter":
        for layer, module in zip(trunk(attention=True).layers, alone, strict=False):
            assert module.state_dict().keys() == layer.block.state_dict().keys()


def test_a_network_without_pretrained_weights_can_be_frozen():
    def build(shape):
        return nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.Flatten(), nn.Linear(144, 4), nn.ReLU(), nn.Linear(4, 2))

    base = build_network(build, (2, 8, 8))
    _, network = make("lora", ("2",), base=base)
    _, again = make("lora", ("2",), base=build_network(build, (2, 8, 8)), count=3)
    frozen = [[p for p in module.parameters() if not p.requires_grad] for module in (network, again)]
    assert all(torch.equal(one, other) for one, other in zip(*frozen, strict=True))
    _, whole = make("weights", ("2",), None, base=base)
    assert torch.equal(network.layers[0].copies[0][0].weight, whole.layers[0].copies[0][0].weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frozen": ("nothing*",)}, r"frozen_layers: 'nothing\*' matches none .*'stem', 'body'"),
        ({"learned": None}, "nothing to share or to train except the heads"),
        ({"learned": ("body",)}, r"frozen_layers: \['body'\] are also in learned_layers"),
        ({"copies": "norm", "learned": ("plain",)}, "normalisation in every learned layer, but the layer plain has"),
        ({"copies": "adapter", "learned": ("plain",)}, "copies: adapter needs a convolution"),
    ],
)
def test_layers_that_cannot_be_frozen_so_are_refused(options, message):
    base = trunk()
    base.layers.append(BaseLayer("plain", nn.Sequential(nn.Flatten(2), nn.Linear(16, 16), nn.Unflatten(2, (4, 4)))))
    with pytest.raises(ValueError, match=message):
        make(base=base, **options)
