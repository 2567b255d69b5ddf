"""Fully-adaptive feature sharing: one network for all tasks that branches from the heads down."""

import pytest
import torch
from lightning.pytorch import Callback
from small import assert_same, digits, fixed, make, state_of, tiny_network

from lws_lightning import FullyAdaptiveSharing
from lws_lightning.training import NonFiniteError, to_inputs


def adaptive(data, **options):
    return make(FullyAdaptiveSharing, data, **{"affinity_steps": 2, "branch_cost": 0.0, **options})


class Assignments(Callback):
    """Records the assignment of every step; ends the run after `stop` steps."""

    def __init__(self, stop=None):
        self.seen, self.stop = [], stop

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append(pl_module.assignment.tolist())
        trainer.should_stop = trainer.global_step == self.stop


def test_layers_branch_from_the_last_to_the_first(quiet_trainer, tmp_path):
    data, seen = digits(), Assignments()
    module = adaptive(data)
    quiet_trainer(max_steps=12, callbacks=[seen]).fit(module, data)  # two layers branch in the first six steps
    shared, own = [0] * 4, [0, 1, 2, 3]
    assert seen.seen == [[shared, shared]] * 3 + [[shared, own]] * 3 + [[own, own]] * 6
    assert torch.equal(module.assignment, torch.tensor([own, own]))


def test_before_it_branches_it_is_full_sharing(quiet_trainer):
    data = digits()
    module = adaptive(data, branch_cost=10.0)
    quiet_trainer(max_steps=12).fit(module, data)
    shared = fixed(data, "full")
    quiet_trainer(max_steps=12).fit(shared, data)
    inputs = to_inputs(data.examples("test")[0][0][:5], torch.float32)
    for task in range(4):
        torch.testing.assert_close(module(inputs, task), shared(inputs, task), rtol=1e-5, atol=1e-6)


def test_a_new_copy_starts_as_its_source_with_its_state(quiet_trainer):
    data = digits()
    module = adaptive(data, ema_decay=0.9, running_stats="per_task")
    trainer = quiet_trainer(max_steps=12, callbacks=[Assignments(stop=3)])
    trainer.fit(module, data)
    module.update.duplicate("layers.0.copies.0", "layers.0.copies.2")
    copies = module.network.layers[0].copies
    assert_same(state_of(copies[0]), state_of(copies[2]))
    averages = module.average.layers[0].copies
    assert_same(state_of(averages[0]), state_of(averages[2]))
    assert not torch.equal(averages[0][0].weight, copies[0][0].weight)
    adam = trainer.optimizers[0].state
    for one, other in zip(copies[0].parameters(), copies[2].parameters(), strict=True):
        assert adam[one].keys() == adam[other].keys() != set()
        assert all(torch.equal(adam[one][key], adam[other][key]) for key in adam[one])
        assert adam[one]["exp_avg"] is not adam[other]["exp_avg"]


def test_agreement_is_that_of_each_tasks_own_network(quiet_trainer):
    data = digits()
    module = adaptive(data)
    quiet_trainer(max_steps=12, callbacks=[Assignments(stop=2)]).fit(module, data)
    tree = module.distribution
    assert int(tree.images) == 16  # of the second step: one before the first branching
    module.eval()
    batch = data.train_dataloader().dataset[2].nes
    counts, number = module.scheme._agreement(module.update, batch)
    images = to_inputs(batch.images, torch.float32).flatten(0, 1)
    with torch.no_grad():
        confidence = [module(images, task).softmax(-1).amax(-1) for task in range(4)]
    hard = [row < row.mean() for row in confidence]
    expected = torch.tensor([[float((a == b).sum()) for a in hard] for b in hard], dtype=torch.float64)
    assert number == 16
    assert torch.equal(counts, expected)


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_a_resumed_run_is_an_unbroken_one(quiet_trainer, tmp_path, stop):
    def run(stop=None, **fit):
        data = digits()
        module = adaptive(data, branch_cost=0.3)
        trainer = quiet_trainer(max_steps=8, callbacks=[Assignments(stop)])
        trainer.fit(module, datamodule=data, **fit)
        return module, trainer

    whole = run()
    _, trainer = run(stop)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = run(ckpt_path=tmp_path / "half.ckpt")
    assert_same(state_of(*resumed), state_of(*whole))
    again = FullyAdaptiveSharing.load_from_checkpoint(tmp_path / "half.ckpt", network=tiny_network)
    assert again.hparams["branch_cost"] == 0.3


def test_a_failed_step_leaves_the_tree_as_it_was(quiet_trainer, monkeypatch):
    data = digits()
    module = adaptive(data)
    trainer = quiet_trainer(max_steps=12, callbacks=[Assignments(stop=3)])
    trainer.fit(module, data)
    before = {name: value.clone() for name, value in module.distribution.state_dict().items()}
    assert before["images"] > 0

    def fail(*_, **__):
        raise NonFiniteError("not finite")

    monkeypatch.setattr(module.update, "gradients", fail)
    with pytest.raises(NonFiniteError):
        module.scheme.step(module.update, data.train_dataloader().dataset[3])
    assert_same(dict(module.distribution.state_dict()), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branching_part": 0.0}, "branching_part"),
        ({"branch_cost": -1.0}, "branch_cost"),
        ({"affinity_steps": 0}, "affinity_steps"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        adaptive(digits(), **options)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ({"max_steps": 2}, "in the first 1 steps"),
        ({"max_steps": -1, "max_epochs": -1}, "with an end"),
    ],
)
def test_a_run_that_cannot_branch_is_refused_at_its_start(quiet_trainer, length, message):
    data = digits()
    with pytest.raises(ValueError, match=message):
        quiet_trainer(**length).fit(adaptive(data), data)
