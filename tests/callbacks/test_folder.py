"""Whatever a run writes lies in a folder of its own, and nothing is overwritten."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from lws_lightning import Digits, FixedSharing
from lws_lightning.callbacks import RunRecord
from lws_lightning.run_folders import claimed_folder, run_folder

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def fit(make_trainer):
    """Trains a real method for two steps; by default as a loop over hyper-parameters does, without any place."""

    def run(seed=0, **options):
        data = Digits(train_images_per_task=20, batch_size=2)
        module = FixedSharing("full", network="digits_convnet", seed=seed, **data.task_info)
        callbacks = options.pop("callbacks", ())
        ckpt_path = options.pop("ckpt_path", None)
        trainer = make_trainer(*callbacks, **{"max_steps": 2, "default_root_dir": None, **options})
        trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
        return trainer, module, data

    return run


def files(folder="."):
    return sorted(str(path) for path in Path(folder).rglob("*") if path.is_file() and path.name != ".run.lock")


def seeds(folder="."):
    return {str(p.parent): json.loads(p.read_text())["seed"] for p in sorted(Path(folder).rglob("result.json"))}


def test_a_trial_without_logger_and_checkpoints_leaves_no_files(fit):
    trainer, module, data = fit()
    trainer.validate(module, datamodule=data, verbose=False)
    trainer.test(module, datamodule=data, verbose=False)
    assert list(Path().iterdir()) == []
    assert claimed_folder(trainer) is None


@pytest.mark.parametrize(
    "options",
    [{"enable_checkpointing": True}, {"default_root_dir": "lightning_logs/.."}, {"callbacks": "record"}],
    ids=["checkpoints", "root", "record"],
)
def test_trials_without_a_logger_have_a_folder_each(fit, options):
    for seed in (3, 4):
        own = {"callbacks": [RunRecord()]} if "callbacks" in options else options
        trainer, module, data = fit(seed, **own)
        trainer.test(module, datamodule=data, verbose=False)
    found = {str(Path(folder)): seed for folder, seed in seeds("lightning_logs").items()}
    assert found == {"lightning_logs/version_0": 3, "lightning_logs/version_1": 4}
    assert [path for path in Path().iterdir() if path.name != "lightning_logs"] == []
    if "enable_checkpointing" in options:
        assert len(list(Path("lightning_logs/version_1/checkpoints").glob("*.ckpt"))) == 1


def test_the_record_lies_where_checkpoints_were_sent_and_no_other_place_was_given(fit):
    for seed in (3, 4):
        fit(seed, callbacks=[ModelCheckpoint("kept")], enable_checkpointing=True)
    assert seeds() == {"kept/lightning_logs/version_0": 3, "kept/lightning_logs/version_1": 4}


@pytest.mark.parametrize("kind", [TensorBoardLogger, CSVLogger])
def test_loggers_that_chose_the_same_version_write_into_different_folders(fit, kind):
    first, second = kind("logs"), kind("logs")
    Path("logs/lightning_logs/version_0").mkdir(parents=True)  # another run's, made after both have looked
    for seed, logger in enumerate((first, second)):
        logger._get_next_version = lambda: 0
        fit(seed, logger=logger)
    assert seeds() == {"logs/lightning_logs/version_1": 0, "logs/lightning_logs/version_2": 1}


def test_runs_of_one_slurm_job_have_a_folder_each(fit, monkeypatch):
    monkeypatch.setattr("lightning.fabric.plugins.environments.slurm.SLURMEnvironment.job_id", lambda: 77)
    for seed in range(3):
        fit(seed, logger=CSVLogger("logs", version=77))
    names = ("version_77", "version_77_2", "version_77_3")
    assert seeds() == {f"logs/lightning_logs/{name}": seed for seed, name in enumerate(names)}


class Service(Logger):
    """Keeps nothing in files, as WandbLogger; names the run by an id."""

    def __init__(self, version, save_dir=None):
        self._version, self._save_dir = version, save_dir

    name = "project"
    version = property(lambda self: self._version)
    save_dir = property(lambda self: self._save_dir)

    def log_metrics(self, metrics, step=None):
        pass

    def log_hyperparams(self, params, *_, **__):
        pass


def test_a_logger_without_files_has_the_record_beside_the_checkpoints(fit):
    for seed, version in enumerate(("abc", "def", "def")):  # the last id is used again
        fit(seed, logger=Service(version, "services"), enable_checkpointing=True)
    found = seeds()
    assert list(found.values()) == [2, 0, 1]
    again, *folders = found
    assert folders == ["services/project/abc", "services/project/def"]
    assert again == "lightning_logs/version_0"
    for folder in found:
        assert len(list(Path(folder, "checkpoints").glob("*.ckpt"))) == 1


def test_a_finished_record_is_not_overwritten(fit):
    trainer, module, data = fit(3, logger=CSVLogger("logs", version="fixed"))
    before = Path("logs/lightning_logs/fixed/result.json").read_bytes()
    with pytest.raises(ValueError, match="holds a finished run of 2 steps, which this run would overwrite"):
        fit(4, logger=CSVLogger("logs", version="fixed"))
    assert Path("logs/lightning_logs/fixed/result.json").read_bytes() == before
    trainer.fit_loop.epoch_loop.max_steps = 4  # the run itself may go on
    trainer.fit(module, datamodule=data)
    trainer.save_checkpoint("four.ckpt")
    fit(3, logger=CSVLogger("logs", version="fixed"), max_steps=6, ckpt_path="four.ckpt")
    assert json.loads(Path("logs/lightning_logs/fixed/result.json").read_text())["step"] == 6


def test_what_is_interrupted_may_be_begun_anew(fit, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(FixedSharing, "training_step", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit(3, logger=CSVLogger("logs", version="fixed"))
    fit(4, logger=CSVLogger("logs", version="fixed"))
    assert seeds() == {"logs/lightning_logs/fixed": 4}


def test_a_folder_in_which_a_run_is_at_work_is_refused(fit, tmp_path):
    code = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    folder = tmp_path / "logs/lightning_logs/fixed"
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", code, str(folder / ".run.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match="Another process is working on the run in logs/lightning_logs/fixed"):
            fit(logger=CSVLogger("logs", version="fixed"))
        other.communicate(b"\n")
    fit(logger=CSVLogger("logs", version="fixed"))


def test_a_start_that_fails_leaves_a_record_that_says_so(fit, monkeypatch):
    def broken(*_, **__):
        raise ValueError("12 images are broken")

    monkeypatch.setattr(Digits, "setup", broken)
    with pytest.raises(ValueError, match="12 images"):
        fit(logger=CSVLogger("logs"))
    record = json.loads(Path("logs/lightning_logs/version_0/result.json").read_text())
    assert (record["status"], record["message"]) == ("failed", "ValueError: 12 images are broken")
    assert record["step"] == 0


def test_evaluation_alone_leaves_no_files(make_trainer, make_data, make_module):
    class Bare(make_module):
        def configure_callbacks(self):
            return []

    trainer = make_trainer(default_root_dir=None, enable_checkpointing=True)
    trainer.validate(Bare(), datamodule=make_data(), verbose=False)
    trainer.test(Bare(), datamodule=make_data(), verbose=False)
    assert run_folder(trainer) is None
    assert list(Path().iterdir()) == []


def test_evaluation_before_the_training_does_not_choose_another_folder(make_trainer):
    data = Digits(train_images_per_task=20, batch_size=2)
    module = FixedSharing("full", network="digits_convnet", **data.task_info)
    trainer = make_trainer(default_root_dir=None, enable_checkpointing=True, max_steps=2)
    trainer.validate(module, datamodule=data, verbose=False)
    trainer.fit(module, datamodule=data)
    assert {Path(file).parts[:2] for file in files()} == {("lightning_logs", "version_0")}
