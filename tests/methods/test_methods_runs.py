"""Whole runs: counting, interruptions, refusals, evaluation, the Trainer's options."""

import signal
from pathlib import Path

import pytest
import torch
from fakes import Tiny
from lightning.pytorch import seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from saved_runs import Recorder, checkpointing, load
from small import assert_same, digits, learned, state_of, tiny_network

from lws_lightning import LearnedWeightSharing, NonFiniteError


def test_global_step_counts_training_steps(tmp_path, quiet_trainer, monkeypatch):
    data, updates = digits(), []
    module = learned(data)
    original = module.distribution.update
    monkeypatch.setattr(module.distribution, "update", lambda *a: (updates.append(1), original(*a)))
    callback = checkpointing(tmp_path, every_n_train_steps=3)
    trainer = quiet_trainer(max_steps=7, callbacks=[callback], enable_checkpointing=True, limit_val_batches=0)
    trainer.fit(module, datamodule=data)
    assert trainer.global_step == len(updates) == 7
    assert {int(s["step"]) for s in trainer.optimizers[0].state.values()} == {7}
    assert sorted(path.name for path in (tmp_path / "ckpt").iterdir()) == [f"step={step}.ckpt" for step in (3, 6, 7)]


def test_a_second_ctrl_c_within_a_step_saves_the_last_complete_one(tmp_path, quiet_trainer, monkeypatch):
    data = digits()
    module = learned(data)
    original, recorder = module.update.gradients, Recorder()

    def interrupted(*arguments, **options):
        if module.global_step == 5:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(module.update, "gradients", interrupted)
    callback = checkpointing(tmp_path)
    trainer = quiet_trainer(max_steps=9, callbacks=[recorder, callback], enable_checkpointing=True)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trainer.fit(module, datamodule=data)
    (path,) = (tmp_path / "ckpt").iterdir()
    saved = load(path)
    assert saved["global_step"] == 5
    assert_same(saved["state_dict"], {k: v for k, v in recorder.states[5].items() if not k.startswith("adam")})

    unbroken_data = digits()
    unbroken = learned(unbroken_data)
    straight = quiet_trainer(max_steps=9)
    straight.fit(unbroken, datamodule=unbroken_data)
    again_data, recorder = digits(), Recorder()
    again = learned(again_data)
    logger = CSVLogger(tmp_path / "resumed")
    options = {"val_check_interval": 3, "check_val_every_n_epoch": None, "log_every_n_steps": 1}
    resumed = quiet_trainer(max_steps=9, callbacks=[recorder], logger=logger, **options)
    resumed.fit(again, datamodule=again_data, ckpt_path=path)
    assert_same(state_of(again, resumed), state_of(unbroken, straight))
    assert recorder.evaluations == [6, 9]
    lines = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()
    columns = {name: number for number, name in enumerate(lines[0].split(","))}
    rows = [line.split(",") for line in lines[1:]]
    assert [int(row[columns["step"]]) for row in rows if row[columns["train/loss"]]] == [5, 6, 7, 8]


def test_ctrl_c_within_an_update_waits_for_its_end(quiet_trainer, monkeypatch):
    data = digits()
    module = learned(data)
    original = module.network.commit_running_stats

    def interrupted():
        signal.raise_signal(signal.SIGINT)
        original()

    monkeypatch.setattr(module.network, "commit_running_stats", interrupted)
    trainer = quiet_trainer(max_steps=9)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trainer.fit(module, datamodule=data)
    assert trainer.global_step == 1
    assert {int(s["step"]) for s in trainer.optimizers[0].state.values()} == {1}


@pytest.mark.parametrize("where", ["nes", "sgd", "gradient"])
def test_what_is_not_finite_never_arrives(tmp_path, quiet_trainer, monkeypatch, where):
    data, recorder = digits(), Recorder()
    module = learned(data)
    original = module.network.forward
    calls = []

    def poisoned(images, population, **options):
        logits = original(images, population, **options)
        calls.append(len(calls))
        if len(calls) == {"nes": 7, "sgd": 8, "gradient": 8}[where]:  # in the fourth step
            if where == "gradient":
                logits[1].register_hook(lambda grad: grad * float("inf"))
            else:
                logits[1] = logits[1] * float("nan")
        return logits

    monkeypatch.setattr(module.network, "forward", poisoned)
    callback = checkpointing(tmp_path)
    trainer = quiet_trainer(max_steps=9, callbacks=[recorder, callback], enable_checkpointing=True)
    with pytest.raises(NonFiniteError, match=r"Step 3: .*upright_parity") as error:
        trainer.fit(module, datamodule=data)
    assert "clip_grad_norm" in str(error.value)
    assert trainer.global_step == 3
    assert_same(state_of(module, trainer), recorder.states[3])
    (path,) = (tmp_path / "ckpt").iterdir()
    assert load(path)["global_step"] == 3


