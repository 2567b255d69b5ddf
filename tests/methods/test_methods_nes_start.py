"""`nes_start`: the search begins after some steps."""

import pytest
import torch
from small import assert_resumes_bit_for_bit, digits, learned, state_of

from lws_lightning import LearnedWeightSharing


@pytest.mark.parametrize("options", [{}, {"nes_batch": "training"}, {"credit": "per_task", "critical_z": 0.5}])
def test_pi_stays_until_then_and_then_moves(quiet_trainer, options):
    data = digits()
    ends = []
    for steps in (3, 4):
        module = learned(data, nes_start=3, **options)
        before = module.distribution.probs.clone()
        quiet_trainer(max_steps=steps, limit_val_batches=0).fit(module, datamodule=data)
        ends.append(torch.equal(module.distribution.probs, before))
    assert ends == [True, False]


def test_until_then_the_weights_are_trained_as_with_a_search_that_does_not_move(quiet_trainer):
    states = []
    for options in ({"nes_start": 5}, {"nes_lr": 0.0}):
        data = digits()
        module = learned(data, seed=2, **options)
        quiet_trainer(max_steps=3, limit_val_batches=0).fit(module, datamodule=data)
        states.append(state_of(module))
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_there_is_no_nes_pass_until_then(quiet_trainer, monkeypatch):
    data = digits()
    module = learned(data, nes_start=2)
    passes = []
    original = module.update.evaluate
    monkeypatch.setattr(module.update, "evaluate", lambda *args: passes.append(module.update.step) or original(*args))
    quiet_trainer(max_steps=4, limit_val_batches=0).fit(module, datamodule=data)
    assert passes == [2, 3]


def test_it_resumes_bit_for_bit_across_the_start(quiet_trainer, tmp_path):
    options = {"nes_start": 3, "nes_samples": 4, "sgd_samples": 3, "nes_lr": 0.1}
    assert_resumes_bit_for_bit(LearnedWeightSharing, tmp_path, quiet_trainer, **options)


def test_what_makes_no_sense_is_said():
    data = digits()
    with pytest.raises(ValueError, match="nes_start is a number of steps, but is -1"):
        learned(data, nes_start=-1)
    assert "does not begin in this run of 10 steps" in learned(data, nes_start=10).scheme.begin(10)[0]
    assert learned(data, nes_start=10, nes_lr=0.1).scheme.begin(60) == learned(data, nes_lr=0.1).scheme.begin(50)
