"""Stopped by anything, at any moment, a run that is given again ends as the unbroken one."""

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

DECAYS = [None, 0.9]


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
    """By decay, what an unbroken run leaves."""
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
@pytest.mark.parametrize("how", [*STATUS, "error", "interrupt"])
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
