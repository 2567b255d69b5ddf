"""Full sharing with uncertainty weighting."""

import pytest
import torch
from small import assert_resumes_bit_for_bit, batch_of, digits, fixed, losses_and_gradients, make

from lws_lightning import UncertaintyWeighting

EXACT = {"rtol": 0, "atol": 1e-10}
S = torch.tensor([0.5, -1.0, 0.0, 2.0], dtype=torch.float64)


def test_without_uncertainty_it_is_full_sharing():
    data = digits()
    batch = batch_of(data)
    module, full = make(UncertaintyWeighting, data), fixed(data, "full")
    losses, gradients = losses_and_gradients(module, batch, module.assignment.unsqueeze(0))
    expected, wanted = losses_and_gradients(full, batch, full.assignment.unsqueeze(0))
    torch.testing.assert_close(losses, expected, **EXACT)
    for name, gradient in wanted.items():
        torch.testing.assert_close(gradients[name], gradient, **EXACT)


@pytest.mark.parametrize("bound", [None, 8])
def test_losses_are_weighted_as_kendall_says(bound):
    data = digits()
    batch = batch_of(data)
    module, full = make(UncertaintyWeighting, data, max_images_per_pass=bound), fixed(data, "full").double()
    module.double().objective.log_variances.data.copy_(S)
    losses, gradients = losses_and_gradients(module, batch, module.assignment.unsqueeze(0))
    # dL/ds of mean_t (exp(-s_t) L_t + s_t / 2)
    torch.testing.assert_close(gradients.pop("objective.log_variances"), (0.5 - (-S).exp() * losses[0]) / 4, **EXACT)
    logits = full.network(full._to_inputs(batch.images), full.assignment.unsqueeze(0))
    each = [torch.nn.functional.cross_entropy(out[0], label) for out, label in zip(logits, batch.labels, strict=True)]
    torch.testing.assert_close(losses[0], torch.stack(each).detach(), **EXACT)
    ((torch.stack(each) / S.exp()).sum() / 4).backward()
    for name, parameter in full.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, **EXACT)


def test_log_variances_are_trained_without_weight_decay(quiet_trainer):
    data = digits()
    module = make(UncertaintyWeighting, data, lr=0.1, weight_decay=0.5, initial_log_variance=1.0)
    trainer = quiet_trainer(max_steps=3, limit_val_batches=0)
    trainer.fit(module, datamodule=data)
    assert bool((module.objective.log_variances != 1.0).all())
    assert [group["weight_decay"] for group in trainer.optimizers[0].param_groups] == [0.5, 0.0]
    assert module.network.parameters_in_use(module.assignment) == fixed(data, "full").network.parameters_in_use(
        module.assignment
    )


def test_two_and_two_steps_are_four(tmp_path, quiet_trainer):
    record = assert_resumes_bit_for_bit(UncertaintyWeighting, tmp_path, quiet_trainer, initial_log_variance=0.5)
    assert record["method"] == "uncertainty"
    assert record["assignment"] == [[0] * 4] * 2
    assert record["details"]["log_variances"].keys() == set(record["task_names"])


@pytest.mark.parametrize("value", [float("nan"), 1000.0, float("-inf")])
def test_a_bad_start_is_refused(value):
    with pytest.raises(ValueError, match="initial_log_variance must lie between"):
        make(UncertaintyWeighting, digits(), initial_log_variance=value)
