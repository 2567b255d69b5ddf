"""Precision of the Trainer: resumed weights equal the saved ones."""

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from small import assert_same, digits, learned, state_of


@pytest.mark.parametrize("precision", ["64-true", "32-true", "bf16-true", "bf16-mixed"])
def test_resume_bit_for_bit(quiet_trainer, tmp_path, precision):
    def run(folder, checkpoint=None):
        data = digits(seed=0)
        module = learned(data, seed=0)
        saves = ModelCheckpoint(folder, "{step}", every_n_train_steps=2, save_top_k=-1)
        options = {"precision": precision, "max_steps": 6, "max_epochs": -1, "limit_val_batches": 0}
        trainer = quiet_trainer(**options, callbacks=[saves], enable_checkpointing=True)
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
        return state_of(module, trainer)

    unbroken = run(tmp_path / "unbroken")
    assert_same(unbroken, run(tmp_path / "resumed", tmp_path / "unbroken/step=2.ckpt"))
    wide = torch.float64 if precision == "64-true" else torch.float32
    assert unbroken["distribution.probs"].dtype == wide
