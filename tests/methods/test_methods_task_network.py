"""A task's network as a plain module, and what a checkpoint stores about the data."""

import copy

import pytest
import torch
from odd_tasks import CLASSES, NAMES, as_network_input, in_unit_range, train
from small import digits, equal_layers, learned, make, tiny_network
from torch import nn

from lws_lightning import (
    CrossStitch,
    FixedSharing,
    IndependentEarlyStopping,
    LearnedWeightSharing,
    RoutingNetworks,
    Sluice,
    SoftLayerOrdering,
    UncertaintyWeighting,
    task_network,
)
from lws_lightning.methods import inference_parameters, method_from_checkpoint
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_
from lws_lightning.training import to_inputs

EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"))


def randomise(method):
    """Gives copies different running statistics and weights."""
    generator = torch.Generator().manual_seed(1)
    for module in method.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.uniform_(-1, 1, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            with torch.no_grad():
                module.weight.uniform_(-1, 1, generator=generator)
    if method.distribution is not None:
        probs = torch.rand(method.distribution.probs.shape, generator=generator)
        state = method.distribution.snapshot() | {"probs": probs / probs.sum(-1, keepdim=True)}
        method.distribution.restore(state)
    return method


@pytest.mark.parametrize(
    "kind", [LearnedWeightSharing, FixedSharing, RoutingNetworks, UncertaintyWeighting, IndependentEarlyStopping]
)
@pytest.mark.parametrize("running_stats", ["mean", "per_task"])
def test_it_computes_what_the_method_does(kind, running_stats):
    data = digits(validation="split")
    options = {"sharing": "none"} if kind is FixedSharing else {}
    options["running_stats"] = running_stats
    method = randomise(make(kind, data, **options)).double().eval()
    images = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    for task, name in enumerate(method.task_names):
        network = task_network(method, name)
        assert type(network) is nn.Sequential
        assert not network.training
        assert {type(part).__module__.split(".")[0] for part in network.modules()} == {"torch"}
        assert sum(p.numel() for p in network.parameters()) == inference_parameters(method, task)
        assert {p.dtype for p in network.parameters()} == {torch.float32}
        exact = copy.deepcopy(method).float().double()  # the same float32 weights, computed in float64
        torch.testing.assert_close(network.double()(images), exact(images, task), **EXACT)


def test_best_weights_of_early_stopping_are_taken():
    data = digits(validation="split")
    method = make(IndependentEarlyStopping, data).eval()
    with torch.no_grad():
        for parameter in method.stopping.best.parameters():
            parameter.add_(1.0)
    method.stopping.best_step[1] = 5
    images = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(
        task_network(method, 1)(images), method.stopping.best.forward_task(images, method.assignment, 1)
    )
    torch.testing.assert_close(
        task_network(method, 0)(images), method.network.forward_task(images, method.assignment, 0)
    )


def test_it_is_independent():
    method = learned(digits()).eval()
    before = {key: value.clone() for key, value in method.state_dict().items()}
    network = task_network(method, 0)
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.zero_()
    assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())
    assert all(parameter.is_contiguous() for parameter in network.parameters())


def test_normalisation_is_part_of_it(checkpoint):
    _, method = checkpoint
    method.eval()
    images = in_unit_range(4)
    for task in range(3):
        network = task_network(method, task)
        torch.testing.assert_close(network(images), method(as_network_input(images), task), rtol=1e-5, atol=1e-5)
        assert sum(p.numel() for p in network.parameters()) == inference_parameters(method, task)
    normalised = network.double()[0](images.double())
    torch.testing.assert_close(normalised, as_network_input(images.double()), rtol=0, atol=1e-6)


def test_odd_names_of_layers_stay_apart():
    def build(image_shape):
        layers = [
            BaseLayer(name, nn.Sequential(nn.Flatten(), nn.Linear(64, 64))) for name in ("a.b", "a_b", "append", "head")
        ]
        return BaseNetwork(layers, lambda classes: nn.Linear(64, classes), 1, he_uniform_)

    method = learned(digits(), network=build).eval()
    images = torch.rand(2, 1, 8, 8)
    network = task_network(method, 0)
    assert [name for name, _ in network.named_children()] == ["a_b", "a_b_2", "append_2", "head", "head_2"]
    torch.testing.assert_close(network(images), method(images, 0))


@pytest.mark.parametrize("kind", [CrossStitch, Sluice, SoftLayerOrdering])
def test_networks_that_mix_are_refused(kind):
    method = make(kind, digits(), network=equal_layers)
    with pytest.raises(NotImplementedError, match=rf"{kind.__name__} has no network for one task alone"):
        task_network(method, 0)


