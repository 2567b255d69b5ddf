"""The batches that a run sees of a data module."""

import pytest
import torch
from fakes import Tiny
from lightning.pytorch import seed_everything
from recording import Recorder, steps_of, trainer


def test_loader_batches():
    loader = Tiny().train_dataloader()
    batches = list(loader)
    assert len(batches) == len(loader) == 4
    assert batches[0].nes.images.shape == batches[0].sgd.images.shape == (3, 16, 1, 8, 8)
    assert batches[0].sgd.labels.dtype == torch.int64


def test_seed_comes_from_seed_everything_unless_given(monkeypatch):
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    assert Tiny().seed == 0
    monkeypatch.setenv("PL_GLOBAL_SEED", "11")
    seed_everything(11)
    assert Tiny().seed == 11
    assert Tiny(seed=4).seed == 4


def test_batches_do_not_depend_on_workers_and_go_on_over_epochs():
    runs = [steps_of(Tiny(num_workers=workers), max_epochs=3) for workers in (0, 2)]  # persistent
    assert runs[0] == runs[1]
    assert len(runs[0]) == 12
    epochs = [runs[0][0:4], runs[0][4:8], runs[0][8:12]]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    third = sorted(x for step in epochs[2] for x in step[1][1])
    assert third == sorted([0, 1, 2, 3] * 16)  # 64 images of task b, once each


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("done", [3, 4, 6])
def test_resumed_run_sees_the_same_batches(tmp_path, done, workers):
    whole = steps_of(Tiny(), max_steps=9)
    first, second = Recorder(), Recorder()
    started = trainer(max_steps=done)
    started.fit(first, Tiny(num_workers=workers))
    started.save_checkpoint(tmp_path / "x.ckpt")
    trainer(max_steps=9).fit(second, Tiny(num_workers=workers), ckpt_path=tmp_path / "x.ckpt")
    assert first.steps + second.steps == whole


def test_resuming_within_an_epoch_is_no_reason_to_warn(tmp_path, recwarn):
    started = trainer(max_steps=3)
    started.fit(Recorder(), Tiny())
    started.save_checkpoint(tmp_path / "x.ckpt")
    trainer(max_steps=9).fit(Recorder(), Tiny(), ckpt_path=tmp_path / "x.ckpt")
    assert not [str(w.message) for w in recwarn if "resum" in str(w.message)]


def test_overfit_batches_repeats_the_batch():
    steps = steps_of(Tiny(), max_epochs=3, overfit_batches=1)
    assert len(steps) == 3
    assert steps[0] == steps[1] == steps[2] == steps_of(Tiny(), max_steps=1)[0]


@pytest.mark.parametrize(
    ("options", "count"), [({"fast_dev_run": True}, 1), ({"limit_train_batches": 2, "max_epochs": 2}, 4)]
)
def test_short_runs_have_whole_batches(options, count):
    steps = steps_of(Tiny(), **options)
    assert len(steps) == count
    assert all(len(labels) == 16 for step in steps for labels in step[1])
    assert steps == steps_of(Tiny(), max_steps=count)  # the step counter goes on, epoch or not


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_validation_batches_reach_several_tasks(limit):
    recorder = Recorder()
    trainer(max_steps=1, limit_val_batches=limit).fit(recorder, Tiny(evaluation_batch_size=2))
    recorder.validated.clear()
    trainer(limit_val_batches=limit).validate(recorder, Tiny(evaluation_batch_size=2), verbose=False)
    assert [task for task, _ in recorder.validated] == [0, 1, 2][:limit]


def test_test_loop_sees_every_test_image_once():
    recorder = Recorder()
    trainer().test(recorder, Tiny(evaluation_batch_size=4, num_workers=2), verbose=False)
    seen = sorted((task, number) for task, images in recorder.validated for number in images)
    assert seen == [(t, 100 + n) for t, size in enumerate((11, 9, 1)) for n in range(size)]


def test_one_image_more_than_a_batch():
    class OneMore(Tiny):
        sizes = {"a": (17, 1, 0), "b": (4, 1, 0), "c": (5, 1, 0)}  # noqa: RUF012

    steps = steps_of(OneMore(), max_epochs=2)
    assert len(steps) == 4
    assert all(len(labels) == 16 for step in steps for labels in step[1])
