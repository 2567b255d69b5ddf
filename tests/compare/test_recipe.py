"""The one recipe, against the shipped configurations."""

import pytest
import torch
import yaml
from locations import CONFIGS

from lws_lightning.compare.look import look_at
from lws_lightning.compare.recipe import (
    augmentation_for,
    contenders_for,
    default_network,
    recipe,
    with_steps,
)
from lws_lightning.compare.trunk import Trunk, find_trunk
from lws_lightning.networks import NETWORKS
from lws_lightning.search import SearchDistribution, drift_half_life, rank_utilities

TRUNK = Trunk("torchvision:resnet18", "weights.pt", {"size": 64}, ["layer4.1"], 64)


def test_every_contender_is_trained_alike_by_the_shipped_options():
    shipped = yaml.safe_load((CONFIGS / "options/training_plus.yaml").read_text())["model"]["init_args"]
    for contender in contenders_for(6, "dkl_convnet", 2e-3, None):
        options = contender.model["init_args"]
        assert options["lr"] == 2e-3
        assert options["network"] == "dkl_convnet"
        assert options["running_stats"] == "per_task"
        assert {name: options[name] for name in shipped} == shipped


def test_a_trunk_adds_a_probe_and_adapters_that_are_as_in_the_shipped_overlay():
    shipped = yaml.safe_load((CONFIGS / "options/trunk.yaml").read_text())["model"]["init_args"]
    trunk = Trunk("timm:tf_efficientnet_lite0", "DEFAULT", {"size": 112}, ["blocks.6.0", "conv_head"], 112)
    added = contenders_for(6, "dkl_convnet", 1e-3, trunk)[4:]
    assert [contender.name for contender in added] == ["probe", "adapters"]
    assert {name: added[1].model["init_args"][name] for name in shipped} == shipped
    assert added[0].model["class_path"] == "LinearProbe"


def test_no_trunk_is_said_and_nothing_is_downloaded(monkeypatch):
    monkeypatch.setattr("lws_lightning.compare.trunk.find_spec", lambda name: None)
    trunk, reason = find_trunk()
    assert trunk is None
    assert "timm is not installed" in reason


@pytest.mark.parametrize("side", [3, 4, 8, 11, 12, 28, 32, 63, 64, 128])
def test_there_is_a_network_for_every_size(side):
    network = NETWORKS[default_network((3, side, side))]((3, side, side))
    images = torch.rand(2, 3, side, side)
    for layer in network.layers:
        images = layer.block.eval()(images)
    assert network.make_head(4).eval()(images).shape == (2, 4)


def test_only_photographs_are_mirrored():
    assert [
        step if isinstance(step, str) else step["name"] for step in augmentation_for((3, 32, 32), [True, True])
    ] == [
        "RandomHorizontalFlip",
        "RandomCrop",
    ]
    for coloured in ([True, False], [False, False]):
        (crop,) = augmentation_for((3, 32, 24), coloured)
        assert (crop["name"], crop["size"], crop["padding"]) == ("RandomCrop", [32, 24], 3)


@pytest.mark.parametrize(("tasks", "steps"), [(2, 300), (6, 1000)])
def test_the_search_can_decide_in_the_run_and_not_by_drift_alone(tasks, steps):
    learned = next(c for c in contenders_for(tasks, "dkl_convnet", 1e-3, None) if c.name == "learned")
    config = with_steps(recipe(learned, {}), steps)
    options = config["model"]["init_args"]
    assert options["weights_per_layer"] == tasks
    assert (config["trainer"]["max_steps"], config["trainer"]["val_check_interval"]) == (steps, steps // 10)
    pi = SearchDistribution([tasks], 1, 1e-3)
    generator = torch.Generator().manual_seed(0)
    right = 0
    for step in range(steps):  # one choice that matters: copy 0 is better than the others
        population = pi.sample(2, generator, "systematic")
        losses = (population[:, 0] != 0).double()
        pi.update(population, rank_utilities(losses), options["nes_lr"])
        if pi.probs[0, 0, 0] > 0.9:
            right = step
            break
    assert 0 < right < steps
    half_life = drift_half_life(2, options["nes_lr"], "systematic")
    assert half_life >= steps


def test_a_look_counts_and_sees_colours(photos):
    data = {
        "class_path": "lws_lightning.ImageFolders",
        "init_args": {"root": str(photos), "image_size": 16, "cache": False, "validation": "split"},
    }
    look = look_at(data)
    assert [sum(counts) for counts in zip(look.train, look.validation, look.test, strict=True)] == [26, 40]
    assert look.coloured == [True, True]
    grey = look_at({**data, "init_args": {**data["init_args"], "channels": 1}})
    assert grey.coloured == [False, False]
    assert grey.image_shape == [1, 16, 16]
    assert grey.digest != look.digest