@pytest.mark.parametrize("task", ["upright", 4, -1])
def test_an_unknown_task_is_named(task):
    with pytest.raises(ValueError, match=r"There is no task .*; the tasks are: 'upright_digit', "):
        task_network(learned(digits()), task)


def test_a_checkpoint_says_what_the_data_were(checkpoint):
    path, method = checkpoint
    again = method_from_checkpoint(path)
    assert type(again) is LearnedWeightSharing
    assert again.data_record == method.data_record
    assert again.data_record.preprocessing["mean"] == [0.5, 0.4, 0.3]
    assert again.data_record.preprocessing["size"] == [8, 8]
    assert again.data_record.class_names == [None if CLASSES[n] is None else list(CLASSES[n]) for n in NAMES]
    images = in_unit_range(3)
    assert torch.equal(task_network(again, 1)(images), task_network(method, 1)(images))


def test_what_no_method_of_this_package_saved_is_refused(checkpoint, tmp_path):
    content = torch.load(checkpoint[0], weights_only=True)
    del content["lws_method"]
    torch.save(content, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match=r"other\.ckpt is not a checkpoint of a method of lws_lightning"):
        method_from_checkpoint(tmp_path / "other.ckpt")


def test_data_that_say_nothing_leave_an_empty_record(checkpoint, tmp_path):
    content = torch.load(checkpoint[0], weights_only=True)
    content["lws_data"] = {"preprocessing": None, "class_names": [None] * 3}
    torch.save(content, tmp_path / "silent.ckpt")
    again = method_from_checkpoint(tmp_path / "silent.ckpt")
    assert again.data_record.preprocessing is None
    assert "normalize" not in dict(task_network(again, 0).named_children())


def test_a_checkpoint_imports_no_code_by_itself(checkpoint, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_method.py").write_text("raise SystemError('imported')\n")
    (tmp_path / "evil_network.py").write_text("raise SystemError('imported')\n")
    content = torch.load(checkpoint[0], weights_only=True)
    torch.save({**content, "lws_method": "evil_method.Method"}, tmp_path / "method.ckpt")
    hparams = {**content["hyper_parameters"], "network": "evil_network:build"}
    torch.save({**content, "hyper_parameters": hparams}, tmp_path / "network.ckpt")
    with pytest.raises(ValueError, match=r"outside this package, evil_method\.Method.*--trust_network"):
        method_from_checkpoint(tmp_path / "method.ckpt")
    with pytest.raises(ValueError, match=r"code to import, 'evil_network:build'"):
        method_from_checkpoint(tmp_path / "network.ckpt")
    for name in ("method", "network"):
        with pytest.raises(SystemError, match="imported"):
            method_from_checkpoint(tmp_path / f"{name}.ckpt", trust_network=True)


def test_files_that_are_no_checkpoints_are_named(tmp_path):
    (tmp_path / "text.ckpt").write_text("hello")
    torch.save({"a": 1}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match=r"text\.ckpt cannot be read as a checkpoint"):
        method_from_checkpoint(tmp_path / "text.ckpt")
    with pytest.raises(ValueError, match=r"other\.ckpt is not a checkpoint of a method"):
        method_from_checkpoint(tmp_path / "other.ckpt")
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*none\.ckpt"):
        method_from_checkpoint(tmp_path / "none.ckpt")


def test_a_network_from_python_is_explained(tmp_path, quiet_trainer):
    data = digits()
    method = learned(data)
    trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
    trainer.fit(method, datamodule=data)
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    with pytest.raises(ValueError, match=r"load it with LearnedWeightSharing\.load_from_checkpoint\(FILE, network="):
        method_from_checkpoint(tmp_path / "own.ckpt")


@pytest.mark.parametrize("kind", [CrossStitch, Sluice, SoftLayerOrdering])
def test_methods_that_mix_blocks_keep_statistics_of_each_task_too(kind):
    data = digits()
    network = equal_layers if kind is SoftLayerOrdering else tiny_network
    method = make(kind, data, network=network, running_stats="per_task").double().train()
    data.setup()
    images = to_inputs(data.train_dataloader().dataset[0].sgd.images, method.dtype)
    method.network(images, method.assignment[None])
    method.network.commit_running_stats()
    norms = [norm for norm in method.network.norms() if norm.running_mean.dim() == 2]
    assert norms
    assert all(not torch.equal(norm.running_mean[0], norm.running_mean[1]) for norm in norms)
    method.eval()
    with torch.no_grad():
        together = method.network(images, method.assignment[None])
        for task, logits in enumerate(together):
            own = method.network.forward_task(images[task], method.assignment, task)
            torch.testing.assert_close(own, logits[0], **EXACT)
