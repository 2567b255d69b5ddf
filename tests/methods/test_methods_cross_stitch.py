"""Cross-stitch networks."""

import json

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from small import (
    assert_resumes_bit_for_bit,
    assert_same,
    batch_of,
    digits,
    fixed,
    losses_and_gradients,
    make,
    state_of,
)
from torch.nn import functional as F

from lws_lightning import CrossStitch
from lws_lightning.methods import inference_costs, inference_parameters
from lws_lightning.randomness import generator_for
from lws_lightning.sharing import MixingUnit
from lws_lightning.sharing.batch_norm import restore_batch_norms

TASKS = 4
EXACT = {"rtol": 0, "atol": 1e-10}


def random_unit(shape):
    return MixingUnit(3, torch.randn(shape, generator=generator_for(0, "unit"), dtype=torch.float64))


@pytest.mark.parametrize("shape", [(3, 3), (6, 6), (4, 3, 3)])
@pytest.mark.parametrize("image", [(4,), (4, 2, 3)])
def test_the_unit_mixes_columns_subspace_by_subspace(shape, image):
    unit, per_column = random_unit(shape), 4
    inputs = torch.randn(3 * per_column, *image, generator=generator_for(0, "in"), dtype=torch.float64)
    columns = inputs.view(3, per_column, *image)
    size = 4 // unit.num_subspaces
    expected = torch.zeros_like(columns)
    for t in range(3):
        for channel in range(4):
            for s in range(3):
                for j in range(unit.num_subspaces):
                    if unit.per_channel:
                        scale, source = unit.weight[channel, t, s], channel
                    else:
                        row, source = t * unit.num_subspaces + channel // size, j * size + channel % size
                        scale = unit.weight[row, s * unit.num_subspaces + j]
                    expected[t, :, channel] += scale * columns[s, :, source]
    torch.testing.assert_close(unit(inputs), expected.flatten(0, 1))
    tasks = [0, 2]
    own = torch.cat([expected[task].view(2, 2, *image)[number] for number, task in enumerate(tasks)])
    torch.testing.assert_close(unit.own_columns(inputs, tasks), own)


@pytest.mark.parametrize("shape", [(3, 3), (6, 6), (4, 3, 3)])
def test_gradients_of_the_unit(shape):
    unit = random_unit(shape)
    inputs = torch.randn(6, 4, 2, 2, generator=generator_for(0, "in"), dtype=torch.float64, requires_grad=True)

    def run(inputs, weight, method):
        return torch.func.functional_call(_Method(unit, method), {"unit.weight": weight}, (inputs,))

    for method in ("forward", "own_columns"):
        weight = unit.weight.detach().clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda i, w, method=method: run(i, w, method), (inputs, weight))


class _Method(torch.nn.Module):
    def __init__(self, unit, method):
        super().__init__()
        self.unit, self.method = unit, method

    def forward(self, inputs):
        return self.unit(inputs) if self.method == "forward" else self.unit.own_columns(inputs, [1, 2])


