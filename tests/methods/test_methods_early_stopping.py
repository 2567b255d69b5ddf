"""Independent networks with early stopping."""

import json
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from small import assert_resumes_bit_for_bit, assert_same, digits, fixed, make, state_of, tiny_network

from lws_lightning import IndependentEarlyStopping
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_

SPLIT = {"validation": "split", "validation_fraction": 0.4}
# Wrong validation predictions of each task at the evaluations 1, 2, ...; the last value repeats.
CURVE = {0: [9, 8, 7, 8, 8, 8, 8], 1: [5, 6, 6], 2: [9, 8, 7, 6, 5, 4, 3], 3: [7, 7, 7]}


class Scripted(Callback):
    """Replaces the errors with a given curve, and records every task's weights at each evaluation."""

    def __init__(self, curve=CURVE):
        self.curve, self.weights, self.evaluations = curve, {}, []

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        number = trainer.global_step - 1
        for task, wrong in self.curve.items():
            pl_module.errors.counts[task, 1] = wrong[min(number, len(wrong) - 1)]

    def on_validation_end(self, trainer, pl_module):
        self.evaluations.append(trainer.global_step)
        self.weights[trainer.global_step] = [weights_of(pl_module.network, task) for task in range(4)]


def weights_of(network, task):
    modules = network.task_modules(torch.arange(4).repeat(2, 1), task)
    return {f"{i}.{k}": v.clone() for i, module in enumerate(modules) for k, v in module.state_dict().items()}


def stopping(data, **options):
    return make(IndependentEarlyStopping, data, **{"patience": 2, **options})


def run(quiet_trainer, script, steps=7, callbacks=(), module=None, trainer_options=None, **fit):
    data = digits(**SPLIT)
    module = module or stopping(data)
    options = {"val_check_interval": 1, "check_val_every_n_epoch": None, **(trainer_options or {})}
    trainer = quiet_trainer(max_steps=steps, callbacks=[script, *callbacks], **options)
    trainer.fit(module, datamodule=data, **fit)
    return module, trainer, data


def test_each_task_keeps_the_weights_of_its_lowest_error_and_is_frozen_after_patience(quiet_trainer):
    script = Scripted()
    module, trainer, data = run(quiet_trainer, script)
    assert module.stopping.best_step.tolist() == [3, 1, 7, 1]
    assert module.stopping.best_wrong.tolist() == [7, 5, 3, 7]
    assert list(module.stopping.tasks_in_training()) == [2]
    for task, step in enumerate(module.stopping.best_step.tolist()):
        assert_same(weights_of(module.stopping.best, task), script.weights[step][task])
    for task, last in ((0, 5), (1, 3), (3, 3)):  # two evaluations after the best one
        assert_same(script.weights[7][task], script.weights[last][task])
        assert not torch.equal(script.weights[last][task]["0.0.weight"], script.weights[last - 1][task]["0.0.weight"])
    details = module.details()["early_stopping"]
    assert details["upright_digit"] == {"best_step": 3, "wrong": 7, "stopped": True}
    images = data.examples("test")[1][0][:20]
    chosen = module.network.forward_task
    expected = stopping(data)
    expected.load_state_dict(module.state_dict())
    expected.eval()
    module.eval()
    torch.testing.assert_close(
        module(images, 1), expected.stopping.best.forward_task(images / 255, module.assignment, 1)
    )
    assert not torch.equal(module(images, 1), chosen(images / 255, module.assignment, 1))
    assert trainer.global_step == 7


def test_frozen_weights_and_adams_state_stay_and_the_others_are_as_without_freezing(quiet_trainer):
    frozen, frozen_trainer, _ = run(quiet_trainer, Scripted())
    patient, _, _ = run(quiet_trainer, Scripted(), module=stopping(digits(**SPLIT), patience=100))
    assert_same(weights_of(frozen.network, 2), weights_of(patient.network, 2))
    steps = frozen_trainer.optimizers[0].state_dict()["state"]
    per_parameter = [int(state["step"]) for state in steps.values()]
    assert sorted(set(per_parameter)) == [3, 5, 7]


def test_the_run_ends_when_all_tasks_have_stopped_and_resuming_it_does_nothing(tmp_path, quiet_trainer):
    curve = {task: [3, 5, 5] for task in range(4)}
    checkpoint = ModelCheckpoint(dirpath=tmp_path / "c", every_n_epochs=1, save_on_train_epoch_end=False)
    script = Scripted(curve)
    module, trainer, _ = run(quiet_trainer, script, 20, [checkpoint], trainer_options={"enable_checkpointing": True})
    assert trainer.global_step == 3
    assert script.evaluations == [1, 2, 3]
    (path,) = (tmp_path / "c").iterdir()
    again, resumed, _ = run(quiet_trainer, Scripted(curve), 20, ckpt_path=path)
    assert resumed.global_step == 3
    assert_same(state_of(again), state_of(module))


