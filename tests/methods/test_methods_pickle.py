"""A method as one object: pickled, saved by torch, compiled."""

import io
import pickle

import pytest
import torch
from small import assert_same, digits, fixed, learned, state_of, tiny_network
from torch import nn

import lws_lightning.methods as methods
from lws_lightning.methods import MultiTaskMethod
from lws_lightning.networks import NETWORKS, BaseLayer, BaseNetwork, he_uniform_

INFO = {"task_names": ["a", "b"], "num_classes": [2, 3], "image_shape": [3, 32, 32], "validation_prefix": "val"}
METHODS = [kind for name in methods.__all__ if isinstance(kind := getattr(methods, name), type)]
METHODS = [kind for kind in METHODS if issubclass(kind, MultiTaskMethod) and kind is not MultiTaskMethod]
OPTIONS = {methods.FixedSharing: {"sharing": "none"}, methods.UndirectedSharing: {"then": "random"}}


def assert_the_same_from_bytes(method, shape):
    images = torch.randint(256, (2, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    file = io.BytesIO()
    torch.save(method.eval(), file)
    file.seek(0)
    for again in (pickle.loads(pickle.dumps(method)), torch.load(file, weights_only=False)):
        assert_same(state_of(again), state_of(method))
        for task in range(len(method.task_names)):
            assert torch.equal(again(images, task), method(images, task))


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_every_method_can_be_pickled_and_saved_as_a_whole(kind):
    network = "cifar100_convnet" if kind is methods.SoftLayerOrdering else "digits_convnet"
    assert_the_same_from_bytes(kind(network=network, **INFO, **OPTIONS.get(kind, {})), INFO["image_shape"])


@pytest.mark.parametrize("network", [*sorted(NETWORKS), "torchvision:shufflenet_v2_x0_5"])
def test_a_method_with_any_network_can_be_pickled(network):
    method = methods.FixedSharing("full", network=network, **INFO)
    assert_same(state_of(pickle.loads(pickle.dumps(method))), state_of(method))


def test_a_network_that_a_local_function_builds_can_be_pickled(quiet_trainer):
    def build(shape):
        block = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU())
        return BaseNetwork([BaseLayer("dense", block)], lambda classes: nn.Linear(8, classes), 1, he_uniform_)

    data = digits()
    method = learned(data, network=build)
    quiet_trainer(max_steps=2, limit_val_batches=0).fit(method, datamodule=data)
    assert_the_same_from_bytes(method, (1, 8, 8))


@pytest.mark.slow  # dynamo takes half a minute, whatever is compiled
def test_a_compiled_method_trains_the_same_networks(quiet_trainer):
    data = digits()
    states = []
    for compiled in (False, True):
        method = learned(data, network=tiny_network, seed=0)
        trainer = quiet_trainer(max_steps=2, val_check_interval=1, check_val_every_n_epoch=None)
        trainer.fit(torch.compile(method, backend="eager") if compiled else method, datamodule=data)
        states.append(state_of(method))
    assert_same(*states)


def test_a_compiled_population_gives_the_same_logits():
    method = fixed(digits()).eval()
    images = torch.rand(4, 3, 1, 8, 8)
    population = method.assignment.unsqueeze(0)
    wanted = method.network(images, population)
    found = torch.compile(method.network, backend="eager")(images, population)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
