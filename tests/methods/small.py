"""Small runs shared by the tests of the methods."""

import json

import torch
from torch import nn

from lws_lightning import Digits, FixedSharing, LearnedWeightSharing
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_


def tiny_network(image_shape):
    """One convolutional and one dense layer; learns on 8x8 images in milliseconds."""
    channels, height, width = image_shape
    conv = nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    dense = nn.Sequential(nn.Flatten(), nn.Linear(4 * (height // 2) * (width // 2), 8), nn.ReLU())
    layers = [BaseLayer("conv", conv), BaseLayer("dense", dense)]
    return BaseNetwork(layers, lambda classes: nn.Linear(8, classes), 1, he_uniform_)


def digits(**options):
    return Digits(**{"train_images_per_task": 40, "batch_size": 4, **options})


def learned(data, **options):
    defaults = {"network": tiny_network, "nes_samples": 4, "sgd_samples": 3, "nes_lr": 0.1}
    return LearnedWeightSharing(**{**defaults, **data.task_info, **options})


def fixed(data, sharing="full", **options):
    return FixedSharing(sharing, **{"network": tiny_network, **data.task_info, **options})


def state_of(module, trainer=None):
    """Everything that a checkpoint must restore, as a flat dict of tensors."""
    state = {key: value.clone() for key, value in module.state_dict().items()}
    if trainer is not None:
        for number, moments in trainer.optimizers[0].state_dict()["state"].items():
            state |= {f"adam.{number}.{key}": torch.as_tensor(value).clone() for key, value in moments.items()}
    return state


def assert_same(one, other):
    assert one.keys() == other.keys()
    different = [key for key in one if not torch.equal(one[key], other[key])]
    assert not different


def equal_layers(image_shape):
    """A convolution, then three equal ones with pooling."""
    channels, height, width = image_shape

    def block(inputs, *pool):
        return nn.Sequential(nn.Conv2d(inputs, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), *pool)

    layers = [BaseLayer("first", block(channels))]
    layers += [BaseLayer(name, block(4, nn.MaxPool2d(2))) for name in ("a", "b", "c")]

    def make_head(classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(4 * (height // 8) * (width // 8), classes))

    return BaseNetwork(layers, make_head, 1, he_uniform_)


def make(kind, data, **options):
    return kind(**{"network": tiny_network, **data.task_info, **options})


def batch_of(data):
    data.setup("fit")
    return data.train_dataloader().dataset[0].sgd


def losses_and_gradients(module, batch, population=None):
    """Losses `(S, T)` and the gradient of what is minimised, by name, in float64."""
    module.double()
    module.manual_backward = lambda loss: loss.backward()
    for parameter in module.parameters():
        parameter.grad = None
    population = module.assignment.unsqueeze(0) if population is None else population
    losses = module.update.losses(batch, population, module.update.tasks_in_training(), backward=True)
    penalty = module.scheme.penalty()
    if penalty is not None:
        penalty.backward()
    return losses, {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def assert_resumes_bit_for_bit(kind, tmp_path, quiet_trainer, data_options=None, **options):
    """Two steps, a checkpoint and two more steps equal four steps."""

    def run(name, steps, **fit):
        data = digits(**(data_options or {}))
        module = make(kind, data, **options)
        trainer = quiet_trainer(
            max_steps=steps, val_check_interval=1, check_val_every_n_epoch=None, default_root_dir=tmp_path / name
        )
        trainer.fit(module, datamodule=data, **fit)
        assert trainer.global_step == steps
        return module, trainer

    whole, whole_trainer = run("whole", 4)
    _, half_trainer = run("half", 2)
    path = tmp_path / "half.ckpt"
    half_trainer.save_checkpoint(path)
    resumed, resumed_trainer = run("resumed", 4, ckpt_path=path)
    assert_same(state_of(resumed, resumed_trainer), state_of(whole, whole_trainer))
    again = kind.load_from_checkpoint(path, network=options.get("network", tiny_network))
    assert again.hparams.keys() >= options.keys() - {"network"}
    (record,) = (tmp_path / "whole").rglob("result.json")
    return json.loads(record.read_text())
