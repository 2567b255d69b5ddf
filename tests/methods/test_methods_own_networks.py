"""Whole runs with torchvision's and users' networks."""

import sys

import pytest
import torch
from fakes import write_cifar100
from small import assert_same, digits, learned, state_of
from torch import nn
from torchvision.models import VisionTransformer, resnet18

from lws_lightning import LearnedWeightSharing
from lws_lightning.methods import inference_costs
from lws_lightning.sharing import standalone_network

OWN = """
from torch import nn

def build(image_shape):
    conv = nn.Sequential(nn.Conv2d(image_shape[0], 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Dropout(0.3))
    dense = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.LazyLinear(8), nn.ReLU())
    return nn.Sequential(conv, dense, nn.Linear(8, 1))
"""
QUIET = (
    "--trainer.enable_progress_bar",
    "false",
    "--trainer.enable_model_summary",
    "false",
    "--trainer.logger",
    "false",
)


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_dropout.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_dropout:build"
    sys.modules.pop("own_dropout")


def test_dropout_resumes_bit_for_bit(lws, own, tmp_path):
    common = ("fit", "--data", "Digits", "--data.train_images_per_task", 40, "--data.batch_size", 4)
    model = ("--model", "LearnedWeightSharing", "--model.network", own, "--model.weights_per_layer", 2)
    saving = ("--trainer.callbacks", "ModelCheckpoint", "--trainer.callbacks.save_last", "true")

    def fit(name, steps, *more):
        folder = tmp_path / name
        options = ("--trainer.max_steps", steps, "--trainer.default_root_dir", folder, "--trainer.accelerator", "cpu")
        lws(*common, *model, *QUIET, *saving, *options, *more)
        (path,) = folder.rglob("last.ckpt")
        return path

    def weights(path):
        return torch.load(path, weights_only=True)["state_dict"]

    whole, half = fit("whole", 4), fit("half", 2)
    assert_same(weights(fit("resumed", 4, "--ckpt_path", half)), weights(whole))
    with pytest.raises(ValueError, match="trust_network"):
        LearnedWeightSharing.load_from_checkpoint(whole)


def test_dropout_is_the_same_in_several_passes(quiet_trainer, own):
    def fit(**options):
        data = digits()
        module = learned(data, network=own, weights_per_layer=2, **options)
        quiet_trainer(max_steps=2, precision="64-true").fit(module, datamodule=data)
        return state_of(module)

    whole, split, other = fit(seed=1), fit(seed=1, max_images_per_pass=8), fit(seed=2)
    for name, tensor in whole.items():
        torch.testing.assert_close(split[name], tensor, rtol=1e-9, atol=1e-9, msg=name)
    assert not torch.equal(other["network.heads.0.weight"], whole["network.heads.0.weight"])


def test_dropout_draws_other_masks_in_every_step(quiet_trainer, own):
    data = digits()
    module = learned(data, network=own, weights_per_layer=1, lr=1e-30, sgd_samples=1)
    quiet_trainer(max_steps=1).fit(module, datamodule=data)
    images, population = torch.rand(len(data.task_names), 4, 1, 8, 8), torch.zeros(1, 2, 3, dtype=torch.int64)
    population = population[:, :, :1].expand(-1, -1, len(data.task_names))
    module.train()
    first = module.network(images, population)[0].detach()
    assert torch.equal(module.network(images, population)[0], first)  # the seeds of the last step
    quiet_trainer(max_steps=2).fit(module, datamodule=data)
    module.train()
    assert not torch.allclose(module.network(images, population)[0], first)


def test_lws_fit_with_a_pretrained_network_of_torchvision(lws, tmp_path):
    write_cifar100(tmp_path / "data")
    model = resnet18()
    nn.init.constant_(model.layer4[1].bn2.weight, 0.25)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    arguments = (
        *("fit", "--data", "CIFAR100CoarseLabel", "--data.root", tmp_path / "data", "--data.batch_size", 2),
        *("--data.tasks", "[aquatic_mammals, fish]", "--trainer.max_steps", 2, "--trainer.limit_val_batches", 1),
        *("--model", "LearnedWeightSharing", "--model.network", "torchvision:resnet18", "--model.weights_per_layer", 2),
        *("--model.learned_layers", "[layer4.*]", "--model.pretrained_weights", tmp_path / "weights.pt"),
        *("--model.nes_samples", 2, "--model.sgd_samples", 2, "--model.lr", 1e-6, "--trainer.accelerator", "cpu"),
        *("--trainer.callbacks", "ModelCheckpoint", "--trainer.callbacks.save_last", "true", *QUIET),
    )
    lws(*arguments)
    (path,) = tmp_path.rglob("last.ckpt")
    (tmp_path / "weights.pt").unlink()  # the checkpoint does without
    module = LearnedWeightSharing.load_from_checkpoint(path)
    assert module.layer_names == ["layer4.0", "layer4.1"]
    assert module.weights_per_layer == [2, 2]
    norms = [copy[0].bn2 if isinstance(copy, nn.Sequential) else copy.bn2 for copy in module.network.layers[-1].copies]
    for norm in norms:
        torch.testing.assert_close(norm.weight, torch.full((512,), 0.25), rtol=0, atol=1e-4)
    logits = module.eval()(torch.rand(3, 3, 32, 32), "fish")
    assert logits.shape == (3, 5)


def small_vit(image_shape):
    vit = VisionTransformer(
        8, 4, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=16, dropout=0.1, attention_dropout=0.1
    )
    vit.conv_proj = nn.Conv2d(image_shape[0], 8, 4, stride=4)
    return vit


def test_a_vision_transformer_trains_and_leaves_a_network_of_plain_torch(quiet_trainer, tmp_path):
    data = digits()
    module = learned(data, network=small_vit, weights_per_layer=2)
    quiet_trainer(max_steps=2).fit(module, datamodule=data)
    assert inference_costs(module)[module.task_names[0]]["multiply_adds"] > 0
    module.eval()
    images = torch.rand(3, 1, 8, 8)
    plain = standalone_network(module.network.task_modules(module.assignment, 1), ["a", "b", "c", "head"], task=1)
    torch.testing.assert_close(plain(images), module(images, 1), rtol=1e-5, atol=1e-6)
    assert not [part for part in plain.modules() if type(part).__module__.startswith("lws_lightning")]
    batch = {"input": {0: torch.export.Dim("batch", min=1, max=64)}}
    exported = torch.export.export(plain, (images,), dynamic_shapes=batch).module()
    torch.testing.assert_close(exported(images[:2]), plain(images[:2]))
