"""Runs all copies of a layer in lockstep, module by module, with as few passes over memory as possible.

On the CPU, a convolutional block is bound by memory as much as by arithmetic. What is saved (in parentheses the speedup
in CPU time of the phase, on the paper's ConvNets; `benchmarks/NOTES.md` describes the measurement):

- In eval mode, batch normalisation is an affine map per channel, so it folds into the convolution (NES pass 1.28 to
  1.50).
- ReLU and, for positive scales, normalisation are monotone, so they commute with max-pooling. Pooling first leaves a
  quarter of the elements to normalise, and in the backward pass the sums over the batch run over that quarter (pass of
  the weights 1.14 to 1.34; NES pass with statistics per task, which cannot be folded, 1.51).
- Without gradients, 2x2 pooling does not need the positions of the maxima (NES pass of DKL-MNIST 1.11 to 1.15).

Normalisation, pooling and ReLU after the convolutions of a block run once for the nodes of all copies. Results equal
those of running the modules one after the other, up to rounding.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.fusion import fuse_conv_bn_weights

from lws_lightning.sharing.batch_norm import TaskBatchNorm
from lws_lightning.sharing.nodes import Nodes, SeedFunction, node_context

__all__ = ["run_copies"]


def run_copies(
    copies: Sequence[nn.Module], inputs: Tensor, nodes: Sequence[Nodes], seed_function: SeedFunction | None = None
) -> Tensor:
    """Runs copies of one block, each on its own nodes.

    Args:
        copies: Copies of a block. The modules of an `nn.Sequential` without hooks run in lockstep.
        inputs: `(sum_k n_k * B, ...)`, the nodes of the first copy, of the second, and so on.
        nodes: The nodes of each copy.
        seed_function: Makes the seeds of random layers; see `node_context`.

    Returns:
        `(sum_k n_k * B, ...)`.
    """
    in_lockstep = all(type(block) is nn.Sequential for block in copies) and not _has_hooks(copies)
    steps: list[tuple[Any, ...]] = list(zip(*copies, strict=True)) if in_lockstep else [tuple(copies)]
    batch_size = len(inputs) // sum(copy_nodes.size for copy_nodes in nodes)
    lengths = [copy_nodes.size * batch_size for copy_nodes in nodes]
    activations: Tensor | Sequence[Tensor] = inputs
    with node_context(copies, nodes, seed_function):
        while steps:
            parts = torch.split(activations, lengths) if isinstance(activations, Tensor) else activations
            fused = _fused_length(steps)
            if fused:
                activations = _run_fused(parts, *steps[:fused])
            else:
                activations = [module(part) for module, part in zip(steps[0], parts, strict=True)]
            steps = steps[max(fused, 1) :]
    if isinstance(activations, Tensor):
        return activations
    return activations[0] if len(activations) == 1 else torch.cat(list(activations))


def _fused_length(steps: Sequence[Sequence[nn.Module]]) -> int:
    """Counts the modules to fuse at the start of a chain: convolution, normalisation, ReLU, possibly pooling."""
    first = [modules[0] for modules in steps[:4]]
    if len(first) < 3 or type(first[0]) is not nn.Conv2d or type(first[2]) is not nn.ReLU:
        return 0
    length = 4 if len(first) == 4 and _is_simple_pool(first[3]) else 3
    if not isinstance(first[1], TaskBatchNorm) or any(_has_hooks(modules) for modules in steps[:length]):
        return 0
    return length


def _is_simple_pool(module: nn.Module) -> bool:
    return (
        type(module) is nn.MaxPool2d
        and isinstance(module.kernel_size, int)
        and module.kernel_size == module.stride
        and module.padding == 0
        and module.dilation == 1
        and not module.return_indices
        and not module.ceil_mode
    )


def _has_hooks(modules: Sequence[nn.Module]) -> bool:
    return any(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        for module in modules
    )


def _run_fused(
    parts: Sequence[Tensor],
    convs: Sequence[Any],
    norms: Sequence[Any],
    relus: Sequence[nn.Module],
    pools: Sequence[Any] = (),
) -> Tensor | Sequence[Tensor]:
    kernel = pools[0].kernel_size if pools else 0
    if _can_fold(norms):
        outputs = [_run_folded(conv, norm, part) for conv, norm, part in zip(convs, norms, parts, strict=True)]
        if kernel == 2 and outputs[0].device.type == "cpu":
            return _max_of_pairs(outputs).relu_()
        return [(pools[0](output) if pools else output).relu_() for output in outputs]
    outputs = [conv(part) for conv, part in zip(convs, parts, strict=True)]
    if pools and _can_pool_first(norms, outputs):
        if norms[0].training:
            return _norm_pool_relu(norms, outputs, kernel)
        if kernel == 2 and not torch.is_grad_enabled():
            return _pool_norm_relu(norms, outputs)
    normalised = [relus[0](norm(output)) for norm, output in zip(norms, outputs, strict=True)]
    return [pools[0](part) for part in normalised] if pools else normalised


def _can_fold(norms: Sequence[TaskBatchNorm]) -> bool:
    """Whether each normalisation is a single affine map for all its nodes."""
    return not torch.is_grad_enabled() and all(
        not norm.training and norm.track_running_stats and norm.affine and norm.running_stats != "per_task"
        for norm in norms
    )


def _can_pool_first(norms: Sequence[TaskBatchNorm], outputs: Sequence[Tensor]) -> bool:
    """Whether pooling may come first: scales > 0, one mode, and statistics in the dtype of the images (no autocast).

    With a scale of 0 all inputs become equal, and pooling then selects the first one, not the largest. On a GPU,
    checking the sign of the scales is not worth a synchronisation.
    """
    return all(
        norm.training is norms[0].training
        and (norm.training or norm.running_stats == "per_task")
        and norm.nodes is not None
        and norm.affine
        and output.device.type == "cpu"
        and output.dtype == norm.weight.dtype
        and bool((norm.weight > 0).all())
        for norm, output in zip(norms, outputs, strict=True)
    )


def _run_folded(conv: nn.Conv2d, norm: Any, images: Tensor) -> Tensor:
    weight, bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    # Detached, because autocast would cache a cast of each.
    output: Tensor = conv._conv_forward(images, weight.detach(), bias.detach())
    return output


def _max_of_pairs(images: Sequence[Tensor]) -> Tensor:
    """Max-pools batches 2x2 into one tensor with `torch.maximum`, without positions of the maxima."""
    _, channels, height, width = images[0].shape
    shape = (sum(len(part) for part in images), channels, height // 2, width // 2)
    pooled = torch.empty(shape, dtype=images[0].dtype, memory_format=torch.channels_last)
    for part, out in zip(images, torch.split(pooled, [len(part) for part in images]), strict=True):
        pixels = part.permute(0, 2, 3, 1)[:, : height // 2 * 2, : width // 2 * 2]
        larger = torch.maximum(pixels[:, 0::2], pixels[:, 1::2])
        torch.maximum(larger[:, :, 0::2], larger[:, :, 1::2], out=out.permute(0, 2, 3, 1))
    return pooled


def _pool_norm_relu(norms: Sequence[Any], outputs: Sequence[Tensor]) -> Tensor:
    """Max-pools 2x2, then normalises each node with its task's running statistics, in eval mode."""
    pooled = _max_of_pairs(outputs)
    slopes, shifts = zip(*[norm.affine_by_node() for norm in norms], strict=True)
    slope, shift = torch.cat(slopes).unsqueeze(1), torch.cat(shifts).unsqueeze(1)
    return _images(torch.addcmul(shift, _rows(pooled, len(slope)), slope).relu_(), pooled)


