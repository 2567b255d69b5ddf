"""What a network does with its images before its first layer."""

import pytest
import torch
from small import digits, fixed, tiny_network
from torch import nn
from torch.nn import functional as F

from lws_lightning import FixedSharing, task_network
from lws_lightning.methods.checks import check_input
from lws_lightning.methods.record import DataRecord
from lws_lightning.networks import build_network, published_input, read_network_input

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def test_images_are_resized_and_normalised_before_the_first_layer():
    values = {"size": 12, "mean": [0.5], "std": [0.25]}
    base = build_network(tiny_network, (1, 8, 8), network_input=values)
    plain = build_network(tiny_network, (1, 12, 12))
    base.layers[0].block[1].load_state_dict(plain.layers[0].block[0].state_dict())
    images = torch.rand(3, 1, 8, 8)
    resized = F.interpolate((images - 0.5) / 0.25, (12, 12), mode="bilinear")
    torch.testing.assert_close(base.layers[0].block.eval()(images), plain.layers[0].block.eval()(resized))


def test_the_networks_input_is_part_of_exports_and_checkpoints(tmp_path, quiet_trainer):
    data = digits()
    method = fixed(data, network_input={"size": 10, "mean": [0.5]})
    trainer = quiet_trainer(max_steps=1)
    trainer.fit(method, datamodule=data)
    images = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(task_network(method.eval(), 1)(images), method(images, 1))
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    again = FixedSharing.load_from_checkpoint(tmp_path / "one.ckpt", network=tiny_network)
    assert again.network_input == {"size": 10, "mean": [0.5], "std": [1.0]}
    assert torch.equal(again.eval()(images, 1), method(images, 1))


def test_own_models_start_each_copy_anew_behind_the_input():
    def build(shape):
        return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], 4), nn.ReLU(), nn.Linear(4, 2))

    base = build_network(build, (1, 8, 8), network_input={"size": 4, "mean": [0.0], "std": [1.0]})
    (block,) = base.redraw(torch.Generator().manual_seed(1))
    assert block.state_dict().keys() == base.layers[0].block.state_dict().keys()
    assert block(torch.rand(2, 1, 8, 8)).shape == (2, 4)


def test_the_weights_record_says_what_they_expect():
    assert published_input("torchvision:resnet18", "IMAGENET1K_V1") == {"size": 224, **IMAGENET}
    assert published_input("torchvision:nothing", None) is None
    assert published_input("dkl_convnet", None) is None
    given = read_network_input({"size": 64}, "torchvision:resnet18", None, 3)
    assert given == {"size": 64, **IMAGENET}
    grey = read_network_input("weights", "torchvision:resnet18", None, 1)
    assert grey["mean"] == pytest.approx([0.449])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("weights", "needs a network of torchvision or timm"),
        ({"width": 3}, "entries size, mean and std"),
        ({"size": 0}, "size must be a positive number"),
        ({"std": [0.0]}, "std must be positive"),
        ({"mean": [0.1, 0.2]}, "mean needs one value or 3"),
    ],
)
def test_inputs_that_cannot_work_are_refused(option, message):
    with pytest.raises(ValueError, match=message):
        read_network_input(option, "dkl_convnet", None, 3)


def test_images_too_small_for_the_network_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match="network_input enlarge"):
        build_network("torchvision:alexnet", (3, 32, 32))


def record(**preprocessing):
    return DataRecord({"mean": [0.0] * 3, "std": [1.0] * 3} | preprocessing, [])


def test_data_that_are_not_what_the_weights_expect_are_named(recwarn):
    published = {"size": 224, **IMAGENET}
    check_input(None, published, record(**IMAGENET), (3, 224, 224))
    check_input(None, None, record(), (3, 32, 32))
    check_input({"size": 224, **IMAGENET}, published, record(), (3, 32, 32))
    assert not [warning for warning in recwarn if "pretrained weights" in str(warning.message)]
    with pytest.warns(UserWarning, match=r"224 pixels .*gets 32x32 pixels.*network_input: weights"):
        check_input(None, published, record(**IMAGENET), (3, 32, 32))
    with pytest.warns(UserWarning, match="normalised with mean"):
        check_input(None, published, record(), (3, 224, 224))
    with pytest.raises(ValueError, match="and so do the data"):
        check_input({"size": 224, **IMAGENET}, published, record(**IMAGENET), (3, 32, 32))
