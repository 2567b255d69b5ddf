"""Methods exported as they lie in memory after a fit."""

import pytest
import torch
from lightning.pytorch import Trainer
from odd_tasks import NAMES, OddTasks, in_unit_range
from torch import nn

from lws_lightning import IndependentEarlyStopping, LearnedWeightSharing, task_network
from lws_lightning.export import FORMATS, export_task
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_


@pytest.mark.parametrize("kind", [LearnedWeightSharing, IndependentEarlyStopping])
@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-true", "16-true", "bf16-mixed"])
def test_a_live_method_is_exported_after_a_fit_of_any_precision(tmp_path, kind, precision):
    data = OddTasks(normalised=True, validation="split")
    method = kind(network="digits_convnet", seed=0, **data.task_info)
    trainer = Trainer(
        accelerator="cpu", precision=precision, max_steps=2, val_check_interval=1, check_val_every_n_epoch=None,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tmp_path, num_sanity_val_steps=0,
    )  # fmt: skip
    if precision == "16-true":  # which is not to be trained in
        method.half()
    else:
        trainer.fit(method, datamodule=data)
    dtype = next(method.parameters()).dtype
    for task in NAMES:
        path = tmp_path / "model.pt"
        export_task(method, task, "state_dict", path)
        weights = torch.load(path, weights_only=True)["state_dict"]
        assert {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()} == {torch.float32}
    assert next(method.parameters()).dtype == dtype  # the method stays as it is


@pytest.mark.parametrize("format", list(FORMATS))
def test_a_block_that_uses_modules_twice_is_exported_with_its_code(tmp_path, format):
    for package in FORMATS[format].packages:
        pytest.importorskip(package)

    def build(shape):
        conv, norm, relu = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()
        block = nn.Sequential(conv, norm, relu, conv, norm, relu, nn.Flatten(), nn.Linear(192, 4), relu)
        return BaseNetwork([BaseLayer("only", block)], lambda classes: nn.Linear(4, classes), 1, he_uniform_)

    method = LearnedWeightSharing(network=build, task_names=["a", "b"], num_classes=[2, 3], image_shape=[3, 8, 8])
    done = export_task(method, "b", format, tmp_path / "model")
    assert done.has_code
    predict, metadata = FORMATS[format].read(tmp_path / "model", task_network(method, "b"))
    wanted = method.eval()(in_unit_range(2), "b").detach()
    torch.testing.assert_close(predict(in_unit_range(2)).detach(), wanted, rtol=1e-4, atol=1e-5)
    assert metadata["code"].count("Conv2d") == 2
