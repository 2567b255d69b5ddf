"""Whole runs over a frozen trunk."""

import pytest
import torch
from small import assert_resumes_bit_for_bit, digits, fixed, learned, make, state_of

from lws_lightning import (
    CrossStitch,
    FixedSharing,
    IndependentEarlyStopping,
    LearnedWeightSharing,
    UndirectedSharing,
    task_network,
)

TRUNK = {"frozen_layers": ["*"], "learned_layers": ["dense"], "copies": "lora", "copy_rank": 2}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (LearnedWeightSharing, TRUNK | {"ema_decay": 0.9, "running_stats": "per_task"}),
        (LearnedWeightSharing, {"learned_layers": ["conv"], "copies": "norm", "gradient_scale": "expected_use"}),
        (FixedSharing, {"sharing": "none", "frozen_layers": ["conv"]}),
        (UndirectedSharing, TRUNK | {"then": "chance"}),
        (IndependentEarlyStopping, {"frozen_layers": ["conv"], "patience": 9}),
        (CrossStitch, TRUNK),
    ],
)
def test_a_run_resumes_bit_for_bit(kind, options, tmp_path, quiet_trainer):
    data_options = {"validation": "split"} if kind is IndependentEarlyStopping else None
    assert_resumes_bit_for_bit(kind, tmp_path, quiet_trainer, data_options, **options)


def test_only_trained_parts_change_and_have_adam_state(quiet_trainer):
    data = digits()
    module = learned(data, weights_per_layer=3, **TRUNK)
    before = state_of(module)
    trainer = quiet_trainer(max_steps=3)
    trainer.fit(module, datamodule=data)
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    changed = {name for name, tensor in state_of(module).items() if not torch.equal(tensor, before[name])}
    assert changed == trained | {"distribution.probs"}
    assert all("LowRank" not in name or "parametrizations" in name for name in trained)
    (group,) = trainer.optimizers[0].param_groups
    assert len(group["params"]) == len(trained) == len(trainer.optimizers[0].state)


def test_an_adapter_for_each_task_has_the_frozen_weights_once():
    data = digits()
    one, every = (fixed(data, sharing, **TRUNK) for sharing in ("full", "none"))
    (added,) = one.network.layer_parameters()
    more = every.network.parameters_in_use(every.assignment) - one.network.parameters_in_use(one.assignment)
    assert more == (len(data.task_names) - 1) * added


@pytest.mark.parametrize("copies", ["adapter", "lora", "norm"])
def test_a_tasks_network_is_the_methods(copies):
    data = digits()
    module = learned(data, learned_layers=["conv"], frozen_layers=["*"], copies=copies).eval()
    images = torch.rand(5, 1, 8, 8)
    for task in range(len(data.task_names)):
        torch.testing.assert_close(task_network(module, task)(images), module(images, task))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copies": "half"}, "copies must be one of weights, adapter, lora, norm"),
        ({"copies": "lora", "copy_rank": 0}, "copy_rank must be at least 1"),
        ({"frozen_layers": ["*"]}, "LinearProbe"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(LearnedWeightSharing, digits(), **options)
