"""`critical_z`: pi moves only on evidence, whose sums are part of the state."""

import pytest
import torch
from small import assert_resumes_bit_for_bit, assert_same, digits, learned

from lws_lightning import LearnedWeightSharing, NonFiniteError

LOOSE = {"critical_z": 1.5, "seed": 0}


@pytest.mark.parametrize("options", [{}, {"credit": "per_task", "sampling": "systematic"}, {"nes_batch": "training"}])
def test_it_resumes_bit_for_bit(tmp_path, quiet_trainer, options):
    assert_resumes_bit_for_bit(LearnedWeightSharing, tmp_path, quiet_trainer, **LOOSE, **options)


def test_categoricals_move_now_and_then_and_only_on_evidence(quiet_trainer):
    module = learned(digits(seed=0), **LOOSE)
    rows, update = [], module.distribution.update

    def watch(*arguments):
        before = module.distribution.probs.clone()
        update(*arguments)
        moved = (module.distribution.probs != before).any(-1)
        rows.append(moved)
        assert module.distribution.evidence.variance.eq(0).all(-1)[moved].all(), "what has moved starts again"

    module.distribution.update = watch
    quiet_trainer(max_steps=30, limit_val_batches=0).fit(module, digits(seed=0))
    moved = torch.stack(rows)  # (steps, L, T)
    assert 0 < moved.double().mean() < 0.5


def test_a_step_that_fails_leaves_no_trace(quiet_trainer):
    module = learned(digits(seed=0), **LOOSE)
    quiet_trainer(max_steps=3, limit_val_batches=0).fit(module, digits(seed=0))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert before["distribution.evidence.gradient"].any()

    def fail():
        raise NonFiniteError("as if")

    module.scheme.rescale_gradients = fail  # after pi has moved, before the weights do
    with pytest.raises(NonFiniteError):
        quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, digits(seed=0))
    assert_same(dict(module.state_dict()), before)


@pytest.mark.parametrize(("saved", "new"), [(0.0, 1.5), (1.5, 0.0)])
def test_the_sums_are_part_of_the_state(quiet_trainer, tmp_path, saved, new):
    trainer = quiet_trainer(max_steps=1)
    trainer.fit(learned(digits(seed=0), seed=0, critical_z=saved), digits(seed=0))
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    with pytest.raises(ValueError, match=r"model\.critical_z"):
        quiet_trainer(max_steps=2).fit(
            learned(digits(seed=0), seed=0, critical_z=new),
            digits(seed=0),
            ckpt_path=tmp_path / "one.ckpt",
            weights_only=True,
        )


@pytest.mark.parametrize(("critical_z", "said"), [(0.0, True), (1.0, True), (4.0, False)])
def test_chance_is_named_only_where_it_decides(quiet_trainer, caplog, critical_z, said):
    data = digits(seed=0)
    with caplog.at_level("INFO"):
        quiet_trainer(max_steps=20).fit(
            learned(data, seed=0, nes_lr=1.0, nes_samples=8, critical_z=critical_z), digits(seed=0)
        )
    assert ("random drift alone halves" in caplog.text) == said


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_a_critical_value_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match="critical_z must be a finite, non-negative number"):
        learned(digits(), critical_z=value)