def test_a_diverging_run_stops_by_itself(quiet_trainer):
    data = digits()
    module = learned(data, lr=1e30)
    with pytest.raises(NonFiniteError):
        quiet_trainer(max_steps=20).fit(module, datamodule=data)
    assert all(bool(torch.isfinite(p).all()) for p in module.network.parameters())
    assert bool(torch.isfinite(module.distribution.probs).all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_clip_val": 1.0}, r"model\.clip_grad_norm"),
        ({"accumulate_grad_batches": 2}, r"data\.batch_size"),
        ({"callbacks": [EarlyStopping("test_curve/error")]}, r"data\.validation: split"),
        ({"callbacks": [ModelCheckpoint(monitor="test_curve/error")], "enable_checkpointing": True}, "selection"),
    ],
)
def test_trainer_options_that_cannot_work_are_refused_before_data_are_read(quiet_trainer, options, message):
    data = Tiny()
    trainer = quiet_trainer(max_steps=2, **options)
    module = learned(data)
    with pytest.raises(ValueError, match=message):
        trainer.fit(module, datamodule=data)
    assert data.loads == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nes_samples": 1}, "nes_samples"),
        ({"sgd_samples": 0}, "sgd_samples"),
        ({"nes_lr": -0.1}, "nes_lr"),
        ({"lr": 0.0}, "lr must be positive"),
        ({"clip_grad_norm": 0.0}, "clip_grad_norm"),
        ({"weights_per_layer": 1001}, "min_probability"),
        ({"weights_per_layer": [3]}, "weights_per_layer has 1 entries.*'conv', 'dense'"),
        ({"network": "resnet1001"}, "no network named 'resnet1001'.*dkl_convnet"),
        ({"network": "dkl_convnet", "image_shape": [1, 4, 4]}, "4x4"),
        ({"task_names": ["a", "a", "b", "c"]}, "differ from each other"),
        ({"num_classes": [3]}, "task_info"),
    ],
)
def test_bad_options_name_themselves(options, message):
    with pytest.raises(ValueError, match=message):
        learned(digits(), **options)


class OddNames(Tiny):
    class_counts = {"a.b": 3, "train": 4, "été/2 (x)": 5}  # noqa: RUF012
    sizes = {"a.b": (40, 11, 0), "train": (64, 9, 0), "été/2 (x)": (12, 1, 0)}  # noqa: RUF012


def test_names_of_tasks_may_be_anything(tmp_path, quiet_trainer):
    data = OddNames(batch_size=16)  # one task has fewer images than that
    module = learned(data)
    callback = checkpointing(tmp_path, every_n_train_steps=2)
    logger = CSVLogger(tmp_path / "log")
    trainer = quiet_trainer(max_epochs=1, callbacks=[callback], logger=logger, enable_checkpointing=True)
    trainer.fit(module, datamodule=data)
    assert {f"test_curve/error/{name}" for name in data.task_names} <= trainer.callback_metrics.keys()
    loaded = LearnedWeightSharing.load_from_checkpoint(tmp_path / "ckpt/step=4.ckpt", network=tiny_network)
    assert loaded.task_names == list(OddNames.class_counts)
    assert "été/2 (x)" in (Path(logger.log_dir) / "result.json").read_text()


def test_errors_are_means_over_images_and_over_tasks(quiet_trainer):
    data = Tiny(evaluation_batch_size=4)
    module = learned(data)
    trainer = quiet_trainer(max_steps=3, val_check_interval=3, check_val_every_n_epoch=None)
    trainer.fit(module, datamodule=data)
    module.eval()
    wrong, images, loss = {}, {}, 0.0
    for name, (inputs, labels) in zip(data.task_names, data.examples("test"), strict=True):
        logits = module(inputs, name)
        wrong[name], images[name] = int((logits.argmax(1) != labels).sum()), len(labels)
        loss += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
    metrics = trainer.callback_metrics
    assert metrics["test_curve/error"].item() == pytest.approx(100 * sum(wrong.values()) / 21)
    task_errors = [100 * wrong[name] / images[name] for name in data.task_names]
    assert metrics["test_curve/error_task_mean"].item() == pytest.approx(sum(task_errors) / 3)
    assert metrics["test_curve/error/c"].item() == pytest.approx(task_errors[2])
    assert metrics["test_curve/loss"].item() == pytest.approx(loss / 21, rel=1e-5)


def test_tasks_without_data_are_left_out_of_the_mean(quiet_trainer):
    data = Tiny()
    module = learned(data)
    trainer = quiet_trainer(max_steps=2, val_check_interval=2, check_val_every_n_epoch=None, limit_val_batches=1)
    trainer.fit(module, datamodule=data)
    assert list(module.evaluations["test_curve"].tasks) == ["a"]
    assert trainer.callback_metrics["test_curve/error_task_mean"].isfinite()


@pytest.mark.parametrize(
    "options",
    [
        {"overfit_batches": 1, "max_epochs": 2},
        {"fast_dev_run": True},
        {"limit_train_batches": 2, "limit_val_batches": 1, "max_epochs": 1},
        {"max_epochs": 1, "profiler": "simple"},
    ],
)
def test_trainer_options_that_users_expect(quiet_trainer, monkeypatch, options):
    data, seen = digits(), []
    module = learned(data)
    original = module.update.gradients
    monkeypatch.setattr(
        module.update, "gradients", lambda b, p, **o: (seen.append(b.images.clone()), original(b, p, **o))[1]
    )
    quiet_trainer(**options).fit(module, datamodule=data)
    assert all(images.shape[:2] == (4, 4) for images in seen)
    if "overfit_batches" in options:
        assert len(seen) == 2
        assert torch.equal(seen[0], seen[1])


def test_the_seed_of_seed_everything_is_the_seed(quiet_trainer):
    seed_everything(5)
    data = digits()
    by_environment, by_option = learned(data), learned(data, seed=5)
    assert by_environment.seed == 5
    assert_same(state_of(by_environment), state_of(by_option))
    assert not torch.equal(*(learned(data, seed=s).network.heads[0].weight for s in (5, 6)))


def test_a_fit_that_fails_leaves_the_signals_as_they_were(quiet_trainer):
    data = digits()
    module = learned(data)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def fail(*arguments):
        raise RuntimeError("in a step")

    module.update.apply = fail
    with pytest.raises(RuntimeError, match="in a step"):
        quiet_trainer(max_steps=3).fit(module, datamodule=data)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
