"""torchvision's classifiers as chains of layers: chain and model compute the same."""

import functools

import pytest
import torch
from torch import nn
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.efficientnet import EfficientNet, MBConvConfig
from torchvision.models.maxvit import MaxVit
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.models.swin_transformer import SwinTransformer
from torchvision.models.vgg import VGG, make_layers
from torchvision.models.vision_transformer import VisionTransformer

from lws_lightning.networks import CutError, base_network_from_model, build_network
from lws_lightning.networks.torchvision_models import make_torchvision_model


class SmallVGG(VGG):
    """A VGG with a small classifier; its own constructor would draw 100 million weights first."""

    def __init__(self):
        nn.Module.__init__(self)
        self.features = make_layers([8, "M", 8, "M"], batch_norm=True)
        self.avgpool = nn.AdaptiveAvgPool2d(2)
        dense = [nn.Linear(32, 8), nn.ReLU(True), nn.Dropout(), nn.Linear(8, 8), nn.ReLU(True), nn.Dropout()]
        self.classifier = nn.Sequential(*dense, nn.Linear(8, 5))


SMALL = {
    "resnet": lambda: ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5),
    "vgg_bn": SmallVGG,
    "convnext": lambda: ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 2)], 0.5, num_classes=5),
    "efficientnet": lambda: EfficientNet(
        [MBConvConfig(1, 3, 1, 8, 8, 1, 1, 1), MBConvConfig(6, 3, 2, 8, 16, 2, 1, 1)], 0.2
    ),
    "vit": lambda: VisionTransformer(16, 8, num_layers=3, num_heads=2, hidden_dim=8, mlp_dim=16, dropout=0.1),
    "maxvit": lambda: MaxVit((16, 16), 8, 2, [8, 8], [1, 2], 8, stochastic_depth_prob=0.2, num_classes=5),
    "swin": lambda: SwinTransformer([2, 2], 8, [2, 2], [2, 2], [4, 4], stochastic_depth_prob=0.2, num_classes=5),
}
NAMES = {
    "resnet": ["conv1", "layer1.0", "layer2.0", "layer3.0", "layer4.0"],
    "vgg_bn": ["features.0", "features.4", "classifier.0", "classifier.3"],
    "convnext": ["features.0", "features.1.0", "features.2.1", "features.3.0", "features.3.1"],
    "efficientnet": ["features.0", "features.1.0", "features.2.0", "features.2.1", "features.3"],
    "vit": ["conv_proj", *(f"encoder.layers.encoder_layer_{i}" for i in range(3))],
    "maxvit": ["stem.0", "stem.1", "blocks.0.layers.0", "blocks.1.layers.0", "blocks.1.layers.1", "classifier.3"],
    "swin": ["features.0.0", "features.1.0", "features.1.1", "features.2", "features.3.0", "features.3.1"],
}


