"""Undirected sharing: weights are trained under changing assignments, independently of losses."""

import json

import pytest
import torch
from lightning.pytorch import Callback
from small import assert_resumes_bit_for_bit, assert_same, batch_of, digits, fixed, learned, make, state_of

from lws_lightning import UndirectedSharing

GIVEN = {"none": [[0, 1, 2, 3]] * 2, "full": [[0] * 4] * 2}


def undirected(data, then, **options):
    return make(UndirectedSharing, data, then=then, **{"weights_per_layer": 4, "sgd_samples": 3, **options})


class Populations(Callback):
    """Records the training assignments and pi."""

    def __init__(self):
        self.drawn, self.probs = [], []

    def setup(self, trainer, pl_module, stage):
        compute = pl_module.update.gradients
        pl_module.update.gradients = lambda batch, population, **options: (
            self.drawn.append(population.clone()),
            compute(batch, population, **options),
        )[1]

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.probs.append(pl_module.scheme._draws.probs.clone())


def run(quiet_trainer, then, steps=9, **options):
    data, seen = digits(), Populations()
    module = undirected(data, then, **options)
    quiet_trainer(max_steps=steps, callbacks=[seen]).fit(module, data)
    return module, seen


@pytest.mark.parametrize("then", ["none", "full", "random"])
def test_assignments_are_drawn_for_a_part_of_the_run_and_then_given(quiet_trainer, tmp_path, then):
    module, seen = run(quiet_trainer, then)
    assert [len(population) for population in seen.drawn] == [3] * 6 + [1] * 3
    assert all(torch.equal(probs, torch.full((2, 4, 4), 0.25)) for probs in seen.probs)
    for population in seen.drawn[6:]:
        assert torch.equal(population[0], module.assignment)
    if then in GIVEN:
        assert module.assignment.tolist() == GIVEN[then]
    record = json.loads(next(tmp_path.rglob("result.json")).read_text())
    assert record["method"] == "undirected"
    assert record["entropies"] is None
    assert record["assignment"] == module.assignment.tolist()


def test_a_random_sharing_is_the_seeds():
    data = digits()
    assignments = [undirected(data, "random", seed=seed).assignment for seed in (0, 0, 1)]
    assert torch.equal(assignments[0], assignments[1])
    assert not torch.equal(assignments[0], assignments[2])


def test_with_no_undirected_part_it_is_fixed_sharing(quiet_trainer):
    module, _ = run(quiet_trainer, "none", undirected_part=0.0)
    data = digits()
    alone = fixed(data, "none")
    quiet_trainer(max_steps=9).fit(alone, data)
    assert_same(state_of(module.network), state_of(alone.network))


def test_the_undirected_part_trains_as_learned_sharing_with_a_pi_that_stays(quiet_trainer):
    module, _ = run(quiet_trainer, "none", undirected_part=1.0)
    data = digits()
    searched = learned(data, weights_per_layer=4, nes_lr=0.0)
    quiet_trainer(max_steps=9).fit(searched, data)
    assert_same(state_of(module.network), state_of(searched.network))


def test_chance_moves_pi_without_looking_at_a_loss(quiet_trainer):
    one, seen = run(quiet_trainer, "chance", nes_lr=0.1)
    assert not torch.equal(seen.probs[-1], seen.probs[0])
    assert torch.equal(one.assignment, one.distribution.mode())
    data = digits()
    data.setup()
    for images, _ in data._splits["train"]:
        images.copy_(torch.randint(256, images.shape, dtype=torch.uint8))  # other losses
    other = undirected(data, "chance", nes_lr=0.1)
    quiet_trainer(max_steps=9).fit(other, data)
    assert torch.equal(one.distribution.probs, other.distribution.probs)
    assert not torch.equal(state_of(one.network)["heads.0.weight"], state_of(other.network)["heads.0.weight"])


def test_equal_assignments_share_their_utilities():
    module = undirected(digits(), "chance", weights_per_layer=1, nes_lr=0.5)
    module.batch = batch_of(digits())
    before = module.distribution.probs.clone()
    module.scheme._drift(module.update)  # all assignments are equal, so that nothing moves
    assert torch.equal(module.distribution.probs, before)


@pytest.mark.parametrize("then", ["random", "chance"])
def test_two_and_two_steps_are_four(tmp_path, quiet_trainer, then):
    record = assert_resumes_bit_for_bit(
        UndirectedSharing, tmp_path, quiet_trainer, then=then, weights_per_layer=4, undirected_part=1.0
    )
    assert record["identity"]["method"]["then"] == then


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"then": "some"}, "then must be one of none, full, random, chance"),
        ({"then": "none", "weights_per_layer": 3}, r"at least 4"),
        ({"then": "full", "undirected_part": 1.5}, "undirected_part"),
        ({"then": "full", "sgd_samples": 0}, "sgd_samples"),
        ({"then": "chance", "nes_lr": -1.0}, "nes_lr"),
        ({"then": "chance", "sampling": "all"}, "sampling"),
    ],
)
def test_bad_options_name_themselves(options, message):
    with pytest.raises(ValueError, match=message):
        undirected(digits(), **options)


def test_a_run_without_an_end_has_no_part(quiet_trainer):
    data = digits()
    with pytest.raises(ValueError, match="needs a run with an end"):
        quiet_trainer(max_epochs=-1).fit(undirected(data, "full"), data)
