"""The command `lws sweep`, with real runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml
from filelock import FileLock
from locations import CONFIGS, REPOSITORY
from recorded_runs import measure, recorded

from lws_lightning.sweep.cluster import RunJob
from lws_lightning.sweep.plan import CONFIG_FILE, SweepRun

SHORT = ("--data.train_images_per_task", 40, "--data.batch_size", 4, "--trainer.val_check_interval", 2)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.fspath(REPOSITORY))


@pytest.fixture
def configs(tmp_path):
    """A configuration that works and one that fails in its first step."""
    works = yaml.safe_load((CONFIGS / "quickstart/full.yaml").read_text())
    works["trainer"] = os.fspath(CONFIGS / "quickstart/trainer.yaml")
    fails = works | {"model": {**works["model"], "init_args": {**works["model"]["init_args"], "lr": 1e30}}}
    for name, config in {"works": works, "fails": fails}.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(config))
    return tmp_path / "works.yaml", tmp_path / "fails.yaml"


def record(folder):
    return json.loads((folder / "result.json").read_text())


def test_sweep_fails_goes_on_and_is_not_done_twice(lws, tmp_path, configs, capfd):
    out = tmp_path / "out"
    command = ("sweep", *reversed(configs), "--out", out, *SHORT, "--trainer.max_steps", 4)
    with pytest.raises(SystemExit) as ended:
        lws(*command)
    assert ended.value.code == 1
    printed = capfd.readouterr().out
    assert "fails seed 0: FAILED at step" in printed
    assert "not finite" in printed
    assert "1 of 2 runs are finished" in printed
    works, fails = (out / tmp_path.name / name / "seed0" for name in ("works", "fails"))
    result = record(works)
    assert (result["status"], result["step"], result["seed"]) == ("finished", 4, 0)
    assert result["test"]["step"] == 4
    assert result["test"]["error"] == result["evaluation"]["error"]
    assert record(fails)["status"] == "failed"

    before = (works / "result.json").stat().st_mtime_ns
    shutil.rmtree(fails)
    lws("sweep", configs[0], "--out", out, *SHORT, "--trainer.max_steps", 4)
    assert "1 of them finished before" in capfd.readouterr().out
    assert (works / "result.json").stat().st_mtime_ns == before

    from_the_middle = ("fit", "--ckpt_path", works / "checkpoints/step=000002.ckpt", "--model.lr", 0.01)
    with pytest.raises(SystemExit, match="holds a finished run of 4 steps, which resuming from step 2 would overwrite"):
        lws(*from_the_middle)
    assert (works / "result.json").stat().st_mtime_ns == before
    lws(*from_the_middle, "--trainer.logger.init_args.save_dir", tmp_path / "other")
    assert record(tmp_path / "other/seed0")["step"] == 4
    assert (works / "result.json").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_sweep_goes_on_with_the_weights_of_an_unbroken_one(lws, tmp_path, configs):
    broken, unbroken = tmp_path / "broken", tmp_path / "unbroken"
    options = [str(option) for option in (*SHORT, "--trainer.max_steps", 120, "--trainer.val_check_interval", 10)]
    command = [sys.executable, "-m", "lws_lightning", "sweep", str(configs[0]), "--seeds", "3", *options]
    process = subprocess.Popen([*command, "--out", str(broken)], start_new_session=True)
    run = broken / tmp_path.name / "works/seed3"
    while not list(run.glob("checkpoints/step=*20.ckpt")):
        assert process.poll() is None
        time.sleep(0.05)
    worker = _pid_of_worker(run)
    process.kill()
    process.wait()
    os.kill(worker, signal.SIGKILL)
    assert record(run)["status"] == "running"
    lws("sweep", configs[0], "--seeds", "3", *options, "--out", broken)
    lws("sweep", configs[0], "--seeds", "3", *options, "--out", unbroken)
    assert "checkpoints/" in (run / "log.txt").read_text().split("trains from")[2]
    other = unbroken / tmp_path.name / "works/seed3"
    one, two = (torch.load(folder / "checkpoints/last.ckpt", weights_only=True) for folder in (run, other))
    assert one["state_dict"].keys() == two["state_dict"].keys()
    assert all(torch.equal(value, two["state_dict"][key]) for key, value in one["state_dict"].items())
    curves = [_without_seconds(folder / "curve.csv") for folder in (run, other)]
    assert curves[0] == curves[1]
    assert record(run)["test"] == record(other)["test"]


def test_an_overlay_goes_to_every_run_and_into_its_name(lws, tmp_path, configs, capfd):
    overlay, out = CONFIGS / "methods/uncertainty.yaml", tmp_path / "out"
    command = ("sweep", configs[0], "--config", overlay, "--out", out, *SHORT, "--trainer.max_steps", 2)
    lws(*command)
    run = out / tmp_path.name / "works+uncertainty/seed0"
    assert (record(run)["status"], record(run)["method"]) == ("finished", "uncertainty")
    lws(*command)
    assert "1 of them finished before" in capfd.readouterr().out


def _pid_of_worker(run):
    return int((run / "log.txt").read_text().split("Process ")[1].split()[0])


def _without_seconds(path):
    return [[cell for number, cell in enumerate(line.split(",")) if number != 1] for line in path.open()]


def test_a_run_that_another_process_does_is_waited_for(tmp_path):
    worker = [sys.executable, "-m", "lws_lightning.sweep.worker", str(tmp_path)]
    with FileLock(tmp_path / ".lock"):
        process = subprocess.Popen(worker, stdout=subprocess.PIPE, text=True)
        assert "waiting" in process.stdout.readline()
        (tmp_path / "result.json").write_text(json.dumps(recorded(step=4, test=measure("test"))))
    rest, _ = process.communicate()
    assert process.returncode == 0
    assert rest == ""


@pytest.mark.slow
def test_a_sweep_through_submitit(lws, tmp_path, configs, capfd):
    out = tmp_path / "out"
    cluster = ("--cluster", "local", "--cluster.timeout_min", 5)
    lws("sweep", configs[0], "--out", out, *SHORT, "--trainer.max_steps", 2, *cluster)
    printed = capfd.readouterr().out
    assert "Submitted 1 jobs to local" in printed
    assert "works seed 0: finished at step 2" in printed
    assert record(out / tmp_path.name / "works/seed0")["test"]["step"] == 2
    assert list((out / ".submitit").glob("*.out"))


def test_an_option_that_submitit_does_not_know(lws, tmp_path, configs):
    with pytest.raises(SystemExit, match="no_such"):
        lws("sweep", configs[0], "--out", tmp_path / "out", "--cluster", "local", "--cluster.no_such", 1)


def test_a_job_that_loses_its_machine_is_submitted_again(tmp_path):
    run = SweepRun("a", 0, tmp_path, {"trainer": {}})
    assert not (tmp_path / CONFIG_FILE).exists()
    job = RunJob(run)
    assert job.checkpoint().function is job


@pytest.mark.slow
@pytest.mark.parametrize("option", [("dirpath", "elsewhere"), ("filename", "{step:06d}-{test_curve/error:.2f}")])
def test_a_killed_run_goes_on_wherever_its_checkpoints_lie(lws, tmp_path, configs, option):
    config = yaml.safe_load(configs[0].read_text())
    trainer = yaml.safe_load((CONFIGS / "quickstart/trainer.yaml").read_text())
    trainer["callbacks"][0]["init_args"] |= dict([option])
    configs[0].write_text(yaml.safe_dump(config | {"trainer": trainer}))
    command = ("sweep", configs[0], "--seeds", "0,1", "--out", "out", *SHORT, "--trainer.max_steps", 4)
    lws(*command)
    for seed in (0, 1):
        run = tmp_path / "out" / tmp_path.name / f"works/seed{seed}"
        found = record(run)
        assert found["test"]["step"] == 4
        place = tmp_path / "elsewhere" / tmp_path.name / f"works/seed{seed}" if option[0] == "dirpath" else run
        (newest,) = (path for path in place.rglob("*.ckpt") if path.name != "last.ckpt" and "000004" in str(path))
        newest.write_bytes(newest.read_bytes()[:2000])  # as if killed while it was saved
        next(place.rglob("last.ckpt")).unlink()
        (run / "result.json").write_text(json.dumps(found | {"status": "running", "step": 2, "test": None}))
    lws(*command)
    for seed in (0, 1):
        run = tmp_path / "out" / tmp_path.name / f"works/seed{seed}"
        _, first, second = (run / "log.txt").read_text().split("trains from ")
        assert first.startswith("the start")
        assert "000002" in second.splitlines()[0]
        assert f"seed{seed}" in second.splitlines()[0]
        assert record(run)["test"]["step"] == 4


def test_a_sweep_whose_networks_remain_untested_does_not_end_well(lws, tmp_path, configs, capfd):
    command = ("sweep", configs[0], "--out", "out", *SHORT, "--trainer.max_steps", 4)
    lws(*command)
    run = tmp_path / "out" / tmp_path.name / "works/seed0"
    (run / "result.json").write_text(json.dumps(record(run) | {"test": None}))
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(SystemExit) as ended:
        lws(*command)
    assert ended.value.code == 1
    printed = capfd.readouterr().out
    assert "could not be tested: the run left no checkpoint" in printed
    assert "0 of 1 runs are finished and tested" in printed


def test_a_sweep_without_checkpoints_is_refused(lws, configs):
    with pytest.raises(SystemExit, match="leaves no checkpoint"):
        lws("sweep", configs[0], "--out", "out", "--trainer.enable_checkpointing", "false")


def test_a_finished_run_is_not_begun_anew_in_its_folder(lws, tmp_path, configs):
    lws("sweep", configs[0], "--out", "out", *SHORT, "--trainer.max_steps", 2)
    run = tmp_path / "out" / tmp_path.name / "works/seed0"
    before = (run / "result.json").stat().st_mtime_ns, (run / "config.yaml").stat().st_mtime_ns
    with pytest.raises(SystemExit, match="holds a finished run of 2 steps, which this run would overwrite"):
        lws("fit", "--config", run / CONFIG_FILE)
    assert before == ((run / "result.json").stat().st_mtime_ns, (run / "config.yaml").stat().st_mtime_ns)
    lws("fit", "--config", run / CONFIG_FILE, "--ckpt_path", run, "--trainer.max_steps", 4)
    assert record(run)["step"] == 4
