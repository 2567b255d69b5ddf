"""What every test stands on: one thread, pictures that are drawn once, and helpers that train on tiny data."""

import gc
import os
import signal
import sys

import pytest

from lws_lightning.cli import main

# Neither torch nor Lightning is imported above: the process that only distributes the tests needs neither, and the
# others wait for it.


def pytest_collection_finish():
    """Prepares a process that runs tests."""
    import torch
    from pictures import reuse_pictures

    torch.set_num_threads(1)
    reuse_pictures()
    gc.collect()
    gc.freeze()  # spares every collection of garbage the million objects of modules and tests, which stay anyway


@pytest.fixture(autouse=True)
def own_environment(monkeypatch, tmp_path):
    """No test sees another's seed or signal handlers, or leaves files in the checkout."""
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.pop("PL_GLOBAL_SEED", None)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning ignores it after a Ctrl-C


@pytest.fixture
def lws(monkeypatch):
    """Runs the command `lws` in this process."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lws"])
        main([str(argument) for argument in arguments])

    return run


@pytest.fixture
def quiet_trainer(tmp_path):
    """Makes a Trainer that writes into the test's folder only."""
    from lightning.pytorch import Trainer

    def make(**options):
        defaults = {
            "accelerator": "cpu",
            "default_root_dir": tmp_path / "runs",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": False,
            "enable_checkpointing": False,
            "num_sanity_val_steps": 0,
        }
        return Trainer(**(defaults | options))

    return make
