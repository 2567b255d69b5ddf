"""Edge cases that random networks miss, against torch's modules visit by visit: modules, shapes, chains."""

import copy

import pytest
import torch
from torch import nn
from torch_loop import CLOSE, POPULATION, TASKS, assert_same_step, batch, conv_block, flat_head, pair

# Modules around and within the fused part


@pytest.mark.parametrize("pool", [2, (2, 2), (1, 2), 3])
def test_sizes_of_pooling(pool):
    height, width = (8 // pool, 8 // pool) if isinstance(pool, int) else (8 // pool[0], 8 // pool[1])
    assert_same_step(*pair([conv_block(pool=pool)], flat_head(3 * height * width)), batch(4, 2, 8, 8))


@pytest.mark.parametrize(
    ("more", "features"),
    [
        ([nn.Flatten(), nn.Linear(48, 5), nn.BatchNorm1d(5)], 5),
        ([nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)], 12),
        ([nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()], 64),
    ],
    ids=["dense", "pooled_twice", "unpooled"],
)
def test_modules_behind_a_fused_part_of_several_copies(more, features):
    network, loop = pair([conv_block(*more)], flat_head(features))
    assert_same_step(network, loop, batch(4, 2, 8, 8))


@pytest.mark.parametrize("scale", [0.0, -0.0, -0.5, 1e-3])
def test_scales_for_which_pooling_does_not_commute_or_hardly(scale):
    """A scale of 0 makes a window's values equal: the scale's gradient comes from the first, not the largest."""
    network, loop = pair([conv_block()], flat_head())
    for modules in (network, loop.modules):
        with torch.no_grad():
            modules.get_parameter("layers.0.copies.0.1.weight")[1] = scale
            modules.get_parameter("layers.0.copies.0.1.bias")[1] = 0.5  # else ReLU hides the channel
    assert_same_step(network, loop, batch(4, 2, 8, 8))


def test_no_scales_and_no_bias():
    assert_same_step(*pair([conv_block(affine=False)], flat_head()), batch(4, 2, 8, 8))


def test_grouped_strided_and_reflected_convolutions():
    conv = nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2, padding_mode="reflect")
    block = nn.Sequential(conv, nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    network, loop = pair([block], flat_head(16))
    assert_same_step(network, loop, batch(4, 2, 8, 8))
    network.eval()
    loop.modules.eval()
    images = batch(4, 2, 8, 8, seed=2)
    with torch.no_grad():
        torch.testing.assert_close(torch.stack(network(images, POPULATION), 1), loop(images, POPULATION), **CLOSE)


def test_a_network_in_torchs_contiguous_format():
    """Convolutions then return a memory layout other than that of the fused part."""
    network, loop = pair([conv_block(), conv_block(channels=3)], flat_head(12))
    network.to(memory_format=torch.contiguous_format)
    assert_same_step(network, loop, batch(4, 2, 8, 8), POPULATION.repeat(1, 2, 1))


def test_a_block_that_leaves_channels_last():
    class Contiguous(nn.Module):
        def forward(self, images):
            return images.contiguous(memory_format=torch.contiguous_format)

    pointwise = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2))
    network, loop = pair([nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), Contiguous()), pointwise], flat_head())
    assert_same_step(network, loop, batch(4, 2, 8, 8), POPULATION.repeat(1, 2, 1))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "transposed", "strided"])
def test_layouts_of_images(layout, channels):
    images = batch(4, channels, 8, 8)
    images = {
        "contiguous": images,
        "channels_last": images.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3),
        "transposed": images.transpose(0, 1).contiguous().transpose(0, 1),
        "strided": torch.stack([images, images], -1)[..., 0],
    }[layout]
    assert_same_step(*pair([conv_block(channels=channels)], flat_head()), images)


# Shapes other than images


def test_rows_of_features():
    block = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=0.3), nn.ReLU())
    assert_same_step(*pair([block], lambda: nn.Linear(3, 2)), batch(4, 4))


def test_sequences_and_volumes():
    block = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU())
    assert_same_step(*pair([block], flat_head(12)), batch(4, 2, 6))
    block = nn.Sequential(nn.Conv3d(2, 3, 3), nn.BatchNorm3d(3), nn.ReLU())
    assert_same_step(*pair([block], flat_head(24)), batch(4, 2, 4, 4, 4))


@pytest.mark.parametrize("batch_size", [1, 2])
def test_the_smallest_batches(batch_size):
    """One image is enough for the statistics of a feature map."""
    assert_same_step(*pair([conv_block()], flat_head()), batch(batch_size, 2, 8, 8))


def test_one_value_of_a_channel_has_no_statistics():
    network, _ = pair([nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))], lambda: nn.Linear(3, 2))
    with pytest.raises(ValueError, match="more than one value"):
        network(batch(1, 4), POPULATION)
    with torch.no_grad(), network.evaluating():
        assert network(batch(1, 4), POPULATION)[0].shape == (4, 1, 2)


# Chains


@pytest.mark.parametrize("copies", [[1, 2, 2], [2, 1, 2], [2, 2, 1], [1, 1, 1], [1, 3, 1]])
def test_common_layers_anywhere(copies):
    blocks = [conv_block(), conv_block(channels=3), nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4))]
    learned = sum(count > 1 for count in copies)
    population = torch.randint(2, (5, learned, TASKS), generator=torch.Generator().manual_seed(3))
    network, loop = pair(blocks, lambda: nn.Linear(4, 2), copies)
    assert network.weights_per_layer == [count for count in copies if count > 1]
    assert_same_step(network, loop, batch(4, 2, 8, 8), population)


def test_heads_normalise_each_tasks_batch_by_itself():
    def head():
        return nn.Sequential(nn.Flatten(), nn.Linear(48, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))

    network, loop = pair([conv_block()], head)
    assert_same_step(network, loop, batch(4, 2, 8, 8))


def test_a_head_that_is_a_normalisation():
    network, loop = pair([nn.Linear(4, 3)], lambda: nn.BatchNorm1d(3))
    assert_same_step(network, loop, batch(4, 4))


def test_unused_copies_have_no_gradient_and_keep_their_statistics():
    network, _ = pair([conv_block()], flat_head(), [4])
    before = copy.deepcopy(network.state_dict())
    outputs = network(batch(4, 2, 8, 8), POPULATION)
    sum(output.sum() for output in outputs).backward()
    network.commit_running_stats()
    for number, block in enumerate(network.layers[0].copies):
        used = number < 2
        assert all((p.grad is not None and bool(p.grad.any())) == used for p in [block[0].weight, block[1].bias])
        key = f"layers.0.copies.{number}.1.running_mean"
        assert torch.equal(block[1].running_mean, before[key]) != used