def _norm_pool_relu(norms: Sequence[Any], outputs: Sequence[Tensor], kernel: int) -> Tensor:
    sizes = [norm.nodes.size for norm in norms]
    result, mean, inverse_std = _NormPoolRelu.apply(
        sizes, norms[0].eps, kernel, *outputs, *[norm.weight for norm in norms], *[norm.bias for norm in norms]
    )
    per_channel = outputs[0].numel() // (sizes[0] * outputs[0].shape[1])
    for norm, m, s in zip(norms, torch.split(mean, sizes), torch.split(inverse_std, sizes), strict=True):
        norm.collect(m, s, per_channel)
    return result  # type: ignore[no-any-return]


class _NormPoolRelu(torch.autograd.Function):
    """Normalisation of each node with its own statistics, max-pooling and ReLU, for scales > 0.

    Takes K convolutions' outputs `(n_k * B, C, H, W)`, K scales and K shifts `(C,)`; returns all nodes' results
    `(n * B, C, H // kernel, W // kernel)` and their means and inverse standard deviations, `(n, C)`.
    """

    @staticmethod
    def forward(ctx: Any, sizes: list[int], eps: float, kernel: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        images = tensors[: len(sizes)]
        copy_of_node = torch.repeat_interleave(torch.tensor(sizes))
        scale = torch.stack(tensors[len(sizes) : 2 * len(sizes)])[copy_of_node]
        shift = torch.stack(tensors[2 * len(sizes) :])[copy_of_node]
        statistics = [
            torch.ops.aten.batch_norm_update_stats(node, None, None, 0.0)
            for part, size in zip(images, sizes, strict=True)
            for node in part.chunk(size)
        ]
        mean = torch.stack([node_mean for node_mean, _ in statistics])
        inverse_std = torch.rsqrt(torch.stack([node_variance for _, node_variance in statistics]) + eps)
        pooled, indices = _pool(images, kernel)
        slope = inverse_std * scale
        rows = _rows(pooled, len(mean))
        output = torch.addcmul((shift - mean * slope).unsqueeze(1), rows, slope.unsqueeze(1)).relu_()
        result = _images(output, pooled)
        ctx.save_for_backward(pooled, indices, result, mean, inverse_std, slope, *images)
        ctx.sizes, ctx.kernel = sizes, kernel
        ctx.mark_non_differentiable(mean, inverse_std)
        return result, mean, inverse_std

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        pooled, indices, result, mean, inverse_std, slope, *images = ctx.saved_tensors
        num_nodes, sizes = len(mean), ctx.sizes
        grad_output = grad_output.contiguous(memory_format=torch.channels_last)
        upstream = _rows(torch.ops.aten.threshold_backward(grad_output, result, 0), num_nodes)
        grad_shift = upstream.sum(1)
        times_input = (upstream * _rows(pooled, num_nodes)).sum(1)
        grad_scale = (times_input - mean * grad_shift) * inverse_std
        # With the normalised input x^, the gradient is slope * (upstream at the maxima - mean(upstream)
        # - x^ * mean(upstream * x^)): sparse, plus affine in the input.
        count = images[0].numel() // (sizes[0] * images[0].shape[1])
        per_input = -slope * inverse_std * grad_scale / count
        constant = -slope * grad_shift / count - per_input * mean
        at_maxima = _images(upstream * slope.unsqueeze(1), pooled)
        split_images = [size * len(pooled) // num_nodes for size in sizes]
        grads = []
        for part, grad, index, factor, summand in zip(
            images,
            torch.split(at_maxima, split_images),
            torch.split(indices, split_images),
            torch.split(per_input, sizes),
            torch.split(constant, sizes),
            strict=True,
        ):
            grad_input = torch.ops.aten.max_pool2d_with_indices_backward(
                grad, part, [ctx.kernel], [], [0], [1], False, index
            )
            rows = _rows(grad_input, len(factor))
            rows.addcmul_(_rows(part, len(factor)), factor.unsqueeze(1)).add_(summand.unsqueeze(1))
            grads.append(_images(rows, part))  # not grad_input: rows are a copy unless it is channels_last
        grad_scales = [node_grads.sum(0) for node_grads in torch.split(grad_scale, sizes)]
        grad_shifts = [node_grads.sum(0) for node_grads in torch.split(grad_shift, sizes)]
        return None, None, None, *grads, *grad_scales, *grad_shifts


def _pool(images: Sequence[Tensor], kernel: int) -> tuple[Tensor, Tensor]:
    """Max-pools batches into one tensor; returns it with the positions of the maxima."""
    _, channels, height, width = images[0].shape
    shape = (sum(len(part) for part in images), channels, height // kernel, width // kernel)
    pooled = torch.empty(shape, dtype=images[0].dtype, memory_format=torch.channels_last)
    indices = torch.empty(shape, dtype=torch.int64, memory_format=torch.channels_last)
    lengths = [len(part) for part in images]
    for part, out, index in zip(images, torch.split(pooled, lengths), torch.split(indices, lengths), strict=True):
        torch.ops.aten.max_pool2d_with_indices.out(part, [kernel], [], [0], [1], False, out=out, indices=index)
    return pooled, indices


def _rows(images: Tensor, num_nodes: int) -> Tensor:
    """Views `(n * B, C, H, W)` in channels_last as `(n, B * H * W, C)`."""
    return images.permute(0, 2, 3, 1).reshape(num_nodes, -1, images.shape[1])


def _images(rows: Tensor, like: Tensor) -> Tensor:
    """Inverts `_rows` for images of the shape of `like`."""
    size, channels, height, width = like.shape
    return rows.view(size, height, width, channels).permute(0, 3, 1, 2)
