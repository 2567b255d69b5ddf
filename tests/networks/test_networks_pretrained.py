"""Pretrained weights: files, torchvision's by name, and weights that do not fit."""

import urllib.error

import pytest
import torch
from torch import nn
from torchvision.models import ResNet18_Weights

from lws_lightning.networks import build_network, choose_learned_layers, make_multi_task_network
from lws_lightning.networks.torchvision_models import make_torchvision_model

SHAPE = (3, 16, 16)


def build(shape):
    body = nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    tail = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LazyLinear(8), nn.ReLU())
    return nn.Sequential(body, tail, nn.Linear(8, 3))


@pytest.fixture
def state():
    model = build(SHAPE)
    model(torch.rand(2, *SHAPE))
    return {name: torch.rand_like(tensor.float()) for name, tensor in model.state_dict().items()}


def saved(state, path):
    torch.save(state, path)
    return str(path)


def copies_of(base, seed=0, **options):
    network = make_multi_task_network(base, [2, 5], [2] * len(base.learned_layers), seed, **options)
    return network, [[dict(copy.state_dict()) for copy in layer.copies] for layer in network.layers]


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_every_copy_starts_from_the_weights_of_a_file(tmp_path, state, ending, wrapped):
    path = tmp_path / f"weights.{ending}"
    if ending == "safetensors":
        pytest.importorskip("safetensors.torch").save_file(state, path)
    else:
        torch.save({"state_dict": state} if wrapped else state, path)
    network, (first, second) = copies_of(build_network(build, SHAPE, str(path)))
    for copy in first:
        assert torch.equal(copy["0.weight"], state["0.0.weight"])
        assert torch.equal(copy["1.running_mean"], state["0.1.running_mean"])
    for copy in second:
        assert torch.equal(copy["2.weight"], state["1.2.weight"])
    one, other = network.heads
    assert (one.out_features, other.out_features) == (2, 5)
    assert not torch.equal(one.weight, other.weight[:2])
    again, _ = copies_of(build_network(build, SHAPE, str(path)), seed=1)
    assert not torch.equal(again.heads[0].weight, one.weight)


def test_without_weights_every_copy_is_drawn_by_the_seed():
    base = build_network(build, SHAPE)
    _, (first, second) = copies_of(base)
    _, (again, _) = copies_of(base)
    _, (other, _) = copies_of(base, seed=1)
    assert torch.equal(first[0]["0.weight"], again[0]["0.weight"])
    assert not torch.equal(first[0]["0.weight"], first[1]["0.weight"])
    assert not torch.equal(first[0]["0.weight"], other[0]["0.weight"])
    assert not torch.equal(second[0]["2.weight"], second[1]["2.weight"])
    bigger = make_multi_task_network(base, [2, 5], [3, 1], 0)
    assert torch.equal(bigger.layers[0].copies[1].state_dict()["0.weight"], first[1]["0.weight"])


def test_perturbed_copies_differ_a_little(tmp_path, state):
    base = build_network(build, SHAPE, saved(state, tmp_path / "w.pt"))
    _, (first, _) = copies_of(base, perturb_copies=0.01)
    one, other = (copy["0.weight"] for copy in first)
    assert not torch.equal(one, other)
    scale = state["0.0.weight"].square().mean().sqrt()
    assert float((one - state["0.0.weight"]).std() / scale) == pytest.approx(0.01, rel=0.3)
    _, (again, _) = copies_of(base, perturb_copies=0.01)
    assert torch.equal(again[1]["0.weight"], other)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("0.0.weight"), r"1 of its weights are missing \(0.0.weight\)"),
        (lambda state: state.update(extra=torch.zeros(1)), r"1 are unknown \(extra\)"),
        (lambda state: state.update({"0.0.weight": torch.zeros(4, 3, 5, 5)}), "size mismatch"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, state, spoil, message):
    spoil(state)
    with pytest.raises(ValueError, match=message):
        build_network(build, SHAPE, saved(state, tmp_path / "w.pt"))


def test_files_that_are_no_weights_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no file .*missing\.pt"):
        build_network(build, SHAPE, str(tmp_path / "missing.pt"))
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(ValueError, match="can be loaded safely"):
        build_network(build, SHAPE, str(tmp_path / "text.pt"))
    torch.save(build(SHAPE), tmp_path / "module.pt")  # code, not weights
    with pytest.raises(ValueError, match="can be loaded safely"):
        build_network(build, SHAPE, str(tmp_path / "module.pt"))
    with pytest.raises(ValueError, match="contains no state dict"):
        build_network(build, SHAPE, saved([1, 2], tmp_path / "list.pt"))
    with pytest.raises(ValueError, match="only torchvision's networks have weights by name"):
        build_network(build, SHAPE, "IMAGENET1K_V1")
    with pytest.raises(ValueError, match="does not support pretrained_weights"):
        build_network("digits_convnet", (1, 8, 8), str(tmp_path / "text.pt"))


def test_initialization_beside_pretrained_weights_is_refused(tmp_path, state):
    base = build_network(build, SHAPE, saved(state, tmp_path / "w.pt"))
    with pytest.raises(ValueError, match="would overwrite the pretrained weights"):
        make_multi_task_network(base, [2], [1, 1], 0, "he_uniform")


def test_weights_of_torchvision_come_from_its_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with torch.random.fork_rng():
        model = make_torchvision_model("resnet18", SHAPE)
    cached = tmp_path / "hub" / "checkpoints" / ResNet18_Weights.IMAGENET1K_V1.url.rsplit("/", 1)[-1]
    cached.parent.mkdir(parents=True)
    torch.save(model.state_dict(), cached)
    grey = make_torchvision_model("resnet18", (1, 16, 16), "IMAGENET1K_V1").eval()
    images = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(grey(images), model.eval()(images.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)


def test_weights_that_cannot_be_downloaded_say_what_to_do(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(ValueError, match=r"https://download.pytorch.org/\S+.pth: .*no route.*put that file at \S+hub"):
        make_torchvision_model("resnet18", SHAPE, "DEFAULT")
    with pytest.raises(ValueError, match=r"no weights named .IMAGENET22K..*IMAGENET1K_V1"):
        make_torchvision_model("resnet18", SHAPE, "IMAGENET22K")


def test_learned_layers_by_pattern():
    base = build_network("resnet18_cifar100", (3, 8, 8))
    chosen = choose_learned_layers(base, ["stem", "stage[34]_*"])
    assert [layer.name for layer in chosen.learned_layers] == [
        "stem",
        *(f"stage{s}_block{b}" for s in (3, 4) for b in (1, 2)),
    ]
    assert chosen.prior_layers == 0
    assert choose_learned_layers(base, ["*"]).prior_layers == 4
    assert choose_learned_layers(base, None) is base
    with pytest.raises(ValueError, match=r"'layer3.\*' matches none.*stage1_block1"):
        choose_learned_layers(base, ["stage1*", "layer3.*"])
    with pytest.raises(ValueError, match="at least one layer must be chosen"):
        choose_learned_layers(base, [])
