"""Normalisations, dropout, stochastic depth and attention in a population's pass against a plain loop.

The loop visits every task under every assignment with torch's own modules. Before each random module it seeds torch's
generator with what the visit is: the same task with the same copies so far has the same mask.
"""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models.convnext import CNBlock, LayerNorm2d
from torchvision.models.vision_transformer import EncoderBlock
from torchvision.ops import StochasticDepth

from lws_lightning.networks import (
    BaseLayer,
    BaseNetwork,
    base_network_from_model,
    make_layers_and_heads,
    make_multi_task_network,
    torch_default_,
)
from lws_lightning.randomness import seed_for
from lws_lightning.sharing import (
    ColumnNetwork,
    MixingUnit,
    TaskAttention,
    TaskRandom,
    convert_random_layers,
    restore_random_layers,
    split_population,
)
from lws_lightning.sharing.batch_norm import restore_batch_norms
from lws_lightning.sharing.nodes import NodeModule

CLOSE = {"rtol": 0, "atol": 1e-10}
RANDOM = (nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.RReLU, StochasticDepth, nn.MultiheadAttention)
TASKS, COPIES, BATCH = 3, 2, 4


def sequence(*parts):
    """Images as a sequence of pixels, and a block over it."""
    return nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.Flatten(2), Turn(), *parts, Turn(), nn.Unflatten(2, (2, 2)))


class Turn(nn.Module):
    def forward(self, images):
        return images.transpose(1, 2)


def conv(*parts):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *parts, nn.AvgPool2d(2))


BLOCKS = {
    "batch": lambda: conv(nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.4)),
    "group": lambda: conv(nn.GroupNorm(2, 8), nn.GELU()),
    "layer": lambda: conv(LayerNorm2d(8), nn.ReLU()),
    "instance": lambda: conv(nn.InstanceNorm2d(8, affine=True), nn.ReLU()),
    "dropout": lambda: conv(nn.ReLU(inplace=True), nn.Dropout(0.3, inplace=True), nn.Dropout2d(0.2)),
    "rare": lambda: conv(nn.AlphaDropout(0.3), nn.RReLU()),
    "depth": lambda: conv(CNBlock(8, 0.5, 0.5), StochasticDepth(0.5, "batch")),
    "attention": lambda: sequence(EncoderBlock(2, 8, 16, dropout=0.2, attention_dropout=0.4)),
    "transformer": lambda: sequence(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)),
}


def base_of(kind):
    head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.LazyLinear(5))
    first = BaseLayer("first", BLOCKS[kind]())
    common = BaseLayer("common", nn.Sequential(nn.Conv2d(8, 6, 1), nn.Dropout(0.3)), learned=False)
    second = BaseLayer("second", nn.Sequential(nn.Conv2d(6, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.3), nn.ReLU()))

    def make_head(classes):
        made = copy.deepcopy(head)
        pixels = torch.zeros(1, 4, *((2, 2) if kind in ("attention", "transformer") else (4, 4)))
        made(pixels)
        return made

    return BaseNetwork([first, common, second], make_head, 0, torch_default_)


def network_of(kind, seed=0):
    torch.manual_seed(seed)
    network = make_multi_task_network(base_of(kind), [5] * TASKS, [COPIES] * 2, seed).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.rand(parameter.shape) * 0.3)
    network.set_running_stats("per_visit")
    return network.train()


def batches(seed=1, size=8):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(TASKS, BATCH, 3, size, size, generator=generator, dtype=torch.float64)
    population = torch.randint(COPIES, (5, 2, TASKS), generator=generator)
    population[3] = population[0]
    return images, population, torch.randint(5, (TASKS, BATCH), generator=generator)


class Loop:
    """Visit by visit, with a separate seed for each random module and visit."""

    def __init__(self, network, seed_function):
        self.network = restore_random_layers(restore_batch_norms(copy.deepcopy(network), task=0))
        self.seed_function = seed_function

    def __call__(self, images, population):
        rows = [[self.visit(images[t], a[:, t].tolist(), t) for t in range(TASKS)] for a in population]
        return [torch.stack([row[task] for row in rows]) for task in range(TASKS)]

    def visit(self, images, copies, task):
        name = [task]
        for position, (layer, number) in enumerate(zip(self.network.layers, [copies[0], 0, copies[1]], strict=True)):
            name.append(number)
            images = self.run(layer.copies[number], images, (position,), name)
        return self.run(self.network.heads[task], images, ("head",), name)

    def run(self, block, images, where, name):
        handles = []
        for path, module in block.named_modules():
            if isinstance(module, RANDOM):
                seed = self.seed_function(*where, path, *name)
                handles.append(module.register_forward_pre_hook(partial(prepare, seed)))
        try:
            return block(images)
        finally:
            for handle in handles:
                handle.remove()


