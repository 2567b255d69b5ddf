"""Loss weights of the tasks."""

import pytest
import torch
from small import assert_same, batch_of, digits, fixed, learned, losses_and_gradients, make, state_of
from torch.nn import functional as F

from lws_lightning import IndependentEarlyStopping, RoutingNetworks, UncertaintyWeighting
from lws_lightning.search import rank_utilities
from lws_lightning.training import to_inputs

EXACT = {"rtol": 0, "atol": 1e-10}
WEIGHTS = [1.0, 5.0, 0.5, 2.0]


def explicit_gradients(module, batch, population, weights):
    """The gradient of the weighted mean, from a loop over assignments and tasks."""
    module.double()
    for parameter in module.parameters():
        parameter.grad = None
    images = to_inputs(batch.images, module.dtype)
    total, share = 0.0, sum(weights)
    for assignment in population:
        one = assignment.unsqueeze(0)
        for task, logits in enumerate(module.network(images, one)):
            total = total + weights[task] / share * F.cross_entropy(logits[0], batch.labels[task])
    (total / len(population)).backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("bound", [None, 8])
@pytest.mark.parametrize("form", ["list", "dict"])
def test_gradients_are_those_of_the_weighted_mean(bound, form):
    data = digits()
    batch = batch_of(data)
    given = WEIGHTS if form == "list" else dict(list(zip(data.task_names, WEIGHTS, strict=True))[1:])  # the first is 1
    module = learned(data, loss_weights=given, max_images_per_pass=bound)
    population = module.distribution.sample(3, torch.Generator().manual_seed(0))
    losses, gradients = losses_and_gradients(module, batch, population)
    expected = explicit_gradients(learned(data), batch, population, WEIGHTS)
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, **EXACT)
    plain, _ = losses_and_gradients(learned(data), batch, population)
    torch.testing.assert_close(losses, plain, **EXACT)  # what is logged has no weights


@pytest.mark.parametrize("equal", [[1.0] * 4, [0.3] * 4, {"upright_digit": 1}])
def test_equal_weights_are_none_bit_for_bit(quiet_trainer, equal):
    def run(loss_weights):
        data = digits()
        module = learned(data, loss_weights=loss_weights)
        trainer = quiet_trainer(max_steps=3, limit_val_batches=0)
        trainer.fit(module, datamodule=data)
        return state_of(module, trainer)

    assert_same(run(equal), run(None))


def test_only_ratios_count():
    data = digits()
    batch = batch_of(data)
    one, other = fixed(data, loss_weights=WEIGHTS), fixed(data, loss_weights=[8 * weight for weight in WEIGHTS])
    population = one.assignment.unsqueeze(0)
    wanted = losses_and_gradients(one, batch, population)[1]
    assert_same(losses_and_gradients(other, batch, population)[1], wanted)
    huge = fixed(data, loss_weights=[1e308] * 3 + [5e307])
    assert huge.objective.loss_weights.tolist() == pytest.approx([8 / 7] * 3 + [4 / 7], abs=1e-12)


@pytest.mark.parametrize("credit", ["joint", "per_task"])
def test_fitness_is_the_weighted_mean(credit, monkeypatch):
    data = digits()
    module = learned(data, loss_weights=WEIGHTS, credit=credit, nes_samples=6)
    seen = {}
    monkeypatch.setattr(
        module.distribution, "update", lambda population, utility, lr: seen.update(population=population, u=utility)
    )
    losses = module.scheme.update_distribution(module.update, batch_of(data))
    if credit == "joint":
        means = [sum(w * loss for w, loss in zip(WEIGHTS, row, strict=True)) for row in losses.tolist()]
        assert torch.equal(seen["u"], rank_utilities(torch.tensor(means)))
        assert not torch.equal(seen["u"], rank_utilities(losses.mean(1)))  # the weights change the ranks
    else:
        assert torch.equal(seen["u"], rank_utilities(losses))


def test_expected_use_scales_weighted_gradients():
    """A head's gradient is T times that of the weighted mean, whatever the task's weight."""
    data = digits()
    batch = batch_of(data)
    module = learned(data, loss_weights=WEIGHTS, gradient_scale="expected_use")
    population = module.distribution.sample(2, torch.Generator().manual_seed(0))
    gradients = losses_and_gradients(module, batch, population)[1]
    module.scheme.rescale_gradients()
    for name, parameter in module.network.heads.named_parameters():
        torch.testing.assert_close(parameter.grad, 4 * gradients[f"network.heads.{name}"], **EXACT)


def test_uncertainties_do_not_undo_the_weights():
    data = digits()
    batch = batch_of(data)
    module = make(UncertaintyWeighting, data, loss_weights=WEIGHTS)
    losses, gradients = losses_and_gradients(module, batch, module.assignment.unsqueeze(0))
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    # mean_t w_t (exp(-s_t) L_t + s_t / 2) at s = 0
    wanted = weights / weights.mean() * (0.5 - losses[0]) / 4
    torch.testing.assert_close(gradients["objective.log_variances"], wanted, **EXACT)


def test_routing_trains_blocks_by_the_weighted_mean():
    data = digits()
    batch = batch_of(data)
    module = make(RoutingNetworks, data, loss_weights=WEIGHTS)
    route = module.distribution.sample(1, torch.Generator().manual_seed(0))
    gradients = losses_and_gradients(module, batch, route)[1]
    expected = explicit_gradients(make(RoutingNetworks, data), batch, route, WEIGHTS)
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, **EXACT)


def test_a_task_keeps_its_weight_when_others_have_stopped():
    data = digits(validation="split")
    batch = batch_of(data)
    module = make(IndependentEarlyStopping, data, loss_weights=WEIGHTS, patience=1)
    gradients = losses_and_gradients(module, batch, module.assignment.unsqueeze(0))[1]
    module.stopping.waited[[0, 2]] = 1
    left = type(batch)(batch.images[[1, 3]], batch.labels[[1, 3]])
    later = losses_and_gradients(module, left, module.assignment[:, [1, 3]].unsqueeze(0))[1]
    for task in (1, 3):
        name = f"network.heads.{task}.weight"
        torch.testing.assert_close(later[name], gradients[name], **EXACT)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"upright": 2.0}, "loss_weights names 'upright', but the tasks are upright_digit, "),
        ([1.0, 2.0], "loss_weights has 2 entries, but there are 4 tasks"),
        ([1.0, 0.0, 1.0, 1.0], "loss_weights must be positive and finite, but that of task 'upright_parity' is 0.0"),
        ({"scrambled_digit": float("nan")}, "that of task 'scrambled_digit' is nan"),
        ([float("inf"), 1.0, 1.0, 1.0], "positive and finite"),
    ],
)
def test_bad_weights_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        learned(digits(), loss_weights=given)
