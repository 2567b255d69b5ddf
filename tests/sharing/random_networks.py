"""Random small networks, populations and batches for property tests."""

import os
from dataclasses import dataclass

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import nn

from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_, make_multi_task_network

EXAMPLES = int(os.environ.get("LWS_EXAMPLES", "25"))  # each is slow; `make release-check` runs more
PROPERTY = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))


@dataclass
class Case:
    network: nn.Module
    population: torch.Tensor
    images: torch.Tensor
    labels: torch.Tensor


def _conv(kind, channels, momentum):
    parts = [nn.Conv2d(channels, 3, 3, padding=1, bias=kind == "bias"), nn.BatchNorm2d(3, momentum=momentum), nn.ReLU()]
    if kind == "twice":  # a fused part in front of another one, and modules behind
        parts += [nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Identity()]
    elif kind == "norm_last":
        parts = [nn.Conv2d(channels, 3, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(3, momentum=momentum)]
    elif kind == "plain_affine":
        parts[1] = nn.BatchNorm2d(3, affine=False)
        parts.append(nn.MaxPool2d(2))
    elif kind == "overlapping_pool":
        parts.append(nn.MaxPool2d(3, stride=1))
    elif kind == "residual":
        return _Residual(channels)
    elif kind != "no_pool":
        parts.append(nn.MaxPool2d(2))
    return nn.Sequential(*parts)


class _Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2))
        self.short = nn.Conv2d(channels, 3, 1, stride=2)

    def forward(self, images):
        body = self.body(images)
        return body + self.short(images)[..., : body.shape[-2], : body.shape[-1]]


KINDS = ["bias", "no_bias", "no_pool", "twice", "norm_last", "plain_affine", "overlapping_pool", "residual"]


@st.composite
def cases(draw):
    """A network in float64 with a population and a batch of every task."""
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    tasks, size, batch = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(2, 5))
    channels, pixels = draw(st.integers(1, 2)), draw(st.sampled_from([7, 8, 9]))
    layers, features = [], channels
    for number in range(draw(st.integers(1, 2))):
        block = _conv(draw(st.sampled_from(KINDS)), features, draw(st.sampled_from([0.1, 0.3])))
        layers.append(BaseLayer(f"conv{number}", block, learned=draw(st.booleans())))
        features = 3
    probe = torch.zeros(2, channels, pixels, pixels)
    with torch.no_grad():
        for layer in layers:
            probe = layer.block(probe)
    dense = [nn.Flatten(), nn.Linear(probe[0].numel(), 4)]
    if draw(st.booleans()):
        dense.append(nn.BatchNorm1d(4))
    layers.append(BaseLayer("dense", nn.Sequential(*dense, nn.Tanh()), learned=True))
    if draw(st.booleans()):
        layers.append(BaseLayer("last", nn.Sequential(nn.Linear(4, 4), nn.ReLU()), learned=False))
    base = BaseNetwork(layers, lambda classes: nn.Linear(4, classes), 0, he_uniform_)
    copies = [draw(st.integers(1, 4)) for _ in base.learned_layers]
    network = make_multi_task_network(base, list(range(2, 2 + tasks)), copies, seed).double()
    _disturb(network, generator, negative=draw(st.booleans()))
    population = torch.stack([torch.randint(count, (size, tasks), generator=generator) for count in copies], dim=1)
    images = torch.rand(tasks, batch, channels, pixels, pixels, generator=generator, dtype=torch.float64)
    images[:, :, :, : pixels // 2] = 0  # equal neighbours, so that pooling meets ties
    labels = torch.stack([torch.randint(2 + task, (batch,), generator=generator) for task in range(tasks)])
    return Case(network, population, images, labels)


@torch.no_grad()
def _disturb(network, generator, negative):
    """Gives batch normalisations random scales, shifts and statistics."""
    for norm in network.norms():
        if norm.affine:
            norm.weight.uniform_(-1 if negative else 0.1, 1, generator=generator)
            norm.bias.uniform_(-1, 1, generator=generator)
        norm.running_mean.uniform_(-1, 1, generator=generator)
        norm.running_var.uniform_(0.5, 2, generator=generator)
