"""The option `credit` of learned sharing."""

import pytest
import torch
from small import digits, learned

from lws_lightning.batches import TaskBatch
from lws_lightning.search import rank_utilities


@pytest.mark.parametrize("credit", ["joint", "per_task"])
def test_the_losses_that_move_pi(credit):
    data = digits(seed=0)
    method = learned(data, seed=0, credit=credit)
    before = method.distribution.probs.clone()
    population = method.scheme.sample(method.scheme.nes_samples, method.update, "nes")
    images, labels = torch.rand(4, 4, 1, 8, 8), torch.zeros(4, 4, dtype=torch.int64)
    losses = method.scheme.update_distribution(method.update, TaskBatch(images, labels))
    utilities = rank_utilities(losses.mean(1)) if credit == "joint" else rank_utilities(losses)
    moved = method.distribution.probs.clone()
    method.distribution.restore({"probs": before})
    for task in range(4):
        own = utilities if utilities.dim() == 1 else utilities[:, task]
        method.distribution.restore({"probs": before})
        method.distribution.update(population, own, method.scheme.nes_lr)
        assert torch.equal(method.distribution.probs[:, task], moved[:, task])


def test_an_unknown_credit_is_refused():
    with pytest.raises(ValueError, match="credit must be joint or per_task"):
        learned(digits(), credit="each")
