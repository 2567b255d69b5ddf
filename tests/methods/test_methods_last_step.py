"""The last step of a run is evaluated and saved, whatever the intervals; and so is what a checkpoint lacks."""

import json

import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, Timer
from lightning.pytorch.loggers import CSVLogger
from saved_runs import Recorder, load
from small import assert_same, digits, fixed, learned, make, state_of

from lws_lightning import IndependentEarlyStopping

BY_STEPS = {"val_check_interval": 4, "check_val_every_n_epoch": None}


def after_evaluations(folder, **options):
    return ModelCheckpoint(
        dirpath=folder, filename="{step}", every_n_epochs=1, save_on_train_epoch_end=False, save_top_k=-1, **options
    )


@pytest.mark.parametrize("steps", [3, 4, 6])
@pytest.mark.parametrize("method", [learned, fixed])
def test_a_run_of_any_length_ends_evaluated_and_saved(quiet_trainer, tmp_path, method, steps):
    data, recorder = digits(), Recorder()
    callback = after_evaluations(tmp_path / "ckpt", save_last=True)
    trainer = quiet_trainer(max_steps=steps, callbacks=[recorder, callback], enable_checkpointing=True, **BY_STEPS)
    trainer.fit(method(data), data)
    assert recorder.evaluations == [step for step in (4,) if step < steps] + [steps]
    record = json.loads(next(tmp_path.rglob("result.json")).read_text())
    assert record["status"] == "finished"
    assert record["evaluation"]["step"] == record["step"] == steps
    for name in ("last.ckpt", f"step={steps}.ckpt"):
        saved = load(tmp_path / "ckpt" / name)
        assert saved["global_step"] == saved["lws_evaluation"]["done"] == steps
    assert callback.best_model_path == str(tmp_path / f"ckpt/step={steps}.ckpt")


@pytest.mark.parametrize(
    "options",
    [
        {"max_epochs": 3, "check_val_every_n_epoch": 2},
        {"max_epochs": 1, "val_check_interval": 7},
        {"max_steps": 5, "check_val_every_n_epoch": 2},
    ],
)
def test_neither_do_epochs_leave_the_end_out(quiet_trainer, tmp_path, options):
    data, recorder = digits(), Recorder()
    trainer = quiet_trainer(callbacks=[recorder], enable_checkpointing=True, **options)
    trainer.fit(learned(data), data)
    assert recorder.evaluations[-1] == trainer.global_step
    assert max(load(path)["global_step"] for path in tmp_path.rglob("*.ckpt")) == trainer.global_step


def test_a_run_that_its_time_ends_is_evaluated_and_saved(quiet_trainer, tmp_path):
    data, recorder = digits(), Recorder()
    trainer = quiet_trainer(
        max_epochs=-1, callbacks=[recorder, Timer({"seconds": 0.2}), after_evaluations(tmp_path)],
        enable_checkpointing=True, val_check_interval=10**6, check_val_every_n_epoch=None,
    )  # fmt: skip
    trainer.fit(learned(data), data)
    assert recorder.evaluations == [trainer.global_step]
    assert load(tmp_path / f"step={trainer.global_step}.ckpt")["lws_evaluation"]["done"] == trainer.global_step


@pytest.mark.parametrize("last", [True, "link"])
def test_one_that_keeps_the_best_has_the_end_as_last(quiet_trainer, tmp_path, last):
    data = digits(validation="split")
    callback = ModelCheckpoint(
        dirpath=tmp_path / "ckpt", filename="{step}", monitor="val/error", every_n_epochs=1, save_last=last
    )
    trainer = quiet_trainer(max_steps=6, callbacks=[callback], enable_checkpointing=True, **BY_STEPS)
    trainer.fit(learned(data, lr=1e-9), data)  # nothing gets better after the first evaluation
    assert load(tmp_path / "ckpt/last.ckpt")["global_step"] == 6
    assert load(tmp_path / "ckpt/step=4.ckpt")["global_step"] == 4


@pytest.mark.parametrize("saved_at", [4, 6])
def test_an_evaluation_that_came_after_the_checkpoint_is_made_on_resume(quiet_trainer, tmp_path, saved_at):
    """CheckpointInfo by steps, the file of an evaluation's step is older than the evaluation."""
    data = digits(validation="split")
    options = {"enable_checkpointing": True, **BY_STEPS}
    whole = make(IndependentEarlyStopping, data, patience=3)
    saves = ModelCheckpoint(dirpath=tmp_path / "ckpt", filename="{step}", every_n_train_steps=2, save_top_k=-1)
    kept = []

    class Keep(Recorder):
        def on_train_batch_end(self, trainer, *rest):
            if trainer.global_step == saved_at:
                trainer.save_checkpoint(tmp_path / "before.ckpt")

    trainer = quiet_trainer(max_steps=6, callbacks=[Keep(), saves], **options)
    trainer.fit(whole, data)
    kept = state_of(whole, trainer)
    (path,) = tmp_path.rglob("curve.csv")
    curve = path.read_text()
    resumed_data, recorder = digits(validation="split"), Recorder()
    resumed = make(IndependentEarlyStopping, resumed_data, patience=3)
    trainer = quiet_trainer(max_steps=6, callbacks=[recorder], default_root_dir=tmp_path / "resumed", **BY_STEPS)
    trainer.fit(resumed, resumed_data, ckpt_path=tmp_path / "before.ckpt")
    assert recorder.evaluations == [step for step in (4, 6) if step >= saved_at]
    assert_same(state_of(resumed), {name: value for name, value in kept.items() if not name.startswith("adam")})
    (path,) = (tmp_path / "resumed").rglob("curve.csv")
    again = path.read_text()
    assert [row.split(",")[0] for row in again.splitlines()] == [row.split(",")[0] for row in curve.splitlines()]


