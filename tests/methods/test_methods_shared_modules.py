"""One module object in several places of a network."""

import pytest
import torch
from small import digits, fixed, learned
from torch import nn

from lws_lightning import task_network
from lws_lightning.methods import inference_costs
from lws_lightning.networks import BaseLayer, BaseNetwork, build_network, he_uniform_, make_multi_task_network
from lws_lightning.sharing import Nodes, convert_random_layers
from lws_lightning.sharing.nodes import node_context

POPULATION = torch.zeros(1, 1, 2, dtype=torch.int64)


def block_with(twice):
    """A block that runs some modules twice."""
    middle = nn.Conv2d(4, 4, 3, padding=1)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *twice, middle, *twice, nn.Flatten(), nn.Linear(256, 8))


def network_of(*layers):
    return lambda shape: BaseNetwork(
        [BaseLayer(f"layer{i}", layer) for i, layer in enumerate(layers)],
        lambda classes: nn.Linear(8, classes),
        1,
        he_uniform_,
    )


TWICE = {
    "relu": lambda: [nn.ReLU()],
    "normalisation": lambda: [nn.BatchNorm2d(4), nn.ReLU()],
    "convolution": lambda: [nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()],
    "convolution_and_normalisation": lambda: [nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()],
    "dropout": lambda: [nn.Dropout(0.3)],
}


@pytest.mark.parametrize("what", list(TWICE))
@pytest.mark.parametrize("running_stats", ["mean", "per_task"])
def test_a_module_may_stand_twice_in_a_block(what, running_stats, quiet_trainer):
    data = digits()
    method = learned(data, network=network_of(block_with(TWICE[what]())), running_stats=running_stats)
    assert inference_costs(method)[method.task_names[0]]["multiply_adds"] > 0
    quiet_trainer(max_steps=2, val_check_interval=1, check_val_every_n_epoch=None).fit(method, datamodule=data)
    assert not any(tensor.is_meta for tensor in method.state_dict().values())
    images = data.examples("test")[0][0][:8]
    wanted = method.eval()(images, 0).detach()
    torch.testing.assert_close(task_network(method, 0)(images / 255).detach(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("what", ["normalisation", "convolution_and_normalisation"])
def test_a_module_that_stands_twice_is_trained_as_torch_does(what):
    base = network_of(block_with(TWICE[what]()))((1, 8, 8))
    networks = make_multi_task_network(base, [3, 4], [1], seed=0).double()
    alone = nn.Sequential(networks.task_modules(POPULATION[0], 0)[0], networks.heads[0])
    oracle = network_of(block_with(TWICE[what]()))((1, 8, 8)).layers[0].block.double()
    oracle.load_state_dict({key: value.clone() for key, value in alone[0].state_dict().items()})
    images = torch.rand(1, 5, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (logits,) = networks(images, POPULATION[:, :, :1], tasks=[0])
    logits.square().sum().backward()
    networks.commit_running_stats()
    expected = networks.heads[0](oracle(images[0]))
    torch.testing.assert_close(logits[0], expected)
    weights = list(oracle.parameters())
    gradients = torch.autograd.grad(expected.square().sum(), weights)
    for parameter, wanted in zip(alone[0].parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, wanted)
    for name, wanted in oracle.state_dict().items():
        if "running" in name:
            torch.testing.assert_close(alone[0].state_dict()[name], wanted)


def test_a_dropout_that_runs_twice_has_two_masks():
    dropout = nn.Dropout(0.5)
    block = convert_random_layers(nn.Sequential(dropout, nn.Identity(), dropout)).train()
    assert block[0] is block[2]
    with node_context([block], [Nodes.of_task(0)], lambda *counters: hash(counters) % 2**31):
        first, second = block[0](torch.ones(1000)), block[2](torch.ones(1000))
    assert 0.35 < float((first == second).float().mean()) < 0.65


def test_a_sequential_that_repeats_a_module_is_cut_whole():
    relu = nn.ReLU()
    make = lambda shape: nn.Sequential(  # noqa: E731
        nn.Conv2d(1, 4, 3), relu, nn.Conv2d(4, 4, 3), relu, nn.Flatten(), nn.Linear(64, 8), relu, nn.Linear(8, 2)
    )
    base = build_network(make, (1, 8, 8))
    assert [layer.name for layer in base.layers] == ["0", "2", "5"]
    assert all(any(isinstance(part, nn.ReLU) for part in layer.block.modules()) for layer in base.layers)


def test_a_weight_in_two_layers_is_refused_by_name():
    conv, relu = nn.Conv2d(1, 1, 3, padding=1), nn.ReLU()
    other = nn.Conv2d(1, 1, 3, padding=1)
    other.weight = conv.weight
    last = (nn.Flatten(), nn.Linear(64, 8))
    for second in (conv, other):
        with pytest.raises(
            ValueError, match=r"The layers layer0 and layer1 use the same weights.*Give each layer its own module"
        ):
            fixed(digits(), network=network_of(nn.Sequential(conv, relu), nn.Sequential(second, *last)))
    fixed(digits(), network=network_of(nn.Sequential(conv, relu), nn.Sequential(relu, *last)))


def test_a_head_for_all_tasks_is_refused():
    head = nn.Linear(8, 10)
    base = BaseNetwork([BaseLayer("a", nn.Sequential(nn.Flatten(), nn.Linear(64, 8)))], lambda _: head, 1, he_uniform_)
    with pytest.raises(ValueError, match="make_head must make a new module at each call"):
        fixed(digits(), network=lambda shape: base)
