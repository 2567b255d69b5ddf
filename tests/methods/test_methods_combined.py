"""Schemes, objectives and early stopping combine freely, also in a user's method."""

import pytest
import torch
from lightning.pytorch import Callback
from small import assert_resumes_bit_for_bit, digits, make

from lws_lightning import MultiTaskMethod
from lws_lightning.methods import Design, FixedScheme, LearnedScheme, UncertaintyObjective


class UncertainSharing(MultiTaskMethod):
    """Learned sharing whose losses are weighted by uncertainty."""

    def __init__(self, nes_lr: float = 0.2, **options):
        design = Design("uncertain", lambda blueprint: LearnedScheme(blueprint, nes_lr=nes_lr), UncertaintyObjective)
        super().__init__(design, **options)


class FullStopping(MultiTaskMethod):
    """Full sharing with early stopping per task."""

    def __init__(self, patience: int = 1, **options):
        super().__init__(Design("full_stopping", lambda b: FixedScheme(b, "full"), patience=patience), **options)


class LearnedStopping(MultiTaskMethod):
    def __init__(self, **options):
        super().__init__(Design("learned_stopping", LearnedScheme, patience=1), **options)


def test_uncertainty_weighting_goes_with_learned_sharing(tmp_path, quiet_trainer):
    record = assert_resumes_bit_for_bit(UncertainSharing, tmp_path, quiet_trainer, nes_lr=0.5)
    assert record["method"] == "uncertain"
    assert record["entropies"]["normalized_mean"] < 1
    assert any(abs(value) > 0 for value in record["details"]["log_variances"].values())


class Worse(Callback):
    """Makes the first task's evaluations worse and all others better."""

    def setup(self, trainer, pl_module, stage):
        counts = pl_module.errors.compute

        def compute():
            found = counts().clone()
            found[0, 1] = min(trainer.global_step, float(found[0, 0]))
            found[1:, 1] = max(0, 10 - trainer.global_step)
            return found

        pl_module.errors.compute = compute


def test_early_stopping_goes_with_full_sharing(tmp_path, quiet_trainer):
    data = digits(validation="split", train_images_per_task=60)
    module = make(FullStopping, data)
    trainer = quiet_trainer(
        max_steps=4, val_check_interval=1, check_val_every_n_epoch=None, callbacks=[Worse()], default_root_dir=tmp_path
    )
    trainer.fit(module, datamodule=data)
    assert module.stopping.tasks_in_training() == [1, 2, 3]
    assert module.stopping.best_step.tolist() == [1, 4, 4, 4]
    images = torch.rand(3, 1, 8, 8)
    module.eval()
    assert not torch.equal(module(images, 0), module.network.forward_task(images, module.assignment, 0))
    torch.testing.assert_close(module(images, 1), module.network.forward_task(images, module.assignment, 1))


def test_tasks_do_not_stop_one_by_one_while_an_assignment_is_searched():
    with pytest.raises(ValueError, match="LearnedScheme has no fixed assignment"):
        make(LearnedStopping, digits(validation="split"))
