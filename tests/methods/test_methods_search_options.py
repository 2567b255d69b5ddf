"""Options of learned sharing that change how pi and the weights are searched."""

import pytest
import torch
from lightning.pytorch import Callback
from small import assert_same, digits, fixed, learned, state_of


class Watch(Callback):
    """Records pi after every step."""

    def __init__(self):
        self.probs, self.frozen = [], []

    def on_train_batch_end(self, trainer, module, *_):
        self.probs.append(module.distribution.probs.clone())
        self.frozen.append(module.scheme.frozen)


def test_a_frozen_pi_stays_and_the_weights_go_on_under_the_most_likely_assignment(quiet_trainer):
    data, watch = digits(seed=0), Watch()
    module = learned(data, seed=0, nes_lr=0.6, freeze_entropy=0.5)
    quiet_trainer(max_steps=30, callbacks=[watch]).fit(module, data)
    first = watch.frozen.index(True)
    assert 1 < first < 25
    assert all(watch.frozen[first:])
    assert not torch.equal(watch.probs[first - 1], watch.probs[first])
    assert all(torch.equal(watch.probs[first], probs) for probs in watch.probs[first:])
    assert module.distribution.normalized_entropy().mean() < 0.5


def test_a_step_with_frozen_pi_is_that_of_the_fixed_assignment(quiet_trainer):
    """Learned sharing with pi concentrated on full sharing, against full sharing from the same weights."""
    data = digits(seed=0)
    certain = [[[1.0, 0.0]] * 4] * 2
    options = {"weights_per_layer": 2, "min_probability": 0.0, "initial_probs": certain, "seed": 0}
    frozen, full = learned(data, **options, freeze_entropy=0.1), fixed(data, "full", seed=0)
    for module in (frozen, full):
        quiet_trainer(max_steps=5).fit(module, digits(seed=0))
    ours, theirs = state_of(frozen), state_of(full)
    assert_same(
        {key: ours[key] for key in theirs if key.startswith("network")},
        {k: v for k, v in theirs.items() if k.startswith("network")},
    )


def test_a_frozen_run_goes_on_from_its_checkpoint(quiet_trainer, tmp_path):
    options = {"seed": 0, "nes_lr": 0.6, "freeze_entropy": 0.5, "running_stats": "per_task", "sampling": "systematic"}
    whole = learned(digits(seed=0), **options)
    trainer = quiet_trainer(max_steps=24)
    trainer.fit(whole, digits(seed=0))
    for stop in (4, 20):  # before and after pi is frozen
        first, second = learned(digits(seed=0), **options), learned(digits(seed=0), **options)
        half = quiet_trainer(max_steps=stop)
        half.fit(first, digits(seed=0))
        half.save_checkpoint(tmp_path / "half.ckpt")
        assert first.scheme.frozen == (stop == 20)
        resumed = quiet_trainer(max_steps=24)
        resumed.fit(second, digits(seed=0), ckpt_path=tmp_path / "half.ckpt", weights_only=True)
        assert_same(state_of(whole, trainer), state_of(second, resumed))


def test_both_populations_are_drawn_as_asked(monkeypatch, quiet_trainer):
    data = digits(seed=0)
    module = learned(data, seed=0, sampling="systematic")
    seen = []
    sample = module.distribution.sample
    monkeypatch.setattr(module.distribution, "sample", lambda *given: seen.append(given) or sample(*given))
    quiet_trainer(max_steps=1).fit(module, data)
    assert [(size, sampling) for size, _, sampling in seen] == [(4, "systematic"), (3, "systematic")]


def test_the_eps_of_adam_is_passed_on_and_obeyed_on_resume(quiet_trainer, tmp_path):
    data = digits(seed=0)
    module = learned(data, seed=0, adam_eps=1e-3)
    trainer = quiet_trainer(max_steps=1)
    trainer.fit(module, data)
    assert trainer.optimizers[0].param_groups[0]["eps"] == 1e-3
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    other, resumed = learned(digits(seed=0), seed=0, adam_eps=1e-5), quiet_trainer(max_steps=2)
    with pytest.warns(UserWarning, match="adam_eps"):
        resumed.fit(other, digits(seed=0), ckpt_path=tmp_path / "one.ckpt", weights_only=True)
    assert resumed.optimizers[0].param_groups[0]["eps"] == 1e-5


@pytest.mark.parametrize(("saved", "new"), [("mean", "per_task"), ("per_task", "per_visit")])
def test_running_statistics_of_each_task_are_part_of_the_state(quiet_trainer, tmp_path, saved, new):
    data = digits(seed=0)
    trainer = quiet_trainer(max_steps=1)
    trainer.fit(learned(data, seed=0, running_stats=saved), data)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    with pytest.raises(ValueError, match=r"model\.running_stats"):
        quiet_trainer(max_steps=2).fit(
            learned(data, seed=0, running_stats=new), digits(seed=0), ckpt_path=tmp_path / "one.ckpt", weights_only=True
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "antithetic"}, "sampling must be independent or systematic"),
        ({"freeze_entropy": -0.1}, r"freeze_entropy must be in \[0, 1\)"),
        ({"adam_eps": 0.0}, "adam_eps must be positive"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        learned(digits(), **options)


@pytest.mark.parametrize(("nes_lr", "said"), [(1.0, True), (0.1, False), (0.0, False)])
def test_a_step_size_that_draws_lots_is_named(quiet_trainer, caplog, nes_lr, said):
    data = digits(seed=0)
    with caplog.at_level("INFO"):
        quiet_trainer(max_steps=20).fit(learned(data, seed=0, nes_lr=nes_lr, nes_samples=8), data)
    note = "With nes_lr 1 and populations of 8 random drift alone halves the diversity of pi in about 13 steps"
    assert (note in caplog.text) == said