def test_a_trainer_that_must_go_on_takes_steps_of_nothing(quiet_trainer):
    curve = {task: [3, 5, 5] for task in range(4)}
    script = Scripted(curve)
    _, trainer, _ = run(quiet_trainer, script, 20, trainer_options={"min_steps": 6})
    assert trainer.global_step == 6
    assert_same(script.weights[6][0], script.weights[3][0])


def test_resuming_from_the_middle_ends_the_same(tmp_path, quiet_trainer):
    checkpoint = ModelCheckpoint(
        dirpath=tmp_path / "c", filename="{step}", every_n_epochs=1, save_on_train_epoch_end=False, save_top_k=-1
    )
    whole, whole_trainer, _ = run(
        quiet_trainer, Scripted(), 7, [checkpoint], trainer_options={"enable_checkpointing": True}
    )
    for step in (2, 4, 5):  # before and after tasks stopped
        resumed, trainer, _ = run(quiet_trainer, Scripted(), 7, ckpt_path=tmp_path / f"c/step={step}.ckpt")
        assert_same(state_of(resumed, trainer), state_of(whole, whole_trainer))


def test_without_a_stop_it_trains_as_no_sharing(quiet_trainer):
    module, _, _ = run(quiet_trainer, Scripted({}), module=stopping(digits(**SPLIT), patience=100))
    data = digits(**SPLIT)
    independent = fixed(data, "none")
    quiet_trainer(max_steps=7, limit_val_batches=0).fit(independent, datamodule=data)
    assert_same(module.network.state_dict(), independent.network.state_dict())


def test_tests_use_the_best_weights_and_the_curve_the_current_ones(quiet_trainer):
    script = Scripted({task: [0, 5, 5] for task in range(4)})
    module, _, data = run(quiet_trainer, script, 3)
    assert module.inference_network(0)[0] is module.stopping.best
    fitting = SimpleNamespace(state=SimpleNamespace(fn="fit"), validating=True)
    module._trainer = fitting
    assert module.inference_network(0)[0] is module.network
    module._trainer = None
    trainer = quiet_trainer()
    trainer.test(module, datamodule=data, verbose=False)
    images, labels = data.examples("test")[0]
    module.eval()
    wrong = (module(images, 0).argmax(-1) != labels).double().mean()
    assert module.evaluations["test"].tasks["upright_digit"].error == pytest.approx(100 * float(wrong))


def test_a_sanity_check_counts_for_nothing(quiet_trainer):
    data = digits(**SPLIT)
    module = stopping(data)
    trainer = quiet_trainer(max_steps=1, num_sanity_val_steps=-1, val_check_interval=2, check_val_every_n_epoch=None)
    trainer.fit(module, datamodule=data)
    assert module.stopping.best_step.tolist() == [1] * 4  # the last step's; that of the check would be step 0
    assert module.stopping.waited.tolist() == [0] * 4


def half_common(image_shape):
    base = tiny_network(image_shape)
    layers = [BaseLayer("conv", base.layers[0].block, learned=False), base.layers[1]]
    return BaseNetwork(layers, base.make_head, 1, he_uniform_)


def test_layers_that_are_common_elsewhere_are_each_tasks_own():
    module = stopping(digits(**SPLIT), network=half_common)
    assert module.layer_names == ["conv", "dense"]
    assert module.weights_per_layer == [4, 4]
    assert module.assignment.tolist() == [[0, 1, 2, 3]] * 2
    separate = stopping(digits(**SPLIT)).network
    assert [p.shape for p in module.network.parameters()] == [p.shape for p in separate.parameters()]


def test_two_and_two_steps_are_four(tmp_path, quiet_trainer):
    record = assert_resumes_bit_for_bit(IndependentEarlyStopping, tmp_path, quiet_trainer, SPLIT, patience=3)
    assert record["method"] == "early_stopping"
    assert set(record["details"]["early_stopping"]) == set(record["task_names"])


def test_test_images_do_not_stop_anything():
    with pytest.raises(ValueError, match=r"data\.validation: split"):
        stopping(digits())


def test_bad_patience_is_refused():
    with pytest.raises(ValueError, match="patience must be at least 1"):
        stopping(digits(**SPLIT), patience=0)


def test_the_command_refuses_the_papers_protocol_and_tests_the_best(lws, tmp_path):
    quiet = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")
    options = ("--model", "IndependentEarlyStopping", "--model.network", "digits_convnet", "--data", "Digits",
               "--data.batch_size", 4, "--trainer.max_steps", 2, "--trainer.val_check_interval", 1,
               "--trainer.default_root_dir", tmp_path, *quiet)  # fmt: skip
    with pytest.raises(SystemExit, match=r"data\.validation: split"):
        lws("fit", *options)
    lws("fit", *options, "--data.validation", "split")
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    lws("test", "--ckpt_path", checkpoint, *quiet)
    (result,) = tmp_path.rglob("result.json")
    assert json.loads(result.read_text())["test"]["images"] > 0
