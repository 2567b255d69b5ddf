"""What a user can mend is said in one line; what is a fault of the program keeps its traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import write_folders
from lightning.pytorch import Trainer
from locations import CONFIGS, REPOSITORY

from lws_lightning.methods import FixedSharing
from lws_lightning.refusal import refusal

QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")
FIT = ("fit", "--config", CONFIGS / "quickstart/full.yaml", "--trainer.max_steps", 2, *QUIET)
EARLY_STOPPING = ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=test_curve/error")
STREAMED = ("--data.in_memory", "false", "--data.images_on_device", "true")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--trainer.gradient_clip_val", 1), "clip_grad_norm"),
        (("--trainer.accumulate_grad_batches", 2), "batch_size"),
        (EARLY_STOPPING, "test images must not be used for selection"),
        (("--trainer.accelerator", "tpu"), "trainer.accelerator tpu: "),
        (("--trainer.strategy", "foo"), "trainer.strategy foo: "),
        (("--model.network", "nomod:build"), "'nomod:build' cannot be imported: No module named 'nomod'"),
        (("--model.network", "math:nope"), "has no attribute 'nope'"),
        (("--trainer.logger", "CometLogger"), "comet"),
        (("--trainer.default_root_dir", "/proc/self/nowhere"), "/proc/self/nowhere"),
        (("--ckpt_path", "nowhere.ckpt"), "There is no checkpoint nowhere.ckpt."),
    ],
)
def test_what_a_user_can_mend_is_one_line(lws, arguments, says):
    with pytest.raises(SystemExit) as ended:
        lws(*FIT, *arguments)
    assert ended.value.code.startswith("lws fit: ")
    assert says in ended.value.code
    assert ended.value.code.count("\n") == 0


@pytest.mark.parametrize("arguments", [(), STREAMED])
def test_broken_images_are_listed_without_a_traceback(lws, tmp_path, arguments):
    root = write_folders(tmp_path / "photos", {"cars": {"red": 4, "blue": 4}})
    next(root.rglob("*.*")).write_bytes(b"broken")
    config = ("fit", "--config", CONFIGS / "image_folders/full.yaml", "--data.root", root, "--trainer.max_steps", 2)
    with pytest.raises(SystemExit, match=r"lws fit: "):
        lws(*config, *arguments, *QUIET)


def test_the_command_prints_the_line_and_ends_with_status_1(tmp_path):
    command = [sys.executable, "-m", "lws_lightning", *map(str, FIT), "--trainer.gradient_clip_val", "1"]
    environment = os.environ | {"PYTHONPATH": os.fspath(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("lws fit: trainer.gradient_clip_val cannot work")


@pytest.mark.parametrize("arguments", [("--config", "nowhere.yaml"), ("--modle.lr", 1), ("--model.lr", "x")])
def test_a_wrong_option_is_said_without_all_the_right_ones(lws, capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        lws(*FIT, *arguments)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) < 15


def test_a_fault_of_the_program_keeps_its_traceback(lws, monkeypatch):
    def wrong(*_):
        return list(zip([1], [2, 3], strict=True))

    monkeypatch.setattr(FixedSharing, "training_step", wrong)
    with pytest.raises(ValueError, match="zip"):
        lws(*FIT)


def test_a_fault_in_this_package_is_told_from_a_refusal():
    def caught(function):
        try:
            function()
        except Exception as error:
            return refusal(error)

    def fixed(names):
        options = {"network": "dkl_convnet", "num_classes": [2], "image_shape": [1, 8, 8]}
        return FixedSharing("full", task_names=names, **options)

    assert "accelerator" in caught(lambda: Trainer(accelerator="none such"))
    assert caught(lambda: fixed(["a", "b"])).startswith("There are 2")
    assert caught(lambda: fixed(None)) is None
    assert caught(Path("nowhere").read_text) == "[Errno 2] No such file or directory: 'nowhere'"


def test_python_gets_the_exception(quiet_trainer):
    from small import digits, fixed

    data = digits()
    with pytest.raises(ValueError, match="clip_grad_norm"):
        quiet_trainer(gradient_clip_val=1.0, max_steps=1).fit(fixed(data), datamodule=data)


@pytest.mark.parametrize(
    "method",
    [
        "LearnedWeightSharing",
        "UndirectedSharing --model.then full",
        "RoutingNetworks",
        "FullyAdaptiveSharing --model.branching_part 0.5",
    ],
)
def test_one_task_alone_cannot_share(lws, method):
    name, *options = method.split()
    command = ("--model", name, *options, "--model.network", "digits_convnet", "--data.tasks", "[upright_digit]")
    with pytest.raises(SystemExit, match=r"lws fit: 'upright_digit' is the only task, .*sharing: none"):
        lws("fit", "--data", "Digits", *command, "--trainer.max_steps", 2, *QUIET)


def test_one_task_alone_is_trained_without_sharing(lws):
    alone = ("--data.tasks", "[upright_digit]", "--model", "FixedSharing", "--model.sharing", "none")
    lws("fit", "--config", CONFIGS / "quickstart/learned.yaml", *alone, "--trainer.max_steps", 2, *QUIET)
