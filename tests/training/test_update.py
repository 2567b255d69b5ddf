"""The weight update alone, without a Trainer."""

import copy

import pytest
import torch
from small import batch_of, digits, learned, tiny_network
from torch.nn import functional as F

from lws_lightning.batches import StepBatch
from lws_lightning.methods import Blueprint, FixedScheme, LearnedScheme
from lws_lightning.training import EarlyStopping, Engine, NonFiniteError, Objective, WeightUpdate, to_inputs

EXACT = {"rtol": 1e-10, "atol": 1e-12}


def blueprint_of(data, seed=3):
    info = data.task_info
    shape = info["image_shape"]
    return Blueprint(tiny_network(shape), info["task_names"], info["num_classes"], shape, seed)


def counts(*wrong):
    return torch.tensor([[9, each] for each in wrong])


def update_of(scheme, names, lr=0.01, **options):
    scheme.network.double()
    optimizer = torch.optim.SGD(scheme.network.parameters(), lr=lr, momentum=0.9)
    return WeightUpdate(scheme.network, Objective(len(names)), Engine(optimizer), names, seed=3, **options)


@pytest.mark.parametrize("max_images", [None, 4])
def test_a_step_is_that_of_the_mean_loss(max_images):
    data = digits()
    batch = batch_of(data)
    scheme = FixedScheme(blueprint_of(data), "full")
    plain = copy.deepcopy(scheme.network).double()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    update = update_of(scheme, data.task_names, max_images_per_pass=max_images)
    for step in range(3):
        assert update.step == step
        scheme.step(update, StepBatch(batch, batch))
        optimizer.zero_grad()
        inputs = to_inputs(batch.images, torch.float64)
        outputs = [plain.forward_task(inputs[task], scheme.assignment, task) for task in range(4)]
        losses = [F.cross_entropy(out, label) for out, label in zip(outputs, batch.labels, strict=True)]
        torch.stack(losses).mean().backward()
        optimizer.step()
    for ours, theirs in zip(scheme.network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


def test_learned_sharing_runs_without_a_trainer_as_within_one(quiet_trainer):
    """The same populations, losses and steps: pi and weights equal those of a fit, bit for bit."""
    data = digits()
    module = learned(data, seed=3)
    trainer = quiet_trainer(max_steps=4, limit_val_batches=0, precision="64-true")
    options = {"nes_samples": 4, "sgd_samples": 3, "nes_lr": 0.1}
    scheme = LearnedScheme(blueprint_of(data), **options)
    scheme.distribution.double()
    trainer.fit(module, datamodule=data)
    scheme.network.double()
    optimizer = torch.optim.Adam(scheme.network.parameters(), lr=1e-3, eps=1e-8, fused=True)
    update = WeightUpdate(scheme.network, Objective(4), Engine(optimizer), data.task_names, seed=3)
    data.setup("fit")
    batches = data.train_dataloader().dataset
    for step in range(4):
        scheme.step(update, batches[step])
    torch.testing.assert_close(scheme.distribution.probs, module.distribution.probs.double(), rtol=0, atol=0)
    for ours, theirs in zip(scheme.network.parameters(), module.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_gradient_that_is_not_finite_names_the_tasks_that_use_the_weights():
    data = digits()
    batch = batch_of(data)
    scheme = FixedScheme(blueprint_of(data), "none")
    update = update_of(scheme, data.task_names)
    before = copy.deepcopy(scheme.network.state_dict())
    weights = scheme.network.layers[1].copies[2][1].weight  # that of the third task
    weights.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(NonFiniteError, match="the gradient of weights that task 'scrambled_digit' uses"):
        scheme.step(update, StepBatch(batch, batch))
    assert all(torch.equal(before[name], value) for name, value in scheme.network.state_dict().items())
    assert update.step == 0


def test_a_stopped_task_leaves_shared_weights_to_the_others():
    data = digits()
    batch = batch_of(data)
    scheme = FixedScheme(blueprint_of(data), "full")
    stopping = EarlyStopping(scheme.unshared(), patience=1)
    update = update_of(scheme, data.task_names, stopping=stopping)
    stopping.double()
    stopping.judge(scheme.network, scheme.assignment, counts(3, 3, 3, 3), 0, data.task_names)
    assert stopping.judge(scheme.network, scheme.assignment, counts(3, 2, 2, 2), 1, data.task_names) == [
        f"{data.task_names[0]} stops; its best step was 0."
    ]
    kept = scheme.network.forward_task(to_inputs(batch.images, torch.float64)[0], scheme.assignment, 0)
    head = copy.deepcopy(scheme.network.heads[0].state_dict())
    conv = scheme.network.layers[0].copies[0][0].weight.clone()
    metrics = scheme.step(update, StepBatch(batch, batch))
    assert torch.isfinite(metrics["train/loss"])
    assert not torch.equal(scheme.network.layers[0].copies[0][0].weight, conv)
    assert all(torch.equal(head[name], value) for name, value in scheme.network.heads[0].state_dict().items())
    best = stopping.best.forward_task(to_inputs(batch.images, torch.float64)[0], stopping.best_assignment, 0)
    torch.testing.assert_close(best, kept, **EXACT)
