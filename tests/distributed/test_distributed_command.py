"""The command with the plain strategy ddp, which starts the second process itself."""

import json
import os
import subprocess
import sys

import pytest
from distributed_small import free_port
from locations import CONFIGS


@pytest.mark.slow
def test_the_command_trains_in_two_processes_without_further_flags(tmp_path):
    options = {
        "config": CONFIGS / "quickstart/learned.yaml",
        "trainer.accelerator": "cpu",
        "trainer.devices": 2,
        "trainer.strategy": "ddp",
        "trainer.max_steps": 4,
        "trainer.val_check_interval": 2,
        "trainer.default_root_dir": tmp_path,
    }
    arguments = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())}
    subprocess.run(
        [sys.executable, "-m", "lws_lightning", "fit", *arguments], check=True, cwd=tmp_path, env=environment
    )
    (path,) = tmp_path.rglob("result.json")
    record = json.loads(path.read_text())
    assert record["status"] == "finished"
    assert record["processes"] == 2
    assert record["step"] == 4
    assert record["evaluation"]["images"] == 1397
    assert len(list(tmp_path.rglob("curve.csv"))) == 1
    assert [line.split(",")[0] for line in path.with_name("curve.csv").read_text().splitlines()] == ["step", "2", "4"]
