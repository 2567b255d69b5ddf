"""The record of a run that is tested, or that something ended."""

from dataclasses import replace

import pytest
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from recorded import curve, files, home, result, steps

from lws_lightning.callbacks import RunRecord

pytestmark = pytest.mark.filterwarnings("ignore")


def test_test_after_fit_adds_to_the_record(make_trainer, make_module, make_data, tmp_path):
    trainer, module = make_trainer(RunRecord()), make_module()
    trainer.fit(module, datamodule=make_data())
    before = result(tmp_path)
    trainer.test(module, datamodule=make_data())
    after = result(tmp_path)
    assert after["test"]["prefix"] == "test"
    assert (after["test"]["error"], after["test"]["step"], after["test"]["images"]) == (44.0, 6, 300)
    assert {**after, "test": None} == before


def test_test_writes_into_the_run_it_is_given(make_trainer, make_module, make_data, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    make_trainer(RunRecord(), default_root_dir=run).fit(make_module(), datamodule=make_data())
    before = result(run)
    make_trainer(RunRecord(run_dir=str(home(run))), default_root_dir=other).test(make_module(), datamodule=make_data())
    assert result(run)["test"]["error"] == 50.0
    assert {**result(run), "test": None} == before
    assert not other.exists()


def test_test_of_a_checkpoint_knows_its_step(make_trainer, make_module, make_data, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    save = ModelCheckpoint(run, filename="{step}", every_n_train_steps=3, save_top_k=-1)
    trainer, module = make_trainer(RunRecord(), save, default_root_dir=run, enable_checkpointing=True), make_module()
    trainer.fit(module, datamodule=make_data())
    trainer.test(module, datamodule=make_data(), ckpt_path=run / "step=3.ckpt")
    assert (result(run)["test"]["step"], result(run)["step"], steps(run)) == (3, 6, [2, 4, 6])
    make_trainer(RunRecord(), default_root_dir=other).test(
        make_module(), datamodule=make_data(), ckpt_path=run / "step=6.ckpt"
    )
    record = result(other)
    assert (record["test"]["step"], record["step"]) == (6, 6)
    assert record["seconds_per_step"] > 0


@pytest.mark.parametrize("damage", ["missing", "half"])
def test_test_without_a_usable_record_writes_a_new_one(make_trainer, make_module, make_data, tmp_path, damage):
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    if damage == "half":
        (run / "result.json").write_text('{"format": 1, "sta')
    make_trainer(RunRecord(run_dir=str(run)), default_root_dir=other).test(make_module(), datamodule=make_data())
    record = result(run)
    assert (record["test"]["error"], record["evaluation"], record["seconds"]) == (50.0, None, None)
    assert files(run) == ["result.json"]
    assert not other.exists()


def test_test_does_not_touch_the_record_of_another_run(make_trainer, make_module, make_data, tmp_path):
    def logger():
        return CSVLogger(tmp_path, name="", version="fixed")

    make_trainer(RunRecord(), logger=logger()).fit(make_module(seed=1), datamodule=make_data())
    before = result(tmp_path)
    with pytest.warns(UserWarning, match=r"another run \(seed 1, not 2\)"):
        make_trainer(RunRecord(), logger=logger()).test(make_module(seed=2), datamodule=make_data())
    assert result(tmp_path) == before


def test_nan_is_valid_json(make_trainer, make_module, make_data, tmp_path):
    class Nan(make_module):
        def on_validation_epoch_end(self):
            super().on_validation_epoch_end()
            for prefix, evaluation in self.evaluations.items():
                self.evaluations[prefix] = replace(evaluation, loss=float("nan"))

    make_trainer(RunRecord()).fit(Nan(), datamodule=make_data())
    assert result(tmp_path)["evaluation"]["loss"] == "nan"
    assert curve(tmp_path)[-1]["loss"] == "nan"


def test_other_modules_are_refused_by_name(make_trainer, make_data):
    class Stranger(LightningModule):
        def training_step(self, batch, batch_idx):
            pass

        def configure_optimizers(self):
            return None

    with pytest.raises(TypeError, match=r"RunRecord works with .* MultiTaskMethod; Stranger is not one"):
        make_trainer(RunRecord()).fit(Stranger(), datamodule=make_data())


class Stop(Callback):
    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = True


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_time": {"seconds": 0}}, "trainer.max_time"),
        ({"callbacks": EarlyStopping("test_curve/error", patience=1)}, "EarlyStopping on test_curve/error"),
        ({"callbacks": Stop()}, "a callback"),
        ({}, None),
    ],
)
def test_the_record_says_what_ended_the_run(make_trainer, make_module, make_data, tmp_path, options, what):
    class Logs(make_module):
        def on_validation_epoch_end(self):
            self.log("test_curve/error", 1.0)

    callbacks = [options.pop("callbacks")] if "callbacks" in options else []
    trainer = make_trainer(RunRecord(), *callbacks, **options)
    trainer.fit(Logs(), datamodule=make_data())
    record = result(tmp_path)
    assert (record["status"], record["stopped_by"]) == ("finished", what)
    assert (record["step"] < 6) == (what is not None)


def test_the_record_says_that_the_method_ended_the_run(make_trainer, make_module, make_data, tmp_path):
    class Done(make_module):
        def details(self):
            return {"early_stopping": {name: {"stopped": True} for name in self.task_names}}

    make_trainer(RunRecord(), Stop()).fit(Done(), datamodule=make_data())
    assert result(tmp_path)["stopped_by"] == "its method"
