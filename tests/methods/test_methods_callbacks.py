"""Unsupported callbacks are refused at the start, supported ones are not."""

import pytest
from lightning.pytorch import callbacks
from lightning.pytorch.tuner import Tuner
from small import digits, fixed

REFUSED = {
    "BackboneFinetuning": (callbacks.BackboneFinetuning, "learned_layers"),
    "BatchSizeFinder": (callbacks.BatchSizeFinder, r"data\.batch_size"),
    "GradientAccumulationScheduler": (lambda: callbacks.GradientAccumulationScheduler({0: 2}), r"data\.batch_size"),
    "LearningRateFinder": (callbacks.LearningRateFinder, r"model\.lr"),
    "ModelPruning": (lambda: callbacks.ModelPruning("l1_unstructured"), "weights_per_layer"),
    "SpikeDetection": (callbacks.SpikeDetection, "clip_grad_norm"),
    "StochasticWeightAveraging": (lambda: callbacks.StochasticWeightAveraging(0.01), "ema_decay"),
    "EMAWeightAveraging": (callbacks.EMAWeightAveraging, "ema_decay"),
    "WeightAveraging": (callbacks.WeightAveraging, "ema_decay"),
}
WORK = {
    "DeviceStatsMonitor", "EarlyStopping", "LambdaCallback", "LearningRateMonitor",
    "ModelCheckpoint", "ModelSummary", "OnExceptionCheckpoint", "RichModelSummary", "RichProgressBar",
    "ThroughputMonitor", "Timer", "TQDMProgressBar",
}  # fmt: skip
BASES = {"BaseFinetuning", "BasePredictionWriter", "Callback", "Checkpoint", "ProgressBar"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_callback_that_cannot_work_is_refused_with_what_to_use(quiet_trainer, name):
    make, instead = REFUSED[name]
    data = digits()
    trainer = quiet_trainer(max_steps=2, callbacks=[make()])
    with pytest.raises(ValueError, match=rf"callback {name} cannot work, because .*optimises manually.*{instead}"):
        trainer.fit(fixed(data), datamodule=data)
    assert trainer.global_step == 0


def test_every_callback_of_lightning_is_either_refused_or_known_to_work():
    assert set(callbacks.__all__) - BASES == set(REFUSED) | WORK


@pytest.mark.parametrize("tune", [Tuner.lr_find, Tuner.scale_batch_size])
def test_the_tuner_is_refused(quiet_trainer, tune):
    data = digits()
    with pytest.raises(ValueError, match="Finder cannot work"):
        tune(Tuner(quiet_trainer(max_steps=2)), fixed(data), datamodule=data)