def prepare(seed, module, inputs):
    """Seeds the generator, and converts the input to channels_last, the order in which a module draws."""
    torch.manual_seed(seed)
    if isinstance(module, nn.MultiheadAttention):
        return None
    layout = torch.channels_last if inputs[0].dim() == 4 else torch.contiguous_format
    return inputs[0].contiguous(memory_format=layout)


def losses_of(logits, labels):
    return torch.stack(
        [torch.stack([F.cross_entropy(x, y) for x in own]) for own, y in zip(logits, labels, strict=True)], 1
    )


def gradients(network):
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_training_pass_is_the_plain_loop(kind):
    network, (images, population, labels) = network_of(kind), batches()
    seed_function = partial(seed_for, 7, "masks", 3)
    network.seed_random_layers(seed_function)
    loop = Loop(network, seed_function)
    plain = losses_of(loop(images, population), labels)
    plain.mean().backward()
    torch.manual_seed(99)  # which must not matter
    ours = losses_of(network(images, population), labels)
    torch.testing.assert_close(ours, plain, **CLOSE)
    ours.mean().backward()
    for one, other in zip(gradients(network), gradients(loop.network), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    network.commit_running_stats()
    theirs = [module for module in loop.network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm, plain_norm in zip(network.norms(), theirs, strict=True):
        torch.testing.assert_close(norm.running_var, plain_norm.running_var, **CLOSE)


@pytest.mark.parametrize("kind", ["batch", "attention", "depth"])
def test_masks_do_not_depend_on_the_passes_or_on_other_tasks(kind):
    network, (images, population, _) = network_of(kind), batches()
    network.seed_random_layers(partial(seed_for, 7, 3))
    whole = network(images, population)
    for part in split_population(population, BATCH, 3 * BATCH):
        for task, logits in zip(part.tasks, network(images, population, population_pass=part), strict=True):
            torch.testing.assert_close(logits, whole[task][list(part.rows)], **CLOSE)
    for tasks in ([2, 0], [1]):
        for task, logits in zip(tasks, network(images[tasks], population[:, :, tasks], tasks), strict=True):
            torch.testing.assert_close(logits, whole[task], **CLOSE)


def test_masks_differ_between_steps_tasks_copies_layers_and_images():
    network = make_multi_task_network(
        BaseNetwork(
            [BaseLayer(name, nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))) for name in ("a", "b")],
            lambda classes: nn.Identity(),
            0,
            torch_default_,
        ),
        [2] * TASKS,
        [COPIES] * 2,
        0,
    )
    images = torch.ones(TASKS, BATCH, 64)
    population = torch.tensor([[[0, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 1, 0]], [[0, 0, 0], [0, 0, 0]]])

    def masks(step):
        network.seed_random_layers(partial(seed_for, 0, step))
        return torch.stack(network(images, population)).bool()

    found = masks(0)
    assert torch.equal(found, masks(0))
    assert torch.equal(found[:, 0], found[:, 2])  # one node, one mask
    distinct = [*found[:, 0].flatten(0, 1), *found[:2, 1].flatten(0, 1), *masks(1)[:, 0].flatten(0, 1)]
    assert len({tuple(mask.tolist()) for mask in distinct}) == len(distinct)
    assert found.float().mean().item() == pytest.approx(1 / 16, abs=0.02)


@pytest.mark.parametrize("kind", ["batch", "attention"])
def test_evaluation_draws_nothing(kind):
    network, (images, population, _) = network_of(kind), batches()
    before = torch.get_rng_state()
    network.seed_random_layers(partial(seed_for, 0, 0))
    with network.evaluating():
        ours = network(images, population)
        expected = Loop(network, None).network.eval()
        for task in range(TASKS):
            own = images[task]
            for module in expected.task_modules(population[0], task):
                own = module(own)
            torch.testing.assert_close(ours[task][0], own, **CLOSE)
    network(images, population)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_frozen_dropout_stays_switched_off():
    network, (images, population, _) = network_of("dropout"), batches()
    network.seed_random_layers(partial(seed_for, 0, 0))
    for module in network.modules():
        if isinstance(module, TaskRandom):
            module.eval()
    one = network(images, population)
    network.seed_random_layers(partial(seed_for, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one, network(images, population), strict=True))


