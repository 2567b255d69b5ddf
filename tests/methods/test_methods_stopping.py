"""A run stopped in any way at any moment, once resumed, ends like an uninterrupted one."""

import multiprocessing
import signal

import pytest
from small import digits, learned, make
from stopped_runs import (
    INTERVAL,
    MOMENTS,
    STATUS,
    STEPS,
    Evaluations,
    Strike,
    assert_left_the_same,
    newest,
    saving,
    what_is_left,
)

from lws_lightning import IndependentEarlyStopping

DECAYS = [pytest.param(None, marks=pytest.mark.slow), 0.9]  # with an average everything is there to go wrong


def fit(quiet_trainer, folder, decay, *callbacks, evaluations, how=learned, **data):
    data = digits(**data)
    module = how(data, lr_schedule="cosine", ema_decay=decay)
    trainer = quiet_trainer(
        max_steps=STEPS, val_check_interval=INTERVAL, check_val_every_n_epoch=None, default_root_dir=folder,
        enable_checkpointing=True, callbacks=[*callbacks, evaluations, saving(folder)],
    )  # fmt: skip
    trainer.fit(module, datamodule=data, ckpt_path=newest(folder))
    return what_is_left(folder, module, trainer, evaluations)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Results of an uninterrupted run, by decay."""
    kept = {}

    def of(quiet_trainer, decay, **options):
        key = decay, *sorted(options)
        if key not in kept:
            folder = tmp_path_factory.mktemp("unbroken")
            kept[key] = fit(quiet_trainer, folder, decay, evaluations=Evaluations(), **options)
            assert list(kept[key]["images"])[:2] == [3, 6]
        return kept[key]

    return of


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(
    "how",
    ["SIGINT", "SIGTERM", "error", *(pytest.param(how, marks=pytest.mark.slow) for how in ("SIGUSR1", "interrupt"))],
)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_stopped_at_any_moment_ends_as_the_unbroken_one(quiet_trainer, tmp_path, unbroken, moment, how, decay):
    evaluations = Evaluations()
    with pytest.raises((SystemExit, KeyboardInterrupt, RuntimeError)) as stopped:
        fit(quiet_trainer, tmp_path, decay, Strike(moment, how), evaluations=evaluations)
    if how in STATUS:
        assert stopped.value.code == STATUS[how]
    found = fit(quiet_trainer, tmp_path, decay, evaluations=evaluations)
    assert_left_the_same(found, unbroken(quiet_trainer, decay))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="a forked process is killed")
@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_was_killed_ends_as_the_unbroken_one(quiet_trainer, tmp_path, unbroken, moment, decay):
    def killed():
        fit(quiet_trainer, tmp_path, decay, Strike(moment, "SIGKILL"), evaluations=Evaluations())

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    expected = unbroken(quiet_trainer, decay)
    found = fit(quiet_trainer, tmp_path, decay, evaluations=Evaluations())
    expected = {**expected, "images": {step: expected["images"][step] for step in found["images"]}}
    assert_left_the_same(found, expected)


def stopping(data, **options):
    return make(IndependentEarlyStopping, data, patience=2, **options)


@pytest.mark.parametrize("moment", ["update", "after_step", "evaluation", "evaluation_end", "saving"])
def test_early_stopping_counts_every_evaluation_once(quiet_trainer, tmp_path, unbroken, moment):
    options = {"how": stopping, "validation": "split"}
    evaluations = Evaluations()
    with pytest.raises(SystemExit):
        fit(quiet_trainer, tmp_path, 0.9, Strike(moment, "SIGINT"), evaluations=evaluations, **options)
    found = fit(quiet_trainer, tmp_path, 0.9, evaluations=evaluations, **options)
    assert_left_the_same(found, unbroken(quiet_trainer, 0.9, **options))


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """Simulates a SLURM job; returns the file that its `scontrol` writes its arguments to."""
    calls = tmp_path / "scontrol.txt"
    stub = tmp_path / "bin/scontrol"
    stub.parent.mkdir()
    stub.write_text(f"#!/bin/sh\necho $@ >> {calls}\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(stub.parent), prepend=":")
    for name, value in {
        "JOB_ID": 7, "JOB_NAME": "lws", "NTASKS": 1, "NTASKS_PER_NODE": 1, "PROCID": 0, "LOCALID": 0, "NODEID": 0,
    }.items():  # fmt: skip
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    return calls


@pytest.mark.parametrize("moment", ["nes", "update", "before_step", "evaluation", "saving"])
def test_slurms_signal_saves_a_complete_step_and_requeues_nothing(
    quiet_trainer, tmp_path, unbroken, slurm, caplog, moment
):
    folder, evaluations = tmp_path / "run", Evaluations()
    with pytest.raises(SystemExit) as stopped:
        fit(quiet_trainer, folder, 0.9, Strike(moment, "SIGUSR1"), evaluations=evaluations)
    assert stopped.value.code == 138
    assert "Under SLURM a run does not requeue itself" in caplog.text
    assert not slurm.exists()
    assert not list(folder.rglob("hpc_ckpt*"))
    found = fit(quiet_trainer, folder, 0.9, evaluations=evaluations)
    assert_left_the_same(found, unbroken(quiet_trainer, 0.9))


def test_signals_are_left_to_others_after_the_run(quiet_trainer, tmp_path):
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in watched]
    fit(quiet_trainer, tmp_path / "whole", None, evaluations=Evaluations())
    assert [signal.getsignal(number) for number in watched] == before
    with pytest.raises(RuntimeError):
        fit(quiet_trainer, tmp_path / "broken", None, Strike("gradient", "error"), evaluations=Evaluations())
    assert [signal.getsignal(number) for number in watched] == before


def test_a_program_keeps_its_own_sigusr1(quiet_trainer, tmp_path):
    received = []
    before = signal.signal(signal.SIGUSR1, lambda *arguments: received.append(arguments[0]))
    try:
        fit(quiet_trainer, tmp_path, None, Strike("gradient", "SIGUSR1"), evaluations=Evaluations())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received == [signal.SIGUSR1]
