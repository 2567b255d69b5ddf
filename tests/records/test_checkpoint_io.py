"""A full disk, or a kill, leaves whole files or none, and a record that tells what happened."""

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from locations import CONFIGS
from small import digits, fixed

QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")
FIT = ("fit", "--config", CONFIGS / "quickstart/full.yaml", "--trainer.max_steps", 6, *QUIET)
FIT += ("--trainer.val_check_interval", 2, "--data.train_images_per_task", 40)


@pytest.fixture
def full_disk(monkeypatch):
    """From the third checkpoint on there is no space; with `everything` for no other file either."""
    written, fsync = [], os.fsync

    def choose(everything=False):
        def maybe_full(descriptor):
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            written.append(name)
            full = sum(".ckpt" in each for each in written) > 2
            if full and (everything or ".ckpt" in name):
                raise OSError(errno.ENOSPC, "No space left on device")
            fsync(descriptor)

        monkeypatch.setattr("os.fsync", maybe_full)

    return choose


@pytest.mark.parametrize("everything", [False, True])
def test_a_full_disk_ends_the_run_in_one_line_and_leaves_whole_files(lws, full_disk, everything):
    full_disk(everything)
    with pytest.raises(SystemExit) as ended:
        lws(*FIT)
    path = "lightning_logs/version_0/checkpoints/step=000004.ckpt"
    assert ended.value.code.startswith("lws fit: [Errno 28] No space left on device: ")
    assert ended.value.code.endswith(f"{path}'")
    folder = Path("lightning_logs/version_0")
    record = json.loads((folder / "result.json").read_text())
    assert record["status"] == "failed"
    assert everything or record["message"].endswith(f"{path}'")
    assert sorted(each.name for each in (folder / "checkpoints").iterdir()) == ["last.ckpt", "step=000002.ckpt"]
    for each in (folder / "checkpoints").iterdir():
        assert torch.load(each, weights_only=True)["global_step"] == 2


def test_checkpoints_of_python_are_whole_too(quiet_trainer, full_disk, tmp_path):
    trainer, data = quiet_trainer(max_steps=1), digits()
    trainer.fit(fixed(data), datamodule=data)
    full_disk()
    trainer.save_checkpoint(tmp_path / "my.ckpt")
    before = (tmp_path / "my.ckpt").read_bytes()
    trainer.save_checkpoint(tmp_path / "other.ckpt")
    with pytest.raises(OSError, match=r"No space left on device.*my\.ckpt"):
        trainer.save_checkpoint(tmp_path / "my.ckpt")
    assert (tmp_path / "my.ckpt").read_bytes() == before
    assert sorted(path.name for path in tmp_path.glob("*.ckpt*")) == ["my.ckpt", "other.ckpt"]


def test_another_way_to_save_is_left_to_the_user(quiet_trainer):
    class Mine(TorchCheckpointIO):
        pass

    trainer, data = quiet_trainer(max_steps=1, plugins=[Mine()]), digits()
    trainer.fit(fixed(data), datamodule=data)
    assert type(trainer.strategy.checkpoint_io) is Mine
