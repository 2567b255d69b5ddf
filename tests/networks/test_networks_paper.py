"""The paper's networks for CIFAR-100 and Omniglot."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import resnet18

from benchmarks.plain_loop import PlainLoop
from lws_lightning.networks import (
    build_network,
    make_multi_task_network,
    resnet18_cifar100,
    resnet18_omniglot,
)

CLOSE = {"rtol": 0, "atol": 1e-10}
SHAPES = {
    "cifar100_convnet": (3, 32, 32),
    "omniglot_convnet": (1, 105, 105),
    "resnet18_cifar100": (3, 32, 32),
    "resnet18_omniglot": (1, 105, 105),
}
SMALLEST = {"cifar100_convnet": 16, "omniglot_convnet": 16, "resnet18_cifar100": 5, "resnet18_omniglot": 17}


def residual(inputs, outputs, shortcut):
    """Parameters of a residual block by hand: convolutions, scales and shifts."""
    return 9 * inputs * outputs + 9 * outputs**2 + 4 * outputs + shortcut * (inputs * outputs + 2 * outputs)


STAGE1_CIFAR100 = [residual(64, 64, False)] * 2
STAGE1_OMNIGLOT = [residual(64, 64, True), residual(64, 64, False)]
LATER_STAGES = [residual(*sizes) for n in (128, 256, 512) for sizes in ((n // 2, n, True), (n, n, False))]
BY_HAND = {
    "cifar100_convnet": [3 * 9 * 32 + 64] + [32 * 9 * 32 + 64] * 3 + [128 * 128 + 128] * 3,
    "omniglot_convnet": [9 * 53 + 106] + [53 * 9 * 53 + 106] * 3,
    "resnet18_cifar100": [3 * 9 * 64 + 128, *STAGE1_CIFAR100, *LATER_STAGES],
    "resnet18_omniglot": [1 * 9 * 64 + 128, *STAGE1_OMNIGLOT, *LATER_STAGES],
}
HEAD_INPUTS = {"cifar100_convnet": 128, "omniglot_convnet": 53, "resnet18_cifar100": 512, "resnet18_omniglot": 512}
OUTPUTS = {  # (channels, pixels a side) or units behind each layer
    "cifar100_convnet": [(32, 16), (32, 8), (32, 4), (32, 2), 128, 128, 128],
    "omniglot_convnet": [(53, 52), (53, 26), (53, 13), (53, 6)],
    "resnet18_cifar100": [(64, 32)] * 3 + [(128, 16)] * 2 + [(256, 8)] * 2 + [(512, 4)] * 2,
    "resnet18_omniglot": [(64, 53)] + [(64, 27)] * 2 + [(128, 14)] * 2 + [(256, 7)] * 2 + [(512, 4)] * 2,
}
COMMON = {"cifar100_convnet": 4, "omniglot_convnet": 0, "resnet18_cifar100": 1, "resnet18_omniglot": 1}
PRIOR = {"cifar100_convnet": 1, "omniglot_convnet": 2, "resnet18_cifar100": 4, "resnet18_omniglot": 4}
ALPHABETS = [33] * 23 + [32] * 27  # as many classes as Omniglot has, 1623


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", SHAPES)
def test_networks_are_the_papers(name):
    with torch.device("meta"):
        base = build_network(name, SHAPES[name])
        head, activations, outputs = base.make_head(5), torch.empty(2, *SHAPES[name]), []
        for layer in base.layers:
            activations = layer.block(activations)
            outputs.append(tuple(activations.shape[1:]))
        logits = head(activations)
    assert outputs == [(size,) if isinstance(size, int) else (size[0], size[1], size[1]) for size in OUTPUTS[name]]
    assert logits.shape == (2, 5)
    assert [count(layer.block) for layer in base.layers] == BY_HAND[name]
    assert count(head) == 5 * (HEAD_INPUTS[name] + 1)
    assert [layer.learned for layer in base.layers] == [i >= COMMON[name] for i in range(len(base.layers))]
    assert base.prior_layers == PRIOR[name]
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in head.modules())


@pytest.mark.parametrize(
    ("name", "classes", "full", "none", "prior"),
    [
        ("cifar100_convnet", [5] * 20, 91_204, 1_032_388, 718_660),
        ("omniglot_convnet", ALPHABETS, 164_386, 3_924_842, 2_652_312),
        ("resnet18_cifar100", [5] * 20, 11_220_132, 223_392_676, 210_595_492),
        ("resnet18_omniglot", ALPHABETS, 12_004_503, 559_393_303, 526_183_063),
    ],
)
def test_parameters_of_all_tasks_together(name, classes, full, none, prior):
    """According to the paper, "223M" without sharing and "11M" with full sharing (CIFAR-100, ResNet18)."""
    tasks = len(classes)
    with torch.device("meta"):  # nothing is allocated
        base = replace(build_network(name, SHAPES[name]), initialise=lambda module, generator: None)
        network = make_multi_task_network(base, classes, [tasks] * len(base.learned_layers), seed=0)
    shared = torch.zeros(len(base.learned_layers), tasks, dtype=torch.int64)
    own = torch.arange(tasks).expand_as(shared)
    as_prior = torch.cat([shared[: base.prior_layers], own[base.prior_layers :]])
    assert [network.parameters_in_use(assignment) for assignment in (shared, own, as_prior)] == [full, none, prior]
    assert count(network) == none
    blocks, learned = BY_HAND[name], sum(BY_HAND[name][COMMON[name] :])
    assert none - full == (tasks - 1) * learned
    assert full == sum(blocks) + sum(classes) * (HEAD_INPUTS[name] + 1)


@pytest.mark.parametrize(("name", "pixels"), SMALLEST.items())
def test_images_that_are_too_small_are_refused(name, pixels):
    with torch.device("meta"):
        base = build_network(name, (3, pixels, pixels + 1))
        images = torch.empty(2, 3, pixels, pixels + 1)
        for layer in base.layers:
            images = layer.block(images)
        assert base.make_head(2)(images).shape == (2, 2)
    with pytest.raises(ValueError, match=f"{name}.*at least {pixels}x{pixels}.*have {pixels + 1}x{pixels - 1}"):
        build_network(name, (3, pixels + 1, pixels - 1))


TINY = [
    ("cifar100_convnet", (3, 17, 16)),
    ("omniglot_convnet", (1, 16, 19)),
    (partial(resnet18_cifar100, channels=(2, 3, 4, 5)), (3, 9, 10)),
    (partial(resnet18_omniglot, channels=(2, 3, 4, 5)), (1, 33, 34)),
]


@pytest.mark.parametrize(("network", "shape"), TINY, ids=list(SHAPES))
def test_a_population_is_the_plain_loop(network, shape):
    generator = torch.Generator().manual_seed(0)
    base = build_network(network, shape)
    layers = len(base.learned_layers)
    ours = make_multi_task_network(base, [2, 3], [2] * layers, seed=0).double()
    with torch.no_grad():
        for norm in ours.norms():
            norm.weight.uniform_(0.2, 1, generator=generator)
            norm.bias.uniform_(-1, 1, generator=generator)
    ours.set_running_stats("per_visit")
    loop = PlainLoop(ours)
    images = torch.rand(2, 3, *shape, generator=generator, dtype=torch.float64)
    labels = torch.tensor([[0, 1, 1], [2, 0, 1]])
    population = torch.randint(2, (3, layers, 2), generator=generator)
    population[1, 0] = population[0, 0]  # a common prefix for certain
    losses = _losses(ours(images, population), labels)
    expected = _losses(loop(images, population), labels)
    torch.testing.assert_close(losses, expected, **CLOSE)
    losses.mean().backward()
    expected.mean().backward()
    ours.commit_running_stats()
    others = dict(loop.network.named_parameters())
    assert any(parameter.grad is not None for parameter in others.values())
    for name, parameter in ours.named_parameters():
        one, other = (torch.zeros_like(p) if p.grad is None else p.grad for p in (parameter, others[name]))
        torch.testing.assert_close(one, other, **CLOSE, msg=lambda message, name=name: f"{name}: {message}")
    _same_running_stats(ours, loop.network)
    ours.eval()
    loop.eval()
    with torch.no_grad():
        evaluated, plain = ours(images, population), loop(images, population)
        for task in range(2):
            torch.testing.assert_close(evaluated[task], plain[task], **CLOSE)
            alone = ours.forward_task(images[task], population[2], task)
            torch.testing.assert_close(alone, evaluated[task][2], **CLOSE)


def _losses(logits, labels):
    rows = [
        torch.stack([F.cross_entropy(sample, task_labels) for sample in task_logits])
        for task_logits, task_labels in zip(logits, labels, strict=True)
    ]
    return torch.stack(rows, dim=1)


def _same_running_stats(ours, plain):
    others = dict(plain.named_buffers())
    names = [name for name, _ in ours.named_buffers() if name.endswith(("running_mean", "running_var"))]
    assert names
    mine = dict(ours.named_buffers())
    for name in names:
        torch.testing.assert_close(mine[name], others[name], **CLOSE)


def test_resnet18_is_torchvisions_but_for_stem_and_pooling():
    base, whole = build_network("resnet18_cifar100", (3, 32, 32)), resnet18(num_classes=5)
    stem, *blocks = [layer.block for layer in base.layers]
    head = base.make_head(5)
    whole.conv1, whole.bn1, whole.maxpool, whole.fc = stem.conv, stem.norm, nn.Identity(), head.linear
    theirs = [block for stage in (whole.layer1, whole.layer2, whole.layer3, whole.layer4) for block in stage]
    for mine, other in zip(blocks, theirs, strict=True):
        other.load_state_dict(mine.state_dict())
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(head(nn.Sequential(stem, *blocks)(images)), whole(images))


@pytest.mark.parametrize(("initialization", "gain"), [(None, 1), ("torch", 1), ("he_uniform", 6)])
def test_every_convolution_and_dense_layer_is_initialised(initialization, gain):
    """The stem, both convolutions, the shortcut and the head; PyTorch's default unless an option is set."""
    base = resnet18_cifar100((3, 8, 8), channels=(64, 64, 128, 64))
    network = make_multi_task_network(base, [5], [1] * 8, seed=0, initialization=initialization)
    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert len(layers) == 1 + 16 + 3 + 1  # stem, blocks, shortcuts of the stages that halve the image, head
    for layer in layers:
        bound = (gain / layer.weight[0].numel()) ** 0.5
        assert 0.9 * bound < layer.weight.abs().max() <= bound
