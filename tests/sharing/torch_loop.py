"""The copies and heads of a network in a plain loop over torch's modules, visit by visit."""

import copy

import torch
from torch import nn

from lws_lightning.sharing import CommonLayer, MultiTaskNetwork, SharedLayer

CLOSE = {"rtol": 0, "atol": 1e-10}
POPULATION = torch.tensor([[[0, 1, 1]], [[1, 1, 0]], [[0, 0, 0]], [[0, 1, 1]]])  # S=4, L=1, T=3, K=2
TASKS = POPULATION.shape[2]


class Loop:
    """The copies and heads of a network, built from torch's modules alone, with the same keys."""

    def __init__(self, blocks, copies, heads):
        self.modules = nn.ModuleDict(
            {
                "layers": nn.ModuleList(
                    nn.ModuleDict({"copies": nn.ModuleList(copy.deepcopy(block) for _ in range(count))})
                    for block, count in zip(blocks, copies, strict=True)
                ),
                "heads": nn.ModuleList(copy.deepcopy(head) for head in heads),
            }
        ).double()
        self.learned = [count > 1 for count in copies]

    def __call__(self, images, population):
        logits = []
        for assignment in population:
            for task, activations in enumerate(images):
                copies = iter(assignment[:, task].tolist())
                for layer, learned in zip(self.modules["layers"], self.learned, strict=True):
                    activations = layer["copies"][next(copies) if learned else 0](activations)
                logits.append(self.modules["heads"][task](activations))
        return torch.stack(logits).unflatten(0, (len(population), len(images)))


def pair(blocks, make_head, copies=None, seed=0):
    """A network and its loop with the same random weights; K=1 makes a common layer."""
    copies = copies or [2] * len(blocks)
    heads = [make_head() for _ in range(TASKS)]
    loop = Loop(blocks, copies, heads)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*loop.modules.named_parameters(), *loop.modules.named_buffers()]:
            if tensor.is_floating_point():
                tensor.uniform_(0.2 if name.endswith("var") else -1, 1, generator=generator)
        for module in loop.modules.modules():
            if isinstance(module, nn.BatchNorm2d) and module.affine:
                module.weight.abs_()
    layers = [
        CommonLayer(block) if count == 1 else SharedLayer(block, count)
        for block, count in zip(blocks, copies, strict=True)
    ]
    network = MultiTaskNetwork(layers, [copy.deepcopy(head) for head in heads]).double()
    network.load_state_dict(loop.modules.state_dict())
    return network, loop


def batch(*shape, seed=1):
    return torch.randn(TASKS, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same_step(network, loop, images, population=POPULATION, running_stats="per_visit"):
    """One training pass with its gradients and running statistics."""
    network.set_running_stats(running_stats)
    ours, plain = torch.stack(network(images, population), dim=1), loop(images, population)
    torch.testing.assert_close(ours, plain, **CLOSE)
    ours.square().sum().backward()
    plain.square().sum().backward()
    expected = {name: parameter.grad for name, parameter in loop.modules.named_parameters()}
    for name, parameter in network.named_parameters():
        if expected[name] is None:
            assert parameter.grad is None or not parameter.grad.any(), name
        else:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-10, atol=1e-10, msg=name)
    network.commit_running_stats()
    state = loop.modules.state_dict()
    for name, buffer in network.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            torch.testing.assert_close(buffer, state[name], **CLOSE, msg=name)


def conv_block(*more, channels=2, pool=2, **norm_options):
    norm = nn.BatchNorm2d(3, **norm_options)
    return nn.Sequential(nn.Conv2d(channels, 3, 3, padding=1), norm, nn.ReLU(), nn.MaxPool2d(pool), *more)


def flat_head(features=48):
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(features, 2))
