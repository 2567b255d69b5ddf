"""`search_restarts`: pi begins again at given steps, and everything else goes on."""

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from small import assert_same, digits, learned, state_of

from lws_lightning import NonFiniteError

TWICE = {"search_restarts": 2, "nes_lr": 0.3, "seed": 0}


@pytest.mark.parametrize("options", [{}, {"critical_z": 0.5}, {"nes_batch": "training"}])
@pytest.mark.parametrize("saved", [1, 2])  # pi begins again before the steps 2 and 4
def test_it_resumes_bit_for_bit(tmp_path, quiet_trainer, options, saved):
    def run(name, **fit):
        module = learned(digits(seed=0), **TWICE, **options)
        keep = ModelCheckpoint(tmp_path / name, "{step}", every_n_train_steps=1, save_top_k=-1)
        trainer = quiet_trainer(max_steps=6, limit_val_batches=0, callbacks=[keep], enable_checkpointing=True)
        trainer.fit(module, digits(seed=0), **fit)
        return state_of(module, trainer)

    whole = run("whole")
    assert_same(run("resumed", ckpt_path=tmp_path / f"whole/step={saved}.ckpt", weights_only=True), whole)


def prior(module):
    """Another pi than the uniform one to begin from."""
    probs = torch.rand(module.distribution.probs.shape, generator=torch.Generator().manual_seed(1))
    return (probs / probs.sum(-1, keepdim=True)).tolist()


@pytest.mark.parametrize("given", [False, True])
def test_pi_begins_again_twice_and_the_last_time_after_two_thirds(quiet_trainer, given):
    probs = prior(learned(digits(seed=0), **TWICE)) if given else None
    module = learned(digits(seed=0), **TWICE, critical_z=0.5, initial_probs=probs)
    first, at = module.distribution.probs.clone(), []

    def watch(step, *arguments, **named):
        if torch.equal(module.distribution.probs, first) and not module.distribution.evidence.variance.any():
            at.append(module.global_step)
        return step(*arguments, **named)

    sample = module.scheme.sample
    module.scheme.sample = lambda size, update, phase: (
        watch(sample, size, update, phase) if phase == "nes" else sample(size, update, phase)
    )
    quiet_trainer(max_steps=12, limit_val_batches=0).fit(module, digits(seed=0))
    assert at == [0, 4, 8]


def test_until_the_first_restart_the_run_is_that_without(quiet_trainer):
    states = []
    for restarts in (0, 1):
        module = learned(digits(seed=0), **TWICE | {"search_restarts": restarts})
        trainer = quiet_trainer(max_steps=9, limit_val_batches=0)
        kept = []
        step = module.scheme.step

        def watch(update, batch, step=step, kept=kept, module=module):
            kept.append({name: value.clone() for name, value in module.state_dict().items()})
            return step(update, batch)

        module.scheme.step = watch
        trainer.fit(module, digits(seed=0))
        states.append(kept)
    for step in range(7):  # the state before step 6, at which pi begins again
        assert_same(states[0][step], states[1][step])
    assert not torch.equal(states[0][7]["distribution.probs"], states[1][7]["distribution.probs"])


def test_a_step_that_fails_leaves_no_trace(quiet_trainer):
    module = learned(digits(seed=0), **TWICE)
    quiet_trainer(max_steps=2, limit_val_batches=0).fit(module, digits(seed=0))
    before = {name: value.clone() for name, value in module.state_dict().items()}

    def fail():
        raise NonFiniteError("as if")

    module.scheme.rescale_gradients = fail
    module.scheme.begin(3)
    module.scheme.begin = lambda steps: []
    module.scheme._restarts |= {0}  # the next run counts from 0
    with pytest.raises(NonFiniteError):
        quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, digits(seed=0))
    assert_same(dict(module.state_dict()), before)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_run_shorter_than_its_restarts_works(quiet_trainer, steps):
    trainer = quiet_trainer(max_steps=steps, limit_val_batches=0)
    trainer.fit(learned(digits(seed=0), search_restarts=9, seed=0), digits(seed=0))
    assert trainer.global_step == steps


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="search_restarts must not be negative, but is -1"):
        learned(digits(), search_restarts=-1)
    with pytest.raises(ValueError, match=r"search_restarts needs a run with an end: set trainer\.max_steps"):
        learned(digits(), search_restarts=1).scheme.begin(float("inf"))


@pytest.mark.parametrize(("restarts", "said"), [(0, True), (2, False)])
def test_chance_is_judged_by_the_steps_that_are_left(quiet_trainer, caplog, restarts, said):
    options = {"search_restarts": restarts, "nes_lr": 1.0, "nes_samples": 8, "seed": 0}
    with caplog.at_level("INFO"):
        quiet_trainer(max_steps=20).fit(learned(digits(), **options), digits(seed=0))
    assert ("in about 13 steps, and it has 20." in caplog.text) == said
    assert ("random drift" in caplog.text) == said
