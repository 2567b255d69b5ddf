"""How the runs of a sweep are started, watched and stopped; the runs themselves are a few lines of Python here."""

import io
import json
import os
import signal
import sys
import threading
import time

import pytest
from recorded_runs import measure, recorded
from rich.console import Console

from lws_lightning.sweep import local
from lws_lightning.sweep.display import Display
from lws_lightning.sweep.plan import SweepRun

WRITE = f"""
import json, os, sys, time
whole = json.loads({json.dumps(recorded())!r})
def record(status, step, message="", tested=False):
    evaluation = {measure(low=12.5, high=12.5)} if step else None
    test = evaluation if tested else None
    text = json.dumps(whole | dict(status=status, step=step, message=message, evaluation=evaluation, test=test))
    open("new.json", "w").write(text)
    os.replace("new.json", "result.json")
"""
FINISH = WRITE + "record('finished', 10, tested=True)"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Makes runs whose workers are given programs."""
    programs = {}

    def command(run):
        program = f"import os; os.chdir({os.fspath(run.folder)!r})\n{programs[run.folder]}"
        return [sys.executable, "-c", program]

    monkeypatch.setattr(local, "worker_command", command)

    def make(**given):
        made = []
        for name, program in given.items():
            name, seed = name.split("_")
            run = SweepRun(name, int(seed), tmp_path / name / f"seed{seed}", {"trainer": {"max_steps": 10}})
            run.folder.mkdir(parents=True)
            programs[run.folder] = program
            made.append(run)
        return made

    return make


def do(runs, jobs=2):
    text = io.StringIO()
    with Display(runs, Console(file=text, width=300)) as display:
        outcomes = local.run_locally(runs, jobs, display)
    return {f"{outcome.run.name}_{outcome.run.seed}": outcome for outcome in outcomes}, text.getvalue()


def test_a_failed_run_is_reported_and_the_others_go_on(runs):
    fails = WRITE + "record('running', 4); record('failed', 4, 'ValueError: no data'); sys.exit(1)"
    outcomes, text = do(runs(a_0=fails, a_1=FINISH, b_0=FINISH))
    assert [name for name, outcome in outcomes.items() if outcome.finished] in (["a_1", "b_0"], ["b_0", "a_1"])
    assert "FAILED at step 4: ValueError: no data" in outcomes["a_0"].text
    assert "log.txt" in outcomes["a_0"].text
    assert "a seed 1: finished at step 10, error 12.50 %" in text


def test_what_fails_before_its_first_step_fails_once(runs):
    outcomes, _ = do(runs(a_0="raise SystemExit('root: no such folder')", b_0=FINISH, a_1=FINISH, b_1=FINISH), jobs=1)
    assert "FAILED: root: no such folder" in outcomes["a_0"].text
    assert "not started" in outcomes["a_1"].text
    assert outcomes["b_0"].finished
    assert outcomes["b_1"].finished


def test_a_killed_run_is_named(runs):
    outcomes, _ = do(runs(a_0=WRITE + "record('running', 6); os.kill(os.getpid(), 9)"))
    assert "killed after step 6" in outcomes["a_0"].text
    assert not outcomes["a_0"].finished


def test_an_old_record_does_not_speak_for_a_new_failure(runs):
    (run,) = runs(a_0="raise SystemExit('cannot import')")
    record = {"status": "interrupted", "step": 5, "message": "KeyboardInterrupt", "evaluation": None, "test": None}
    (run.folder / "result.json").write_text(json.dumps(record))
    os.utime(run.folder / "result.json", (1, 1))
    outcomes, _ = do([run])
    assert "FAILED: cannot import" in outcomes["a_0"].text


def test_as_many_at_a_time_as_jobs(runs, tmp_path):
    program = f"""
import pathlib, uuid
here = pathlib.Path({os.fspath(tmp_path)!r})
mine = here / f"{{uuid.uuid4()}}.at_work"
mine.touch()
time.sleep(0.4)
(here / "most").open("a").write(f"{{len(list(here.glob('*.at_work')))}} ")
mine.unlink()
"""
    do(runs(**{f"a_{seed}": WRITE + program + FINISH for seed in range(5)}), jobs=2)
    counts = [int(count) for count in (tmp_path / "most").read_text().split()]
    assert len(counts) == 5
    assert max(counts) == 2


def test_threads_are_shared_and_gpus_taken_in_turns(runs, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr(local, "_processors", lambda: 8)
    print_environment = "print(os.environ['OMP_NUM_THREADS'], os.environ['CUDA_VISIBLE_DEVICES'])\n"
    made = runs(**{f"a_{seed}": WRITE + print_environment + "time.sleep(0.5)\n" + FINISH for seed in range(2)})
    do(made, jobs=2)
    assert [(run.folder / "log.txt").read_text().strip() for run in made] == ["4 3", "4 5"]


@pytest.mark.parametrize(("given", "threads"), [("", "4"), ("3", "3")])
def test_given_threads_are_kept_and_none_given_are_not(monkeypatch, given, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr(local, "_processors", lambda: 8)
    assert local.environment_of_run(2)["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_lets_its_runs_save(runs, number):
    program = """
record('running', 3)
try:
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)
    record('interrupted', 3, 'KeyboardInterrupt')
"""
    made = runs(a_0=WRITE + program, a_1=WRITE + program, a_2=FINISH)

    def stop():
        while not all((run.folder / "result.json").exists() for run in made[:2]):
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt):
        do(made)
    for run in made[:2]:
        assert json.loads((run.folder / "result.json").read_text())["status"] == "interrupted"
    assert not (made[2].folder / "result.json").exists()


def test_the_bars_show_step_and_error(runs):
    (run,) = runs(a_0=FINISH)
    record = recorded(status="running", step=5, evaluation=measure(low=50.0, high=50.0))
    (run.folder / "result.json").write_text(json.dumps(record))
    text = io.StringIO()
    with Display([run], Console(file=text, width=120, force_terminal=True), live=True) as display:
        display.refresh([run])
    assert "step 5 of 10, error 50.00 %" in text.getvalue()
    assert "0 of 1 runs finished" in text.getvalue()


def test_a_narrow_terminal_cuts_names_and_no_times(tmp_path):
    run = SweepRun("contenders/undirected", 0, tmp_path / "undirected/seed0", {"trainer": {"max_steps": 5000}})
    run.folder.mkdir(parents=True)
    record = recorded(status="running", step=4120, evaluation=measure(low=74.36, high=74.36))
    (run.folder / "result.json").write_text(json.dumps(record))
    text = io.StringIO()
    with Display([run], Console(file=text, width=80, force_terminal=True, color_system=None), live=True) as display:
        display.refresh([run])
    shown = text.getvalue()
    assert "step 4,120 of 5,000, error 74.36 % 0:00:00" in shown
    assert "/undirected seed 0" in shown
    assert ":…" not in shown


def test_no_bars_in_a_file_or_notebook(runs, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = io.StringIO()
    with Display(runs(a_0=FINISH), Console(file=text, width=120)) as display:
        display.refresh(())
        display.say("a line")
    assert text.getvalue().strip() == "a line"
