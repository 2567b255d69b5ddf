"""Train and eval modes of a network's modules around the NES pass."""

import torch
from torch import nn

from lws_lightning.sharing import MultiTaskNetwork, SharedLayer
from lws_lightning.sharing.nodes import modules_of


class _Stubborn(nn.Linear):
    """Counts in eval mode what it is told, and says it is training nevertheless."""

    asked = 0

    def train(self, mode=True):
        self.asked += 1
        return super().train(True)


def _network(block):
    return MultiTaskNetwork([SharedLayer(block, 2)], [nn.Linear(4, 2) for _ in range(2)])


def test_modules_are_those_of_torch_in_the_same_order():
    shared = nn.Linear(4, 4)
    network = _network(nn.Sequential(shared, nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()), shared))
    network.register_module("nothing", None)
    assert modules_of(network) == list(network.modules())


def test_eval_mode_reaches_all_and_frozen_modules_stay_frozen():
    network = _network(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    frozen = next(iter(network.norms())).eval()
    before = [module.training for module in network.modules()]
    with network.evaluating():
        assert not any(module.training for module in network.modules())
    assert [module.training for module in network.modules()] == before
    assert not frozen.training


def test_a_module_that_decides_about_its_mode_is_asked():
    network = _network(nn.Sequential(_Stubborn(4, 4)))
    stubborn = [module for module in network.modules() if isinstance(module, _Stubborn)]
    told = [module.asked for module in stubborn]
    with network.evaluating(), torch.no_grad():
        assert all(module.training for module in stubborn)
        assert all(module.asked > count for module, count in zip(stubborn, told, strict=True))
        assert not network.heads[0].training