def test_columns_draw_by_task_and_column():
    base = base_of("dropout")
    layers, heads = make_layers_and_heads(base, [5] * TASKS, [TASKS] * 2, 0)
    units = [MixingUnit(TASKS, torch.eye(TASKS)[None]) for _ in range(2)]
    network = ColumnNetwork(layers, heads, units).double().train()
    network.seed_random_layers(partial(seed_for, 0, 0))
    images, _, _ = batches()
    nothing_assigned = torch.empty(1, 0, TASKS, dtype=torch.int64)
    whole = network(images, nothing_assigned)
    torch.manual_seed(5)
    for part in network.passes(nothing_assigned, BATCH, TASKS * BATCH):
        for task, logits in zip(part.tasks, network(images, nothing_assigned, part), strict=True):
            torch.testing.assert_close(logits, whole[task], **CLOSE)


def test_converting_and_restoring_gives_back_torchs_modules():
    block = nn.Sequential(EncoderBlock(2, 8, 16, 0.1, 0.2), StochasticDepth(0.3, "row"), nn.Dropout(0.1))
    names = [type(module).__name__ for module in block.modules()]
    keys = list(block.state_dict())
    converted = convert_random_layers(copy.deepcopy(block))
    assert isinstance(converted[0].self_attention, TaskAttention)
    assert isinstance(converted[0].dropout, TaskRandom)
    assert list(converted.state_dict()) == keys
    restored = restore_random_layers(copy.deepcopy(converted))
    assert [type(module).__name__ for module in restored.modules()] == names
    assert isinstance(converted[0].self_attention, TaskAttention)


def test_converted_attention_has_the_very_weights_and_hooks():
    block, seen = EncoderBlock(2, 8, 16, 0.1, 0.2), []
    plain = block.self_attention
    plain.register_forward_hook(lambda module, *_: seen.append(type(module)))
    convert_random_layers(block)
    assert isinstance(block.self_attention, TaskAttention)
    assert type(plain) is nn.MultiheadAttention
    assert all(a is b for a, b in zip(plain.parameters(), block.self_attention.parameters(), strict=True))
    block.eval()(torch.rand(1, 4, 8))
    assert seen == [TaskAttention]


@pytest.mark.parametrize("kind", ["batch", "attention"])
def test_an_error_within_a_pass_leaves_nobody_with_its_nodes(kind):
    network, (images, population, _) = network_of(kind), batches()
    network.seed_random_layers(partial(seed_for, 0, 0))
    with pytest.raises(RuntimeError):
        network(images[:, :, :2], population)  # the first convolution takes three channels
    parts = [module for module in network.modules() if isinstance(module, NodeModule)]
    assert {type(part) for part in parts} >= {TaskRandom}
    assert all(part.nodes is None and part.seed_function is None for part in parts)


def test_attention_with_dropout_that_cannot_be_split_is_refused():
    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

        def forward(self, images):
            return self.attention(images, images, images)[0]

    base = BaseNetwork([BaseLayer("a", Asking())], lambda n: nn.Flatten(), 0, torch_default_)
    network = make_multi_task_network(base, [2], [1], 0)
    network.seed_random_layers(partial(seed_for, 0, 0))
    with pytest.raises(ValueError, match="need_weights=False"):
        network(torch.rand(1, 2, 3, 8), torch.zeros(1, 1, 1, dtype=torch.int64))


def test_a_vision_transformer_cut_into_a_chain_trains_as_the_plain_loop():
    from torchvision.models.vision_transformer import VisionTransformer

    def make():
        return VisionTransformer(8, 4, 2, 2, 8, 16, dropout=0.2, attention_dropout=0.3, num_classes=5)

    base = base_network_from_model(make, (3, 8, 8), "a small ViT")
    network = make_multi_task_network(base, [5] * TASKS, [COPIES] * 3, 0).double().train()
    images, _, labels = batches()
    population = torch.randint(COPIES, (4, 3, TASKS), generator=torch.Generator().manual_seed(2))
    seed_function = partial(seed_for, 1)
    network.seed_random_layers(seed_function)
    loop = Loop(network, seed_function)

    def visit(pixels, copies, task):
        name = [task]
        for position, number in enumerate(copies):
            name.append(number)
            pixels = loop.run(loop.network.layers[position].copies[number], pixels, (position,), name)
        return loop.network.heads[task](pixels)

    plain = [torch.stack([visit(images[t], a[:, t].tolist(), t) for a in population]) for t in range(TASKS)]
    ours = network(images, population)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    losses_of(ours, labels).mean().backward()
    losses_of(plain, labels).mean().backward()
    for one, other in zip(gradients(network), gradients(loop.network), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
