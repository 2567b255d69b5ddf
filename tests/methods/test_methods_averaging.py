"""Exponential moving average of the weights."""

import json

import pytest
import torch
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging
from small import assert_same, digits, learned, make, state_of

from lws_lightning import IndependentEarlyStopping, task_network
from lws_lightning.training import to_inputs
from lws_lightning.training.averaging import decay_at

TRAINER = {"val_check_interval": 5, "check_val_every_n_epoch": None}


def run(quiet_trainer, steps, *callbacks, data=None, trainer=None, fit=None, **options):
    data = digits(**(data or {}))
    module = learned(data, **{"ema_decay": 0.9, "running_stats": "per_task", **options})
    trainer = quiet_trainer(max_steps=steps, callbacks=list(callbacks), **TRAINER, **(trainer or {}))
    trainer.fit(module, data, **(fit or {}))
    return module, data, trainer


class EveryStep(Callback):
    def __init__(self):
        self.weights, self.buffers = [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.weights.append([p.detach().clone() for p in pl_module.network.parameters()])
        self.buffers.append([b.clone() for b in pl_module.network.buffers()])


def test_the_average_is_that_of_a_plain_loop(quiet_trainer):
    every = EveryStep()
    module, _, _ = run(quiet_trainer, 12, every, trainer={"precision": "64-true"})
    start = learned(digits(), running_stats="per_task").double()
    means = [p.detach().clone() for p in start.network.parameters()]
    statistics = [b.clone() for b in start.network.buffers()]
    for step in range(1, 13):
        decay = min(0.9, (1 + step) / (10 + step))
        means = [decay * mean + (1 - decay) * new for mean, new in zip(means, every.weights[step - 1], strict=True)]
        for place, new in enumerate(every.buffers[step - 1]):
            old = statistics[place]
            statistics[place] = decay * old + (1 - decay) * new if new.is_floating_point() else new
    for ours, mean in zip(module.average.parameters(), means, strict=True):
        torch.testing.assert_close(ours, mean, rtol=1e-12, atol=1e-14)
    for ours, mean in zip(module.average.buffers(), statistics, strict=True):
        torch.testing.assert_close(ours, mean, rtol=1e-12, atol=1e-14)


def test_counters_are_copied_and_never_averaged(quiet_trainer):
    module, _, _ = run(quiet_trainer, 7)
    counters = [(ours, now) for ours, now in zip(module.average.buffers(), module.network.buffers(), strict=True)]
    assert all(torch.equal(ours, now) for ours, now in counters if not ours.is_floating_point())


def test_a_short_run_is_not_an_average_over_its_initial_weights():
    kept = 1.0
    for step in range(1, 241):
        kept *= decay_at(step, 0.995)
    assert kept < 1e-9
    assert 0.995**240 > 0.3
    assert decay_at(10**6, 0.995) == 0.995


def test_evaluation_test_prediction_and_export_use_the_average(quiet_trainer, tmp_path):
    module, data, trainer = run(quiet_trainer, 10)
    record = json.loads(next(tmp_path.rglob("result.json")).read_text())
    (tested,) = trainer.test(module, data, verbose=False)
    assert record["evaluation"]["step"] == 10
    assert record["evaluation"]["error"] == pytest.approx(tested["test/error"])
    images = data.examples("test")[0][0][:9]
    module.eval()
    expected = module.average.forward_task(to_inputs(images, module.dtype), module.assignment, 0)
    torch.testing.assert_close(module(images, 0), expected, rtol=0, atol=0)
    torch.testing.assert_close(task_network(module, 0)(images / 255), expected)
    current = module.network.forward_task(to_inputs(images, module.dtype), module.assignment, 0)
    assert not torch.allclose(current, expected)


def test_one_trainer_may_fit_and_then_test_a_checkpoint(quiet_trainer, tmp_path):
    module, data, trainer = run(quiet_trainer, 10)
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    (first,) = trainer.test(module, data, verbose=False)
    (again,) = trainer.test(module, data, ckpt_path=tmp_path / "end.ckpt", weights_only=True, verbose=False)
    assert first == again
    fresh = learned(data, ema_decay=0.9, running_stats="per_task")
    (alone,) = quiet_trainer().test(fresh, data, ckpt_path=tmp_path / "end.ckpt", verbose=False)
    assert alone == first


@pytest.mark.parametrize("precision", ["64-true", "32-true", "bf16-mixed"])
def test_evaluations_do_not_change_the_run(quiet_trainer, precision):
    watched, _, _ = run(quiet_trainer, 12, trainer={"precision": precision})
    data = digits()
    alone = learned(data, ema_decay=0.9, running_stats="per_task")
    quiet_trainer(max_steps=12, limit_val_batches=0, precision=precision).fit(alone, data)
    assert_same(state_of(watched), state_of(alone))


def test_the_average_does_not_change_the_training(quiet_trainer):
    averaged, _, _ = run(quiet_trainer, 8)
    plain, _, _ = run(quiet_trainer, 8, ema_decay=None)
    assert_same(state_of(averaged.network), state_of(plain.network))


def test_precisions_in_which_an_average_would_not_move_are_refused(quiet_trainer):
    with pytest.raises(ValueError, match=r"model\.ema_decay cannot work with trainer\.precision bf16-true"):
        run(quiet_trainer, 2, trainer={"precision": "bf16-true"})


@pytest.mark.parametrize(("before", "after"), [(0.9, None), (None, 0.9)])
def test_an_average_is_neither_dropped_nor_added_on_resume(quiet_trainer, tmp_path, before, after):
    _, _, trainer = run(quiet_trainer, 3, ema_decay=before)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    with pytest.raises(ValueError, match=rf"model\.ema_decay is {after}, but the checkpoint was trained with {before}"):
        run(quiet_trainer, 6, ema_decay=after, fit={"ckpt_path": tmp_path / "half.ckpt"})


def test_lightnings_averages_are_refused_with_what_to_use(quiet_trainer):
    with pytest.raises(ValueError, match=r"EMAWeightAveraging cannot work.*model\.ema_decay"):
        run(quiet_trainer, 2, EMAWeightAveraging(decay=0.9), ema_decay=None)


@pytest.mark.parametrize("decay", [0.0, 1.0, -1.0, float("nan")])
def test_a_decay_is_a_share(decay):
    with pytest.raises(ValueError, match="ema_decay must be in"):
        learned(digits(), ema_decay=decay)


class Measured(Callback):
    """Records the result of each evaluation and the weights it used."""

    def __init__(self):
        self.weights = {}

    def on_validation_end(self, trainer, pl_module):
        for task in range(len(pl_module.task_names)):
            modules = pl_module.average.task_modules(pl_module.assignment, task)
            self.weights[trainer.global_step, task] = [p.clone() for m in modules for p in m.parameters()]


def test_early_stopping_keeps_the_averages_that_it_measured(quiet_trainer):
    data, measured = digits(validation="split"), Measured()
    module = make(IndependentEarlyStopping, data, ema_decay=0.9, patience=2)
    quiet_trainer(max_steps=12, callbacks=[measured], val_check_interval=3, check_val_every_n_epoch=None).fit(
        module, data
    )
    for task, step in enumerate(module.stopping.best_step.tolist()):
        kept = [
            p for m in module.stopping.best.task_modules(module.stopping.best_assignment, task) for p in m.parameters()
        ]
        assert all(map(torch.equal, kept, measured.weights[step, task]))
    for name in ("best_wrong", "best_step", "waited", "judged_step"):
        assert getattr(module.stopping, name).dtype == torch.int64


def test_a_run_folder_says_the_decay(quiet_trainer, tmp_path):
    run(quiet_trainer, 2)
    assert json.loads(next(tmp_path.rglob("result.json")).read_text())["identity"]["method"]["ema_decay"] == 0.9
