"""timm's classifiers, cut into layers."""

import pytest
import torch
from torch import nn

from lws_lightning import FixedSharing
from lws_lightning.networks import build_network, choose_frozen_layers, choose_learned_layers, make_multi_task_network

timm = pytest.importorskip("timm")


def logits_of(base, model, images):
    """The chain's features through the model's own classifier."""
    for layer in base.layers:
        images = layer.block.eval()(images)
    return model.get_classifier()(images)


@pytest.mark.parametrize(
    ("name", "shape", "layers"),
    [
        ("tf_efficientnet_lite0", (3, 48, 48), 18),
        ("resnet18", (1, 32, 32), 9),
        ("resnet10t", (3, 32, 32), 7),
        ("vit_tiny_patch16_224", (3, 32, 32), 13),
        ("convnext_atto", (3, 32, 32), 5),
        ("regnetx_002", (3, 32, 32), 5),
    ],
)
def test_the_chain_with_weights_from_a_file_is_the_model(name, shape, layers, tmp_path):
    options = {"img_size": shape[1:]} if timm.get_pretrained_cfg(name).fixed_input_size else {}
    model = timm.create_model(name, in_chans=3, **options).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.1 * torch.randn_like(tensor))
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    base = build_network(f"timm:{name}", shape, str(tmp_path / "weights.pt"))
    assert len(base.layers) == layers
    images = torch.rand(2, *shape)
    with torch.no_grad():
        expected = model(images.expand(-1, 3, -1, -1))
        torch.testing.assert_close(logits_of(base, model, images), expected, rtol=1e-4, atol=1e-4)


def test_batch_normalisation_is_per_task_in_training():
    base = build_network("timm:tf_efficientnet_lite0", (3, 32, 32))
    network = make_multi_task_network(base, [2, 3], [1] * len(base.layers), 0)
    assert not any(type(module).__module__.startswith("timm.layers.norm") for module in network.modules())
    images = torch.rand(2, 4, 3, 32, 32)
    one, other = network(images, torch.zeros(1, len(base.layers), 2, dtype=torch.int64))
    assert one.shape == (1, 4, 2)
    assert other.shape == (1, 4, 3)
    network.commit_running_stats()


@pytest.mark.parametrize("copies", ["adapter", "lora", "norm"])
def test_a_trunk_of_timm_with_copies_beside_it(copies):
    name = "vit_tiny_patch16_224" if copies == "lora" else "tf_efficientnet_lite0"
    base = choose_learned_layers(build_network(f"timm:{name}", (3, 32, 32)), ["blocks.*"])
    base = choose_frozen_layers(base, ["*"], ["blocks.*"], copies)
    network = make_multi_task_network(base, [2, 2], [2] * len(base.learned_layers), 0, copies=copies).train()
    assignment = torch.tensor([0, 1]).repeat(len(base.learned_layers), 1)
    images = torch.rand(2, 4, 3, 32, 32)
    for task, logits in enumerate(network(images, assignment.unsqueeze(0))):
        torch.testing.assert_close(logits[0], network.forward_task(images[task], assignment, task))


def test_images_are_resized_and_normalised_as_the_weights_say():
    method = FixedSharing(
        "full", network="timm:tf_efficientnet_lite0", network_input={"size": 48}, learned_layers=["conv_head"],
        task_names=["a"], num_classes=[2], image_shape=[3, 32, 32],
    )  # fmt: skip
    assert method.network_input == {"size": 48, "mean": [0.5] * 3, "std": [0.5] * 3}
    assert method.hparams["network_input"] == method.network_input


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("resnet1", None, "timm has no classifier named 'resnet1'. Similar names: "),
        ("resnet18", "WEIGHTS", "not a file"),
        ("resnet18", "{tmp}/other.pt", "other.pt does not fit .*timm:resnet18"),
    ],
)
def test_what_cannot_work_is_refused(name, weights, message, tmp_path):
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "other.pt")
    with pytest.raises(ValueError, match=message):
        build_network(f"timm:{name}", (3, 32, 32), weights and weights.format(tmp=tmp_path))