@pytest.mark.parametrize("running_stats", ["mean", "per_task"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_identity_matrices_make_independent_networks(per_channel, running_stats):
    data = digits()
    batch = batch_of(data)
    module = make(CrossStitch, data, same_task=1.0, per_channel=per_channel, running_stats=running_stats)
    independent = fixed(data, "none", running_stats=running_stats)
    losses, gradients = losses_and_gradients(module, batch)
    expected, wanted = losses_and_gradients(independent, batch, independent.assignment.unsqueeze(0))
    torch.testing.assert_close(losses, expected, **EXACT)
    for name, gradient in wanted.items():
        torch.testing.assert_close(gradients[name], gradient, **EXACT)
    independent.network.commit_running_stats()
    module.network.commit_running_stats()
    if running_stats == "mean":  # a column sees the images of all tasks, a network of its own does not
        for norm, other in zip(independent.network.norms(), module.network.norms(), strict=True):
            other.load_state_dict(norm.state_dict())
    module.eval()
    independent.eval()
    with torch.no_grad():
        for task in range(TASKS):
            torch.testing.assert_close(module(batch.images[task], task), independent(batch.images[task], task), **EXACT)


class PlainColumns:
    """Misra et al.'s network as loops over tasks and columns, with torch's modules."""

    def __init__(self, network):
        self.network = network
        for column in range(TASKS):
            for layer in network.layers:
                layer.copies[column] = restore_batch_norms(layer.copies[column], task=0)

    def losses(self, batch):
        losses = []
        for task in range(TASKS):
            columns = [batch.images[task].double() / 255] * TASKS
            for layer, unit in zip(self.network.layers, self.network.units, strict=True):
                outputs = torch.stack([layer.copies[column](columns[column]) for column in range(TASKS)])
                if unit.per_channel:
                    matrix = unit.weight.permute(1, 2, 0).view(TASKS, TASKS, 1, -1, *[1] * (outputs.dim() - 3))
                else:
                    matrix = unit.weight.view(TASKS, TASKS, *[1] * (outputs.dim() - 1))
                columns = [(matrix[column] * outputs).sum(0) for column in range(TASKS)]
            losses.append(F.cross_entropy(self.network.heads[task](columns[task]), batch.labels[task]))
        return torch.stack(losses)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bound", [None, 16, 40])
def test_losses_and_gradients_are_those_of_plain_loops(per_channel, bound):
    data = digits()
    batch = batch_of(data)
    module, twin = (make(CrossStitch, data, per_channel=per_channel, max_images_per_pass=bound).double() for _ in "ab")
    for unit, other in zip(module.network.units, twin.network.units, strict=True):
        noise = torch.randn(unit.weight.shape, generator=generator_for(0, "noise"), dtype=torch.float64)
        unit.weight.data += noise
        other.weight.data += noise
    plain = PlainColumns(twin.network)
    losses, gradients = losses_and_gradients(module, batch)
    expected = plain.losses(batch)
    expected.mean().backward()
    torch.testing.assert_close(losses[0], expected.detach(), **EXACT)
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, **EXACT)
    whole = make(CrossStitch, data, per_channel=per_channel).double()
    for unit, other in zip(module.network.units, whole.network.units, strict=True):
        other.weight.data.copy_(unit.weight)
    losses_and_gradients(whole, batch)
    for one, other in zip(module.network.norms(), whole.network.norms(), strict=True):
        one.commit()
        other.commit()
        torch.testing.assert_close(one.running_mean, other.running_mean, **EXACT)


def test_two_and_two_steps_are_four_and_the_record_says_what_it_is(tmp_path, quiet_trainer):
    record = assert_resumes_bit_for_bit(CrossStitch, tmp_path, quiet_trainer, stitch_lr_factor=3.0)
    assert record["method"] == "cross_stitch"
    assert record["assignment"] == []
    assert record["entropies"] is None
    assert record["weights_per_layer"] == [4, 4]
    matrix = torch.tensor(record["details"]["mixing"]["conv"])
    assert matrix.shape == (4, 4)
    assert not torch.equal(matrix.diag(), torch.full((4,), 0.9))
    # 4 columns, each 4 filters 3x3 at 8x8 pixels and 64 x 8; units at 16 x 4 values, and at the last only one row
    columns = 4 * (4 * 9 * 64 + 64 * 8) + 4 * 4 * 64 + 4 * 8
    blocks = 4 * (4 * 9 + 4 + 8 + 64 * 8 + 8) + (4 + 8) * 16
    for name, classes in (("upright_digit", 10), ("upright_parity", 2)):
        cost = record["inference"][name]
        assert cost == {"parameters": blocks + 9 * classes, "multiply_adds": columns + 8 * classes}


def test_inference_costs_of_fixed_sharing_are_those_of_one_network():
    module = fixed(digits(), "none")
    assert inference_costs(module)[module.task_names[1]]["multiply_adds"] == 4 * 9 * 64 + 64 * 8 + 8 * 2
    assert inference_parameters(module, 1) == 4 * 9 + 4 + 8 + 64 * 8 + 8 + 9 * 2


def test_units_learn_at_their_own_rate_and_resuming_obeys_it(tmp_path, quiet_trainer):
    data = digits()
    module = make(CrossStitch, data, stitch_lr_factor=50.0, weight_decay=0.1)
    callback = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = quiet_trainer(max_steps=2, callbacks=[callback], enable_checkpointing=True, limit_val_batches=0)
    trainer.fit(module, datamodule=data)
    groups = trainer.optimizers[0].param_groups
    assert [group["lr"] for group in groups] == [1e-3, 5e-2]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    again = make(CrossStitch, data, stitch_lr_factor=20.0, weight_decay=0.1)
    resumed = quiet_trainer(max_steps=3, limit_val_batches=0)
    with pytest.warns(UserWarning, match=r"stitch_lr_factor 20\.0 instead of the checkpoint's 50\.0"):
        resumed.fit(again, datamodule=data, ckpt_path=tmp_path / "step=2.ckpt")
    assert [group["lr"] for group in resumed.optimizers[0].param_groups] == [1e-3, pytest.approx(2e-2)]


def test_a_failed_step_leaves_no_trace(quiet_trainer):
    data = digits()
    module = make(CrossStitch, data)
    before = {}
    original = module.objective.losses

    def poisoned(*arguments):
        losses = original(*arguments)
        if module.global_step == 1:
            before.update(state_of(module))
            losses = losses * float("nan")
        return losses

    module.objective.losses = poisoned
    with pytest.raises(RuntimeError, match="Step 1: the loss of task"):
        quiet_trainer(max_steps=3, limit_val_batches=0).fit(module, datamodule=data)
    assert_same(state_of(module), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"same_task": 1.5}, r"same_task must be in \[0, 1\]"),
        ({"same_task": float("nan")}, "same_task"),
        ({"stitch_lr_factor": 0.0}, "stitch_lr_factor must be positive"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(CrossStitch, digits(), **options)


def test_a_bound_that_one_task_exceeds_is_refused_before_data_are_read(quiet_trainer):
    data = digits()
    module = make(CrossStitch, data, max_images_per_pass=15)
    with pytest.raises(ValueError, match=r"max_images_per_pass is 15.*16 images \(4 in each of 4 columns\)"):
        quiet_trainer(max_steps=1).fit(module, datamodule=data)
    assert not data._splits


def test_the_command_trains_and_tests_it(lws, tmp_path):
    quiet = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")
    lws("fit", "--model", "CrossStitch", "--model.network", "digits_convnet", "--model.same_task", 0.8,
        "--data", "Digits", "--data.batch_size", 4, "--trainer.max_steps", 2, "--trainer.val_check_interval", 2,
        "--trainer.default_root_dir", tmp_path, *quiet)  # fmt: skip
    (result,) = tmp_path.rglob("result.json")
    assert json.loads(result.read_text())["identity"]["method"]["same_task"] == 0.8
    assert not list(tmp_path.rglob("assignment.png"))
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    lws("test", "--ckpt_path", checkpoint, *quiet)
    assert json.loads(result.read_text())["test"]["images"] > 0
