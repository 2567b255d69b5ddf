"""A linear head for each task on a frozen network."""

import json

import pytest
import torch
from small import assert_same, digits, make, state_of
from torch import nn
from torch.nn import functional as F

from lws_lightning import LinearProbe, task_network
from lws_lightning.methods import method_from_checkpoint
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_
from lws_lightning.training import choose_penalty, fit_linear, linear

linear_model = pytest.importorskip("sklearn.linear_model")


def problem(seed=0, images=60, features=5, classes=3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(images) % classes
    means = torch.randn(classes, features, generator=generator, dtype=torch.float64)
    return means[labels] + torch.randn(images, features, generator=generator, dtype=torch.float64), labels, classes


@pytest.mark.parametrize("penalty", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_minimum_is_scikit_learns(penalty, classes):
    features, labels, _ = problem(classes=classes)
    ours = fit_linear(features, labels, classes, penalty)
    assert ours.shape == (classes, 6)
    if classes == 2:  # scikit-learn has one weight vector for two classes, whose difference is ours
        theirs = linear_model.LogisticRegression(C=2 / (penalty * len(labels)), tol=1e-10, max_iter=10_000)
        theirs.fit(features.numpy(), labels.numpy())
        torch.testing.assert_close(ours[1, :-1] - ours[0, :-1], torch.tensor(theirs.coef_[0]), rtol=1e-3, atol=1e-4)
        return
    theirs = linear_model.LogisticRegression(C=1 / (penalty * len(labels)), tol=1e-10, max_iter=10_000)
    theirs.fit(features.numpy(), labels.numpy())
    torch.testing.assert_close(ours[:, :-1], torch.tensor(theirs.coef_), rtol=1e-3, atol=1e-4)
    bias = torch.tensor(theirs.intercept_)
    torch.testing.assert_close(ours[:, -1] - ours[:, -1].mean(), bias - bias.mean(), rtol=1e-3, atol=1e-4)


def test_the_solution_does_not_depend_on_the_start():
    data = problem()
    start = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = [fit_linear(*data, 0.01, begin)[:, :-1] for begin in (None, start)]
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spread", [0, 4])
def test_more_features_than_images_and_features_of_any_scale(spread):
    features, labels, classes = problem(images=24, features=40)
    features = features * 10 ** torch.linspace(-spread / 2, spread / 2, 40, dtype=torch.float64)
    solution = fit_linear(features, labels, classes, 1e-3)
    at = solution.clone().requires_grad_(True)
    loss = F.cross_entropy(F.linear(features, at[:, :-1], at[:, -1]), labels) + 5e-4 * at[:, :-1].square().sum()
    loss.backward()
    assert float(at.grad.abs().max()) < 1e-5 * 10 ** (spread / 2)  # the minimum of a convex function
    # The weights lie in the space of the examples.
    outside = solution[:, :-1] @ (torch.eye(40) - torch.linalg.pinv(features) @ features)
    assert float(outside.abs().max()) < 1e-8


def test_penalties_below_the_best_are_left_out_once_the_loss_has_risen_three_times(monkeypatch):
    features, labels, classes = problem(images=90)
    noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    tried = []
    original = linear._fit_rotated
    monkeypatch.setattr(linear, "_fit_rotated", lambda *a: tried.append(a[3]) or original(*a))
    penalties = [10.0**exponent for exponent in range(-6, 4)]
    assert choose_penalty(noise, labels, classes, penalties, torch.Generator().manual_seed(0)) == max(tried)
    assert tried == sorted(penalties, reverse=True)[: len(tried)]
    assert len(tried) < len(penalties)


def test_noise_gets_a_large_penalty_and_clear_classes_a_small_one():
    def chosen(features, labels, classes):
        return choose_penalty(features, labels, classes, [1e-4, 1e-1, 1e3], torch.Generator().manual_seed(0))

    features, labels, classes = problem(images=90)
    noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert chosen(noise, labels, classes) == 1e3
    assert chosen(10 * features, labels, classes) < 1e3
    assert chosen(features[:2], labels[:2], classes) == 1e3  # nothing can be held out


def wide_network(shape):
    return BaseNetwork(
        [BaseLayer("dense", nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU()))],
        lambda classes: nn.Linear(32, classes), 1, he_uniform_,
    )  # fmt: skip


def fit(quiet_trainer, data=None, steps=50, ckpt_path=None, penalties=(0.1,), **options):
    data = data or digits(train_images_per_task=100)
    module = make(LinearProbe, data, penalties=list(penalties), **options)
    before = state_of(module)
    trainer = quiet_trainer(max_steps=steps, enable_checkpointing=False)
    trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    return module, before, trainer, data


@pytest.mark.parametrize(("cache", "images"), [("memory", 100), ("off", 100), ("memory", 20)])
def test_a_fit_is_one_step_with_the_minimum_of_each_task(cache, images, quiet_trainer, tmp_path):
    data = digits(train_images_per_task=images)  # 20: fewer than features
    module, before, trainer, data = fit(
        quiet_trainer, data, network=wide_network, feature_cache=cache, penalties=(1e-3, 1e-1)
    )
    assert trainer.global_step == 1
    changed = {name for name, tensor in state_of(module).items() if not torch.equal(tensor, before[name])}
    heads = {f"network.heads.{task}.{part}" for task in range(len(data.task_names)) for part in ("weight", "bias")}
    assert changed == heads | {"penalty_of_task"}
    for task, (images, labels) in enumerate(data.examples("train")):
        with torch.no_grad():
            features = images / 255
            for layer in module.network.eval().layers:
                features = layer.copies[0](features)
        head, penalty = module.network.heads[task], float(module.penalty_of_task[task])
        weights = nn.Parameter(head.weight.detach().clone())
        scale = (features - features.mean(0)).square().mean()
        loss = (
            F.cross_entropy(F.linear(features, weights, head.bias), labels)
            + penalty * scale / 2 * weights.square().sum()
        )
        loss.backward()
        assert float(weights.grad.norm() / weights.norm()) < 1e-4
    assert module.evaluations["test_curve"].step == 1
    (record,) = (tmp_path / "runs").rglob("result.json") if (tmp_path / "runs").exists() else (None,)
    if record is not None:
        run = json.loads(record.read_text())
        assert (run["method"], run["status"], run["stopped_by"]) == ("probe", "finished", "its method")
        assert run["details"]["linear_probe"].keys() == set(data.task_names)
    trainer.save_checkpoint(tmp_path / "probe.ckpt")
    again = LinearProbe.load_from_checkpoint(tmp_path / "probe.ckpt", network=wide_network)
    assert_same(state_of(again), state_of(module))
    resumed, *_ = fit(
        quiet_trainer, data, ckpt_path=tmp_path / "probe.ckpt", network=wide_network, penalties=(1e-3, 1e-1)
    )
    assert_same(state_of(resumed), state_of(module))
    images = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(task_network(module, 0)(images), module.eval()(images, 0))


def test_the_average_of_the_weights_is_the_solution(quiet_trainer):
    module, *_ = fit(quiet_trainer, ema_decay=0.99)
    assert torch.equal(module.average.heads[0].weight, module.network.heads[0].weight)
    trained = sum(parameter.numel() for head in module.network.heads for parameter in head.parameters())
    assert module.details()["trained_parameters_in_use"] == trained


def test_augmented_views_are_further_images(quiet_trainer):
    options = {"augmentation": ["RandomHorizontalFlip"], "augmentation_views": 2, "train_images_per_task": 40}
    module, *_ = fit(quiet_trainer, digits(**options))
    plain, *_ = fit(quiet_trainer, digits(train_images_per_task=40))
    assert not torch.equal(module.network.heads[0].weight, plain.network.heads[0].weight)


def test_the_command_fits_probes_and_exports_them(lws, tmp_path):
    lws(
        "fit", "--data", "Digits", "--data.train_images_per_task", 60, "--model", "LinearProbe",
        "--model.network", "digits_convnet", "--trainer.max_steps", 4000, "--trainer.accelerator", "cpu",
        "--trainer.default_root_dir", tmp_path, "--trainer.callbacks", "ModelCheckpoint",
        "--trainer.callbacks.save_last", "true",
        "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false",
        "--trainer.val_check_interval", 200, "--trainer.check_val_every_n_epoch", "null",
    )  # fmt: skip
    (record,) = tmp_path.rglob("result.json")
    run = json.loads(record.read_text())
    assert (run["status"], run["step"]) == ("finished", 1)
    assert run["evaluation"]["error"] < 40
    (checkpoint,) = tmp_path.rglob("last.ckpt")
    assert isinstance(method_from_checkpoint(checkpoint), LinearProbe)
    lws("export", "--ckpt_path", checkpoint, "--all_tasks", "--format", "state_dict", "--out", tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_what_cannot_work_is_refused(quiet_trainer):
    with pytest.raises(ValueError, match="penalties must be positive"):
        make(LinearProbe, digits(), penalties=[0.0])
    data = digits()
    module = make(LinearProbe, data)
    data.setup("fit")
    with pytest.raises(ValueError, match="needs all training images at once"):
        quiet_trainer(max_steps=1).fit(module, data.train_dataloader())
