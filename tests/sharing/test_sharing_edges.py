"""What random networks do not meet by chance, against torch's own modules visit by visit."""

import copy

import pytest
import torch
from torch import nn

from lws_lightning.sharing import CommonLayer, MultiTaskNetwork, SharedLayer, TaskBatchNorm

CLOSE = {"rtol": 0, "atol": 1e-10}
POPULATION = torch.tensor([[[0, 1, 1]], [[1, 1, 0]], [[0, 0, 0]], [[0, 1, 1]]])  # S=4, L=1, T=3, K=2
TASKS = POPULATION.shape[2]


class Loop:
    """The same copies and heads as a network's, built of torch's modules without this package, with the same keys."""

    def __init__(self, blocks, copies, heads):
        self.modules = nn.ModuleDict(
            {
                "layers": nn.ModuleList(
                    nn.ModuleDict({"copies": nn.ModuleList(copy.deepcopy(block) for _ in range(count))})
                    for block, count in zip(blocks, copies, strict=True)
                ),
                "heads": nn.ModuleList(copy.deepcopy(head) for head in heads),
            }
        ).double()
        self.learned = [count > 1 for count in copies]

    def __call__(self, images, population):
        logits = []
        for assignment in population:
            for task, activations in enumerate(images):
                copies = iter(assignment[:, task].tolist())
                for layer, learned in zip(self.modules["layers"], self.learned, strict=True):
                    activations = layer["copies"][next(copies) if learned else 0](activations)
                logits.append(self.modules["heads"][task](activations))
        return torch.stack(logits).unflatten(0, (len(population), len(images)))


def pair(blocks, make_head, copies=None, seed=0):
    """A network and its loop with the same random weights; K=1 makes a common layer."""
    copies = copies or [2] * len(blocks)
    heads = [make_head() for _ in range(TASKS)]
    loop = Loop(blocks, copies, heads)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*loop.modules.named_parameters(), *loop.modules.named_buffers()]:
            if tensor.is_floating_point():
                tensor.uniform_(0.2 if name.endswith("var") else -1, 1, generator=generator)
        for module in loop.modules.modules():
            if isinstance(module, nn.BatchNorm2d) and module.affine:
                module.weight.abs_()
    layers = [
        CommonLayer(block) if count == 1 else SharedLayer(block, count)
        for block, count in zip(blocks, copies, strict=True)
    ]
    network = MultiTaskNetwork(layers, [copy.deepcopy(head) for head in heads]).double()
    network.load_state_dict(loop.modules.state_dict())
    return network, loop


def batch(*shape, seed=1):
    return torch.randn(TASKS, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same_step(network, loop, images, population=POPULATION, running_stats="per_visit"):
    """One training pass with its gradients and running statistics."""
    network.set_running_stats(running_stats)
    ours, plain = torch.stack(network(images, population), dim=1), loop(images, population)
    torch.testing.assert_close(ours, plain, **CLOSE)
    ours.square().sum().backward()
    plain.square().sum().backward()
    expected = {name: parameter.grad for name, parameter in loop.modules.named_parameters()}
    for name, parameter in network.named_parameters():
        if expected[name] is None:
            assert parameter.grad is None or not parameter.grad.any(), name
        else:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-10, atol=1e-10, msg=name)
    network.commit_running_stats()
    state = loop.modules.state_dict()
    for name, buffer in network.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            torch.testing.assert_close(buffer, state[name], **CLOSE, msg=name)


def conv_block(*more, channels=2, pool=2, **norm_options):
    norm = nn.BatchNorm2d(3, **norm_options)
    return nn.Sequential(nn.Conv2d(channels, 3, 3, padding=1), norm, nn.ReLU(), nn.MaxPool2d(pool), *more)


def flat_head(features=48):
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(features, 2))


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
    """A scale of 0 makes a window's values equal: the gradient of the scale is that of the first, not the largest."""
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
    """Then convolutions return another memory layout than the fused part works in."""
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


# Running statistics