@torch.no_grad()
def randomised(model, seed=0):
    """Replaces the initial weights, some of which are 0 or 1e-6 and would hide missing modules."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in model.parameters():
        tensor.add_(torch.rand(tensor.shape, generator=generator) * 0.2)
    for name, tensor in model.named_buffers():
        if name.endswith(("mean", "var")):
            tensor.add_(torch.rand(tensor.shape, generator=generator))
    return model


def cut(model, shape):
    """A base network whose blocks are the model's own modules, and the model's head."""
    base = base_network_from_model(lambda: model, shape, "this model")
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    return [layer.block for layer in base.layers], head, base


def run(blocks, head, images):
    for block in blocks:
        images = block(images)
    return head(images)


def assert_same_outputs_and_gradients(model, shape, gradients=True):
    blocks, head, base = cut(randomised(model), shape)
    model.double().eval()
    images = torch.rand(2, *shape, dtype=torch.float64)
    expected = model(images)
    torch.testing.assert_close(run(blocks, head, images), expected, rtol=0, atol=1e-10)
    if gradients:
        wanted = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
        found = torch.autograd.grad(run(blocks, head, images).square().sum(), list(model.parameters()))
        for (name, _), one, other in zip(model.named_parameters(), found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10, msg=name)
    in_chain = {id(p) for block in [*blocks, head] for p in block.parameters()}
    assert in_chain == {id(p) for p in model.parameters()}
    return base


@pytest.mark.parametrize("kind", SMALL)
def test_the_chain_of_a_small_model_is_the_model(kind):
    base = assert_same_outputs_and_gradients(SMALL[kind](), (3, 16, 16))
    assert [layer.name for layer in base.layers] == NAMES[kind]
    assert all(layer.learned for layer in base.layers)
    assert base.make_head(7).out_features == 7


def test_resnet18_is_cut_at_its_blocks():
    with torch.random.fork_rng():
        model = make_torchvision_model("resnet18", (3, 32, 32))
    base = assert_same_outputs_and_gradients(model, (3, 32, 32))
    stages = [f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]
    assert [layer.name for layer in base.layers] == ["conv1", *stages]
    assert base.prior_layers == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pixels", "layers"), [("vgg11_bn", 32, 10), ("convnext_tiny", 32, 22), ("efficientnet_b0", 32, 18)]
)
def test_the_chain_of_a_large_model_is_the_model(name, pixels, layers):
    model = make_torchvision_model(name, (3, pixels, pixels))
    base = assert_same_outputs_and_gradients(model, (3, pixels, pixels), gradients=False)
    assert len(base.layers) == layers


@pytest.mark.slow
def test_vit_b_16_is_cut_at_its_encoder_blocks():
    model = make_torchvision_model("vit_b_16", (3, 32, 32))
    base = assert_same_outputs_and_gradients(model, (3, 32, 32), gradients=False)
    blocks = [f"encoder.layers.encoder_layer_{number}" for number in range(12)]
    assert [layer.name for layer in base.layers] == ["conv_proj", *blocks]


@pytest.mark.parametrize("channels", [1, 4])
def test_other_channels_than_three(channels):
    base = build_network("torchvision:mobilenet_v3_small", (channels, 32, 32))
    stem = base.layers[0].block
    assert stem[0].weight.shape[1] == channels
    images = torch.rand(2, channels, 32, 32)
    for layer in base.layers:
        images = layer.block.eval()(images)
    assert images.shape == (2, base.make_head(3).in_features)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("resnet19", (3, 32, 32), "no classifier named 'resnet19'.*resnet18"),
        ("fasterrcnn_resnet50_fpn", (3, 32, 32), "no classifier"),
        ("squeezenet1_1", (3, 64, 64), "does not end with nn.Linear.*own_network.md"),
        ("googlenet", (3, 64, 64), "aux1.*auxiliary.*own_network.md"),
        ("vit_b_32", (3, 48, 48), "indivisible"),
        ("vit_b_32", (3, 64, 32), "square"),
        ("alexnet", (3, 16, 16), "cannot take images of shape"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_reason(name, shape, message):
    with pytest.raises(ValueError, match=message):
        build_network(f"torchvision:{name}", shape)


class TwoWays(nn.Module):
    """Values bypass the layers."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three, self.fc = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, images):
        images = images.flatten(1)
        one = self.one(images)
        return self.fc(self.three(self.two(one) + images) + one * images)


class Untraceable(TwoWays):
    def forward(self, images):
        return self.fc(self.one(images.flatten(1)) if images.sum() > 0 else self.two(images.flatten(1)))


class Tied(TwoWays):
    def forward(self, images):
        return self.fc(self.three(self.one(self.two(self.one(images.flatten(1))))))


class Mixing(TwoWays):
    """Images of a batch affect each other."""

    def forward(self, images):
        images = self.three(self.two(self.one(images.flatten(1))))
        return self.fc(images - images.mean(0))


class InPlace(TwoWays):
    class Changing(nn.Linear):
        def forward(self, images):
            return super().forward(images.mul_(2))

    def __init__(self):
        super().__init__()
        self.two = self.Changing(4, 4)

    def forward(self, images):
        return self.fc(self.three(self.two(self.one(images.flatten(1)))))


class OnlyInTraining(TwoWays):
    def forward(self, images):
        images = self.three(self.two(self.one(images.flatten(1))))
        return self.fc(images * 2 if self.training else images)


class Drawing(TwoWays):
    class Dropping(nn.Linear):
        def forward(self, images):
            return nn.functional.dropout(super().forward(images), 0.5, self.training)

    def __init__(self):
        super().__init__()
        self.two = self.Dropping(4, 4)

    def forward(self, images):
        return self.fc(self.three(self.two(self.one(images.flatten(1)))))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TwoWays, "values pass the layer two"),
        (Untraceable, "cannot read its forward"),
        (Tied, "same weights in one and in one|same weights in one and in"),
        (Mixing, "something else for a single image than for a batch"),
        (InPlace, "changes its input in place"),
        (OnlyInTraining, "something else than the model"),
        (Drawing, "draws random numbers"),
    ],
)
def test_an_own_module_that_is_no_chain_is_refused_with_the_reason(model, message):
    with pytest.raises(CutError, match=message):
        build_network(functools.partial(lambda kind, shape: kind(), model), (1, 2, 2))


def test_building_leaves_the_global_generator_alone_and_draws_by_seed():
    base = base_network_from_model(SMALL["vit"], (3, 16, 16), "this model")
    before = torch.get_rng_state()
    one, again, other = (base.redraw(torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    first = [dict(block.state_dict()) for block in one]
    assert all(torch.equal(first[i][n], t) for i, block in enumerate(again) for n, t in block.state_dict().items())
    position = "encoder.pos_embedding"  # no convolution and no linear module
    assert not torch.equal(first[0][position], other[0].state_dict()[position])
