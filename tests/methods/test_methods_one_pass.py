"""`nes_batch: training`: pi moves by the losses that the weights are trained with."""

import itertools

import pytest
import torch
from small import assert_resumes_bit_for_bit, batch_of, digits, learned

from lws_lightning import LearnedWeightSharing
from lws_lightning.search import SearchDistribution, rank_utilities

ONE_PASS = {"nes_batch": "training", "sgd_samples": 4}


@pytest.mark.parametrize("credit", ["joint", "per_task"])
def test_pi_moves_by_the_losses_of_the_training_pass(quiet_trainer, credit):
    data = digits()
    module = learned(data, credit=credit, **ONE_PASS)
    seen, gradients = {}, module.update.gradients

    def spy(batch, population, **options):
        losses = gradients(batch, population, **options)
        seen.update(population=population, losses=losses, probs=module.distribution.probs.clone())
        return losses

    module.update.gradients = spy
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, datamodule=data)
    expected = SearchDistribution(module.weights_per_layer, 4, initial_probs=seen["probs"])
    losses = seen["losses"].cpu()
    utilities = rank_utilities(losses.mean(1) if credit == "joint" else losses)
    expected.update(seen["population"], utilities, module.scheme.nes_lr)
    assert torch.equal(module.distribution.probs, expected.probs)
    assert not torch.equal(module.distribution.probs, seen["probs"])


def test_without_ranks_its_mean_is_the_natural_gradient_of_the_expected_training_loss():
    """By enumeration of all assignments, in float64: an assignment's loss does not depend on the others drawn."""
    data = digits(tasks=["upright_digit", "scrambled_parity"])
    batch = batch_of(data)
    module = learned(data, weights_per_layer=2, **ONE_PASS).double()
    module.distribution.double()
    module.network.train()
    everything = torch.tensor(list(itertools.product(range(2), repeat=4))).view(-1, 2, 2)
    losses = module.update.losses(batch, everything).mean(1)
    alone = torch.stack([module.update.losses(batch, assignment[None]).mean() for assignment in everything])
    torch.testing.assert_close(losses, alone, rtol=1e-10, atol=1e-12)
    distribution = module.distribution
    probabilities = distribution.log_prob(everything).exp()
    single = torch.ones(1, dtype=torch.float64)
    scores = torch.stack([distribution.natural_gradient(a[None], single) for a in everything])
    mean_of_estimates = torch.einsum("s,s,sltk->ltk", probabilities, -losses, scores)
    for layer, task, copy in itertools.product(range(2), repeat=3):
        chosen = everything[:, layer, task] == copy
        conditional = (probabilities * losses)[chosen].sum()  # pi times the expected loss given this choice
        wanted = -(conditional - distribution.probs[layer, task, copy] * (probabilities * losses).sum())
        torch.testing.assert_close(mean_of_estimates[layer, task, copy], wanted, rtol=1e-10, atol=1e-12)


def test_there_is_no_nes_pass(quiet_trainer):
    data = digits()
    module = learned(data, **ONE_PASS)
    module.update.evaluate = lambda *arguments: pytest.fail("a pass for pi alone")
    quiet_trainer(max_steps=2, limit_val_batches=0).fit(module, datamodule=data)
    assert module.global_step == 2


def test_it_resumes_bit_for_bit(tmp_path, quiet_trainer):
    assert_resumes_bit_for_bit(LearnedWeightSharing, tmp_path, quiet_trainer, **ONE_PASS)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"nes_batch": "both"}, "own or training"), ({"nes_batch": "training", "sgd_samples": 1}, "sgd_samples")],
)
def test_what_cannot_be_ranked_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        learned(digits(), **options)
