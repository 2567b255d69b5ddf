import errno
import time

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from recorded import curve, files, home, result, steps

from lws_lightning.callbacks import RunRecord

pytestmark = pytest.mark.filterwarnings("ignore")


def test_record_of_a_finished_run(make_trainer, make_module, make_data, tmp_path):
    make_trainer(RunRecord()).fit(make_module(), datamodule=make_data())
    record = result(tmp_path)
    assert (record["format"], record["status"], record["message"]) == (1, "finished", "")
    assert (record["method"], record["network"], record["data"]) == ("learned", "tiny", "FakeData")
    assert (record["task_names"], record["layer_names"]) == (["a.b", "été/2"], ["conv", "mean"])
    assert (record["weights_per_layer"], record["seed"]) == ([2, 3], 7)
    assert (record["step"], record["max_steps"]) == (6, 6)
    assert record["evaluation"] == {
        "prefix": "test_curve",
        "step": 6,
        "error": 84.0,
        "error_task_mean": 84.5,
        "loss": 0.25,
        "images": 300,
        "tasks": {"a.b": {"error": 84.0, "images": 100}, "été/2": {"error": 85.0, "images": 200}},
    }
    assert record["test"] is None
    assert record["assignment"] == [[0, 0], [0, 0]]
    assert (record["parameters_in_use"], record["parameters_total"]) == (10, 30)
    conv = -(0.9 * torch.tensor(0.9).log() + 0.1 * torch.tensor(0.1).log()).item()
    assert record["entropies"]["layers"]["conv"] == pytest.approx(conv, abs=1e-5)
    assert record["entropies"]["normalized_layers"]["conv"] == pytest.approx(conv / 0.693147, abs=1e-4)
    assert record["entropies"]["mean"] == pytest.approx(sum(record["entropies"]["layers"].values()) / 2)
    sure = [0.9, 0.1]
    assert record["probabilities"] == [[sure, sure], [[0.9, 0.05, 0.05]] * 2]  # without padding
    assert 0 < record["seconds"] < 60
    assert 0 < record["seconds_evaluation"] < 60
    assert record["seconds_per_step"] == pytest.approx(record["seconds"] / 6)
    assert record["versions"]["torch"] == torch.__version__.partition("+")[0] or "+" in record["versions"]["torch"]
    assert set(record["versions"]) == {"python", "torch", "lightning", "lws_lightning"}
    assert record["hardware"]["gpu"] is None
    assert record["hardware"]["threads"] == torch.get_num_threads()
    assert record["identity"]["precision"] == "32-true"
    assert record["identity"]["method"]["task_names"] == ["a.b", "été/2"]
    assert record["identity"]["data"] == {}  # the data of these tests are no MultiTaskDataModule
    assert record["started"] <= record["ended"]


def test_curve_has_a_row_for_each_evaluation(make_trainer, make_module, make_data, tmp_path):
    make_trainer(RunRecord()).fit(make_module(), datamodule=make_data())
    rows = curve(tmp_path)
    assert list(rows[0]) == [
        *("step", "seconds", "prefix", "error", "error_task_mean", "loss", "entropy_mean"),
        *("error/a.b", "error/été/2"),
    ]
    assert [(row["step"], row["prefix"], row["error"], row["error/été/2"]) for row in rows] == [
        ("2", "test_curve", "88", "89"),
        ("4", "test_curve", "86", "87"),
        ("6", "test_curve", "84", "85"),
    ]
    seconds = [float(row["seconds"]) for row in rows]
    assert 0 < seconds[0] < seconds[1] < seconds[2]
    entropy = [float(row["entropy_mean"]) for row in rows]
    assert entropy[0] > entropy[1] == entropy[2]
    assert files(home(tmp_path)) == ["curve.csv", "result.json"]  # no temporary file is left