def rates(trainer, module, data, **fit):
    seen = []

    class Rates(Recorder):
        def on_train_batch_start(self, trainer, *rest):
            seen.append(trainer.optimizers[0].param_groups[0]["lr"])

    trainer.callbacks.append(Rates())
    trainer.fit(module, data, **fit)
    return seen


def test_a_changed_rate_is_that_of_the_first_resumed_step(quiet_trainer, tmp_path):
    data, schedule = digits(), {"lr_schedule": "linear", "warmup_steps": 2}
    half = quiet_trainer(max_steps=4)
    half.fit(learned(data, lr=0.01, **schedule), data)
    half.save_checkpoint(tmp_path / "half.ckpt")
    new = {"lr": 0.02, **schedule}
    expected = rates(quiet_trainer(max_steps=8), learned(data, **new), data)
    trainer = quiet_trainer(max_steps=8)
    with pytest.warns(UserWarning, match=r"lr_schedule linear over 8 steps instead of the checkpoint's 4"):
        found = rates(trainer, learned(digits(), **new), digits(), ckpt_path=tmp_path / "half.ckpt")
    assert found == expected[4:]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_an_unchanged_schedule_goes_on_without_a_word(quiet_trainer, tmp_path, schedule, recwarn):
    data = digits()
    first = quiet_trainer(max_steps=6, limit_train_batches=10)

    class Save(Recorder):
        def on_train_batch_end(self, trainer, *rest):
            if trainer.global_step == 3:
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    first.callbacks.append(Save())
    expected = rates(first, learned(data, lr_schedule=schedule), data)
    found = rates(
        quiet_trainer(max_steps=6), learned(digits(), lr_schedule=schedule), digits(), ckpt_path=tmp_path / "half.ckpt"
    )
    assert found == expected[3:]
    assert not [warning for warning in recwarn if "lr_schedule" in str(warning.message)]


def test_the_rate_is_logged_at_every_step(quiet_trainer, tmp_path):
    logger = CSVLogger(tmp_path)
    trainer = quiet_trainer(max_steps=5, logger=logger, callbacks=[LearningRateMonitor()], log_every_n_steps=1)
    trainer.fit(learned(digits(), lr_schedule="linear"), digits())
    lines = (tmp_path / "lightning_logs/version_0/metrics.csv").read_text().splitlines()
    column = lines[0].split(",").index("lr-Adam")
    logged = [float(line.split(",")[column]) for line in lines[1:] if line.split(",")[column]]
    assert logged == pytest.approx([1e-3 * (1 - step / 5) for step in range(5)])


def test_float16_weights_are_refused(quiet_trainer):
    trainer = quiet_trainer(max_steps=1)
    trainer.strategy.precision_plugin.precision = "16-true"
    with pytest.raises(ValueError, match=r"trainer\.precision 16-true cannot work.*bf16-true"):
        trainer.fit(learned(digits()), digits())


def test_a_file_of_slurms_requeue_is_not_gone_on_from(quiet_trainer, tmp_path):
    first = quiet_trainer(max_steps=2)
    first.fit(learned(digits()), digits())
    first.save_checkpoint(tmp_path / "hpc_ckpt_1.ckpt")
    with pytest.raises(ValueError, match=r"hpc_ckpt_1\.ckpt.*Move it away"):
        quiet_trainer(max_steps=4).fit(learned(digits()), digits(), ckpt_path=tmp_path / "hpc_ckpt_1.ckpt")


def test_a_checkpoint_of_another_program_is_refused(quiet_trainer, tmp_path):
    first = quiet_trainer(max_steps=2)
    first.fit(learned(digits()), digits())
    first.save_checkpoint(tmp_path / "mine.ckpt")
    checkpoint = torch.load(tmp_path / "mine.ckpt", weights_only=True)
    del checkpoint["lws_evaluation"]
    torch.save(checkpoint, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match=r"other\.ckpt is not a checkpoint of a run of lws_lightning"):
        quiet_trainer(max_steps=4).fit(learned(digits()), digits(), ckpt_path=tmp_path / "other.ckpt")
