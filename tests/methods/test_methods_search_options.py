"""Options of learned sharing that change how pi and the weights are searched."""

import pytest
from small import assert_same, digits, learned, state_of


def test_a_run_with_other_options_goes_on_from_its_checkpoint(quiet_trainer, tmp_path):
    options = {"seed": 0, "nes_lr": 0.6, "running_stats": "per_task", "sampling": "systematic"}
    whole = learned(digits(seed=0), **options)
    trainer = quiet_trainer(max_steps=24)
    trainer.fit(whole, digits(seed=0))
    for stop in (4, 20):
        first, second = learned(digits(seed=0), **options), learned(digits(seed=0), **options)
        half = quiet_trainer(max_steps=stop)
        half.fit(first, digits(seed=0))
        half.save_checkpoint(tmp_path / "half.ckpt")
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