def test_fixed_sharing_has_no_entropies(make_trainer, make_module, make_data, tmp_path):
    make_trainer(RunRecord()).fit(make_module(fixed=True), datamodule=make_data())
    assert result(tmp_path)["entropies"] is None
    assert result(tmp_path)["probabilities"] is None
    assert curve(tmp_path)[0]["entropy_mean"] == ""


def test_record_says_running_before_the_first_step(make_trainer, make_module, make_data, tmp_path):
    class Look(RunRecord):
        def on_train_start(self, trainer, pl_module):
            self.seen = result(tmp_path)
            super().on_train_start(trainer, pl_module)

    record = Look()
    make_trainer(record, num_sanity_val_steps=1).fit(make_module(), datamodule=make_data())
    assert (record.seen["status"], record.seen["step"], record.seen["evaluation"]) == ("running", 0, None)
    assert record.seen["seconds"] is None
    assert record.seen["ended"] is None


def test_evaluation_time_is_not_training_time(make_trainer, make_module, make_data, tmp_path):
    class Slow(make_module):
        def validation_step(self, batch, batch_idx):
            time.sleep(0.2)

    make_trainer(RunRecord(), num_sanity_val_steps=1).fit(Slow(), datamodule=make_data())
    record = result(tmp_path)
    assert record["seconds_evaluation"] >= 0.6  # three evaluations, without the sanity check
    assert record["seconds"] < 0.6
    assert record["seconds_evaluation"] < 1.5


def test_keyboard_interrupt(make_trainer, make_module, make_data, tmp_path):
    module = make_module()
    module.raise_at, module.raised = 3, KeyboardInterrupt()
    with pytest.raises(SystemExit):
        make_trainer(RunRecord()).fit(module, datamodule=make_data())
    record = result(tmp_path)
    assert (record["status"], record["message"], record["step"]) == ("interrupted", "KeyboardInterrupt", 3)
    assert record["evaluation"]["step"] == 2
    assert record["ended"] is not None
    assert steps(tmp_path) == [2]


def test_exception(make_trainer, make_module, make_data, tmp_path):
    module = make_module()
    module.raise_at, module.raised = 5, ValueError("loss is nan")
    with pytest.raises(ValueError, match="loss is nan"):
        make_trainer(RunRecord()).fit(module, datamodule=make_data())
    record = result(tmp_path)
    assert (record["status"], record["message"], record["step"]) == ("failed", "ValueError: loss is nan", 5)
    assert steps(tmp_path) == [2, 4]


def test_exception_that_breaks_the_module_too(make_trainer, make_module, make_data, tmp_path):
    class Broken(make_module):
        def parameters_in_use(self):
            if self.trainer.global_step >= 5:
                raise RuntimeError("device lost")
            return 10

    module = Broken()
    module.raise_at, module.raised = 5, ValueError("first cause")
    with pytest.raises(ValueError, match="first cause"):
        make_trainer(RunRecord()).fit(module, datamodule=make_data())
    record = result(tmp_path)
    assert (record["status"], record["message"]) == ("failed", "ValueError: first cause")
    assert record["evaluation"]["step"] == 4