@pytest.mark.parametrize("momentum", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_momentum_and_eps(momentum, eps):
    assert_same_step(*pair([conv_block(momentum=momentum, eps=eps)], flat_head()), batch(4, 2, 8, 8))


def test_mean_does_not_depend_on_the_order_of_assignments_and_tasks():
    network, _ = pair([conv_block()], flat_head())
    other, images = copy.deepcopy(network), batch(4, 2, 8, 8)
    network(images, POPULATION)
    other(images.flip(0), POPULATION.flip(0, 2), tasks=[2, 1, 0])
    for one in (network, other):
        one.commit_running_stats()
    for mine, theirs in zip(network.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_per_visit_lets_the_last_tasks_dominate():
    """With 50 visits of one each, the last ten hold 65 % of what is new (PyTorch's momentum, 0.1)."""
    network = MultiTaskNetwork([CommonLayer(TaskBatchNorm(1, momentum=0.1))], [nn.Identity() for _ in range(50)])
    network.set_running_stats("per_visit")
    images = torch.randn(50, 4, 1)
    images[:40] -= images[:40].mean(1, keepdim=True)
    images[40:] += 1 - images[40:].mean(1, keepdim=True)
    network(images, torch.zeros(1, 0, 50, dtype=torch.int64))
    network.commit_running_stats()
    assert next(network.norms()).running_mean.item() == pytest.approx(1 - 0.9**10)


def test_cumulative_average_over_steps():
    """`momentum=None` is torch's plain average; here over steps, each the mean of its visits."""
    network, _ = pair([nn.Sequential(nn.BatchNorm1d(2, momentum=None))], lambda: nn.Linear(2, 2), [1])
    means = []
    for seed in range(3):
        images = batch(5, 2, seed=seed)
        network(images, torch.zeros(1, 0, TASKS, dtype=torch.int64))
        network.commit_running_stats()
        means.append(images.mean((0, 1)))
    torch.testing.assert_close(next(network.norms()).running_mean, torch.stack(means).mean(0))


def test_a_pass_is_committed_once_and_the_last_one_counts():
    network, _ = pair([conv_block()], flat_head())
    once = copy.deepcopy(network)
    first, last = batch(4, 2, 8, 8, seed=1), batch(4, 2, 8, 8, seed=2)
    network(first, POPULATION)
    network(last, POPULATION)
    network.commit_running_stats()
    network.commit_running_stats()
    once(last, POPULATION)
    once.commit_running_stats()
    for mine, theirs in zip(network.buffers(), once.buffers(), strict=True):
        assert torch.equal(mine, theirs)


def test_evaluation_between_pass_and_commit_changes_nothing():
    network, _ = pair([conv_block()], flat_head())
    undisturbed = copy.deepcopy(network)
    for one in (network, undisturbed):
        one(batch(4, 2, 8, 8), POPULATION)
    with torch.no_grad(), network.evaluating():
        network(batch(4, 2, 8, 8, seed=5), POPULATION)
        network.forward_task(batch(4, 2, 8, 8, seed=6)[0], POPULATION[0], 0)
    for one in (network, undisturbed):
        one.commit_running_stats()
    for mine, theirs in zip(network.buffers(), undisturbed.buffers(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_normalisation_without_running_statistics(training, grad):
    """Such a module uses its batch's statistics in eval mode, too; they must be each task's own."""
    block = nn.Sequential(*conv_block(track_running_stats=False), nn.Flatten(), nn.Linear(48, 4))
    block.append(nn.BatchNorm1d(4, track_running_stats=False))
    network, loop = pair([block], lambda: nn.Linear(4, 2))
    network.train(training)
    loop.modules.train(training)
    images = batch(4, 2, 8, 8)
    with torch.set_grad_enabled(grad):
        ours, plain = torch.stack(network(images, POPULATION), dim=1), loop(images, POPULATION)
    torch.testing.assert_close(ours, plain, **CLOSE)
    network.commit_running_stats()


def test_some_normalisations_frozen():
    """Of the copies of one block, only some use their running statistics."""
    network, loop = pair([conv_block()], flat_head())
    for modules in (network, loop.modules):
        modules.get_submodule("layers.0.copies.1.1").eval()
    assert_same_step(network, loop, batch(4, 2, 8, 8))
    with torch.no_grad():
        ours, plain = network(batch(4, 2, 8, 8), POPULATION), loop(batch(4, 2, 8, 8), POPULATION)
    torch.testing.assert_close(torch.stack(ours, 1), plain, **CLOSE)


def test_an_error_within_a_pass_leaves_no_trace():
    network, loop = pair([conv_block()], flat_head())
    with pytest.raises(RuntimeError):
        network(batch(4, 5, 8, 8), POPULATION)
    assert_same_step(network, loop, batch(4, 2, 8, 8))


# Copies of a network, other precisions, hooks


def test_checkpoints_pass_between_the_network_and_torchs_modules():
    network, loop = pair([conv_block(), nn.Sequential(nn.Flatten(), nn.Linear(48, 4))], lambda: nn.Linear(4, 2))
    images, population = batch(4, 2, 8, 8), POPULATION.repeat(1, 2, 1)
    network(images, population)
    network.commit_running_stats()
    loop.modules.load_state_dict(network.state_dict())
    network.eval()
    loop.modules.eval()
    torch.testing.assert_close(torch.stack(network(images, population), 1), loop(images, population), **CLOSE)


def test_a_module_put_in_place_of_another_is_used():
    network, loop = pair([conv_block()], flat_head())
    for copies in (network.layers[0].copies, loop.modules["layers"][0]["copies"]):
        copies[1][2] = nn.Tanh()
    for copies in (network.layers[0].copies, loop.modules["layers"][0]["copies"]):
        copies[0][2] = nn.Tanh()
    assert_same_step(network, loop, batch(4, 2, 8, 8))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("position", [None, 0, 1, 2, 3])
def test_forward_hooks_see_every_pass_of_a_copy(position, training):
    network, loop = pair([conv_block()], flat_head())
    network.train(training)
    loop.modules.train(training)
    seen = []
    block = network.layers[0].copies[1]
    hooked = block if position is None else block[position]
    hooked.register_forward_hook(lambda module, inputs, output: seen.append(module))
    with torch.no_grad():
        ours, plain = network(batch(4, 2, 8, 8), POPULATION), loop(batch(4, 2, 8, 8), POPULATION)
    assert seen == [hooked]
    torch.testing.assert_close(torch.stack(ours, 1), plain, **CLOSE)


def test_hooks_may_change_what_passes():
    network, loop = pair([conv_block()], flat_head())
    for modules in (network, loop.modules):
        for number in range(2):
            norm = modules.get_submodule(f"layers.0.copies.{number}.1")
            norm.register_forward_hook(lambda module, inputs, output: output - 0.5)
            norm.register_forward_pre_hook(lambda module, inputs: inputs[0] * 2)
    assert_same_step(network, loop, batch(4, 2, 8, 8))


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_backward_hooks_fire(position):
    network, loop = pair([conv_block()], flat_head())
    seen = []
    network.layers[0].copies[0][position].register_full_backward_hook(lambda *_: seen.append(position))
    assert_same_step(network, loop, batch(4, 2, 8, 8).requires_grad_())
    assert seen == [position]


def test_a_second_backward_through_a_kept_graph_adds_the_same():
    network, _ = pair([conv_block()], flat_head())
    loss = torch.stack(network(batch(4, 2, 8, 8), POPULATION)).square().sum()
    loss.backward(retain_graph=True)
    once = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    loss.backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.grad, 2 * once[name])


def test_bfloat16_weights():
    network, _ = pair([conv_block()], flat_head())
    network.bfloat16()
    outputs = network(batch(4, 2, 8, 8).bfloat16(), POPULATION)
    sum(output.float().square().sum() for output in outputs).backward()
    network.commit_running_stats()
    assert {output.dtype for output in outputs} == {torch.bfloat16}
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in network.parameters())
    assert all(bool(torch.isfinite(buffer).all()) for buffer in network.buffers())


def test_autocast_is_near_float32():
    network, _ = pair([conv_block(), conv_block(affine=False, channels=3)], flat_head(12))
    network, images = network.float(), batch(8, 2, 8, 8).float()
    mixed, population = copy.deepcopy(network), POPULATION.repeat(1, 2, 1)
    network(images, population)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed(images, population)
    for one in (network, mixed):
        one.commit_running_stats()
    for mine, theirs in zip(network.buffers(), mixed.buffers(), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_statistics_of_constant_images_stay_usable(offset):
    """The variance is recovered from one over its root, so that it must not come out far below zero."""
    network, _ = pair([nn.Sequential(nn.BatchNorm2d(2, momentum=1.0))], flat_head(128), [1])
    network.float()
    network(torch.full((TASKS, 4, 2, 8, 8), offset), torch.zeros(1, 0, TASKS, dtype=torch.int64))
    network.commit_running_stats()
    (norm,) = network.norms()
    assert norm.running_var.abs().max() < 1e-6
    with torch.no_grad(), network.evaluating():
        outputs = network(torch.full((TASKS, 4, 2, 8, 8), offset), torch.zeros(1, 0, TASKS, dtype=torch.int64))
    assert all(bool(torch.isfinite(output).all()) for output in outputs)
