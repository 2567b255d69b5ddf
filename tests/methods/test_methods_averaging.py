"""Lightning's averages of the weights beside learned sharing."""

import json

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EMAWeightAveraging
from small import assert_same, digits, learned, state_of

OPTIONS = {"seed": 0, "running_stats": "per_task"}
TRAINER = {"val_check_interval": 5, "check_val_every_n_epoch": None}


def average():
    return EMAWeightAveraging(decay=0.9)


def run(quiet_trainer, steps, *callbacks, **fit):
    module, data = learned(digits(seed=0), **OPTIONS), digits(seed=0)
    trainer = quiet_trainer(max_steps=steps, callbacks=[average(), *callbacks], **TRAINER)
    trainer.fit(module, data, **fit)
    return module, data, trainer


def test_the_run_ends_with_the_average_and_its_error(quiet_trainer, tmp_path):
    module, data, trainer = run(quiet_trainer, 10)
    (path,) = tmp_path.rglob("result.json")
    record = json.loads(path.read_text())
    weights = []
    for steps in range(1, 11):
        alone = learned(digits(seed=0), **OPTIONS)
        quiet_trainer(max_steps=steps, limit_val_batches=0).fit(alone, digits(seed=0))
        weights.append({name: p.detach().clone() for name, p in alone.named_parameters()})
    for name, parameter in module.named_parameters():
        mean = weights[0][name]
        for each in weights[1:]:
            mean = 0.9 * mean + 0.1 * each[name]
        torch.testing.assert_close(parameter, mean, rtol=1e-4, atol=1e-6)
    (tested,) = trainer.test(module, data, verbose=False)
    assert record["evaluation"]["step"] == 10
    assert record["evaluation"]["error"] == pytest.approx(tested["test/error"])


class Saver(Callback):
    """Saves after a step, as `ModelCheckpoint` does: when the run has ended, the module holds the average alone."""

    def __init__(self, path, step):
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def test_a_resumed_run_has_the_average_of_the_unbroken_one(quiet_trainer, tmp_path):
    path = tmp_path / "half.ckpt"
    whole, _, _ = run(quiet_trainer, 12, Saver(path, 7))
    resumed, _, _ = run(quiet_trainer, 12, ckpt_path=path, weights_only=True)
    assert_same(state_of(whole), state_of(resumed))