@pytest.mark.parametrize("stop", [3, 5])
def test_resumed_run_has_the_whole_curve(make_trainer, make_module, make_data, tmp_path, stop):
    """Checkpoints of every step; the run breaks after `stop` steps and goes on in another folder."""
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    make_trainer(RunRecord(), default_root_dir=whole, max_steps=8).fit(make_module(), datamodule=make_data())
    save = ModelCheckpoint(first, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    module = make_module()
    module.raise_at, module.raised = 6, ValueError("cut")
    with pytest.raises(ValueError, match="cut"):
        make_trainer(RunRecord(), save, default_root_dir=first, enable_checkpointing=True, max_steps=8).fit(
            module, datamodule=make_data()
        )
    assert steps(first) == [2, 4, 6]
    checkpoint = first / f"step={stop}.ckpt"
    torch.load(checkpoint, weights_only=True)
    make_trainer(RunRecord(), default_root_dir=second, max_steps=8).fit(
        make_module(), datamodule=make_data(), ckpt_path=checkpoint
    )
    assert steps(second) == steps(whole) == [2, 4, 6, 8]
    for got, want in zip(curve(second), curve(whole), strict=True):
        assert {k: v for k, v in got.items() if k != "seconds"} == {k: v for k, v in want.items() if k != "seconds"}
    seconds = [float(row["seconds"]) for row in curve(second)]
    assert seconds == sorted(seconds)
    assert result(second)["seconds"] >= seconds[-1] - 1e-6
    assert result(second)["step"] == 8


def test_resumed_run_drops_later_rows(make_trainer, make_module, make_data, tmp_path):
    save = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3, save_top_k=-1)
    make_trainer(RunRecord(), save, enable_checkpointing=True).fit(make_module(), datamodule=make_data())
    assert steps(tmp_path) == [2, 4, 6]
    module = make_module()
    module.raise_at, module.raised = 3, ValueError("cut")
    with pytest.raises(ValueError, match="cut"):
        make_trainer(RunRecord(), default_root_dir=tmp_path / "again").fit(
            module, datamodule=make_data(), ckpt_path=tmp_path / "step=3.ckpt"
        )
    assert steps(tmp_path / "again") == [2]
    assert result(tmp_path / "again")["step"] == 3


def test_second_fit_with_one_callback_starts_anew(make_trainer, make_module, make_data, tmp_path):
    record = RunRecord()
    make_trainer(record, default_root_dir=tmp_path / "a").fit(make_module(), datamodule=make_data())
    make_trainer(record, default_root_dir=tmp_path / "b", max_steps=2).fit(make_module(), datamodule=make_data())
    assert steps(tmp_path / "b") == [2]


def test_second_fit_of_one_trainer_goes_on(make_trainer, make_module, make_data, tmp_path):
    trainer, module = make_trainer(RunRecord(), max_steps=4), make_module()
    trainer.fit(module, datamodule=make_data())
    trainer.fit_loop.epoch_loop.max_steps = 8
    trainer.fit(module, datamodule=make_data())
    assert steps(tmp_path) == [2, 4, 6, 8]


def test_loggers_decide_on_the_folder(make_trainer, make_module, make_data, tmp_path):
    loggers = [CSVLogger(tmp_path, name="csv"), TensorBoardLogger(tmp_path, name="tb")]
    trainer = make_trainer(RunRecord(), logger=loggers)
    trainer.fit(make_module(), datamodule=make_data())
    assert trainer.log_dir == str(tmp_path / "csv" / "version_0")
    assert result(trainer.log_dir)["status"] == "finished"
    assert len(list(tmp_path.rglob("result.json"))) == 1


def test_fast_dev_run_writes_nothing(make_trainer, make_module, make_data, tmp_path):
    trainer = make_trainer(RunRecord(), fast_dev_run=True)
    trainer.fit(make_module(), datamodule=make_data())
    trainer.test(make_module(), datamodule=make_data())
    assert files(tmp_path) == []


def test_validation_alone_writes_nothing(make_trainer, make_module, make_data, tmp_path):
    make_trainer(RunRecord()).validate(make_module(), datamodule=make_data())
    assert files(tmp_path) == []


def test_full_disk_warns_once_and_trains_on(make_trainer, make_module, make_data, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    trainer = make_trainer(RunRecord())
    with pytest.warns(UserWarning, match="No space left") as caught:
        trainer.fit(make_module(), datamodule=make_data())
    assert sum("No space left" in str(each.message) for each in caught) == 1
    assert trainer.global_step == 6
    assert files(tmp_path) == []


def test_folder_that_cannot_be_made_warns(make_trainer, make_module, make_data, tmp_path):
    (tmp_path / "file").write_text("in the way")
    trainer = make_trainer(RunRecord(), default_root_dir=tmp_path / "file")
    with pytest.warns(UserWarning, match="The run continues"):
        trainer.fit(make_module(), datamodule=make_data())
    assert trainer.global_step == 6
