"""All copies of a layer in lockstep, module by module, in as few passes over memory as it takes.

On the CPU a convolutional block is bound by memory as much as by arithmetic. Two facts save most of it:

- In eval mode, batch normalisation is an affine map for each channel, so it folds into the convolution.
- ReLU and, for positive scales, normalisation are monotone, so they commute with max-pooling. Pooling first leaves
  a quarter of the elements to normalise, and in the backward pass the sums over the batch run over that quarter.

What follows the convolutions of a block (normalisation, pooling, ReLU) is done for the nodes of all copies at once.
The results are those of the modules one after the other, to rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lws_lightning.sharing.batch_norm import TaskBatchNorm, Visits, norms_of, visiting
from lws_lightning.sharing.task_statistics import PerTaskBatchNorm

__all__ = ["run_copies"]


@dataclass(frozen=True)
class _Segment:
    """Positions of consecutive modules that run as one: convolution, batch normalisation, ReLU, maybe max-pooling."""

    conv: int
    norm: int
    relu: int
    pool: int | None

    @property
    def end(self) -> int:
        return (self.relu if self.pool is None else self.pool) + 1


def run_copies(copies: Sequence[nn.Module], inputs: Tensor, visits: Sequence[Visits]) -> Tensor:
    """Runs copies of one block, each on its own part of a layer's nodes.

    Args:
        copies: Copies of a block. If they are plain `nn.Sequential` without hooks, their modules run in lockstep.
        inputs: `(sum_k n_k * B, ...)`, the nodes of the first copy, of the second, and so on.
        visits: For each copy what its input consists of.

    Returns:
        `(sum_k n_k * B, ...)`.
    """
    in_lockstep = all(type(block) is nn.Sequential for block in copies) and not _has_hooks(copies)
    chains = [list(block) if in_lockstep else [block] for block in copies]  # type: ignore[call-overload]
    segments = _find_segments(chains[0])
    sizes = [visit.num_nodes for visit in visits]
    norms = [(norm, visit) for block, visit in zip(copies, visits, strict=True) for norm in norms_of(block)]
    activations: Tensor | Sequence[Tensor] = inputs
    with visiting(norms):
        position = 0
        while position < len(chains[0]):
            segment = segments.get(position)
            end = position + 1 if segment is None else segment.end
            if any(_has_hooks(chain[position:end]) for chain in chains):
                segment, end = None, position + 1
            elif segment is None and _is_image_by_image(chains[0][position]):
                activations = chains[0][position](_joined(activations))
                position = end
                continue
            parts = _parts(activations, sizes)
            if segment is None:
                activations = [chain[position](part) for chain, part in zip(chains, parts, strict=True)]
            else:
                activations = _run_segment(parts, chains, segment)
            position = end
    return _joined(activations)


def _joined(activations: Tensor | Sequence[Tensor]) -> Tensor:
    """Returns the nodes of all copies in one tensor."""
    if isinstance(activations, Tensor):
        return activations
    return activations[0] if len(activations) == 1 else torch.cat(list(activations))


def _parts(activations: Tensor | Sequence[Tensor], sizes: Sequence[int]) -> Sequence[Tensor]:
    """Returns the nodes of each copy."""
    if not isinstance(activations, Tensor):
        return activations
    batch_size = len(activations) // sum(sizes)
    return torch.split(activations, [size * batch_size for size in sizes])


def _is_image_by_image(module: nn.Module) -> bool:
    """Whether a module does the same for every image and copy, so that it may run once for all."""
    if type(module) is nn.Flatten:
        return module.start_dim == 1
    return type(module) in (nn.ReLU, nn.Identity, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)


def _find_segments(modules: Sequence[nn.Module]) -> dict[int, _Segment]:
    """Finds what can run as one, by the position of its convolution."""
    segments = {}
    for i in range(len(modules) - 2):
        conv, norm, relu = modules[i : i + 3]
        if type(conv) is nn.Conv2d and isinstance(norm, TaskBatchNorm) and type(relu) is nn.ReLU:
            pooled = i + 3 < len(modules) and _is_plain_pool(modules[i + 3])
            segments[i] = _Segment(i, i + 1, i + 2, i + 3 if pooled else None)
    return segments


def _is_plain_pool(module: nn.Module) -> bool:
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


def _run_segment(
    parts: Sequence[Tensor], chains: Sequence[Sequence[Any]], segment: _Segment
) -> Tensor | Sequence[Tensor]:
    convs = [chain[segment.conv] for chain in chains]
    norms = [chain[segment.norm] for chain in chains]
    pool = None if segment.pool is None else chains[0][segment.pool]
    if _can_fold(norms):
        folded = _fold(convs, norms)
        outputs = [conv._conv_forward(part, *both) for conv, part, both in zip(convs, parts, folded, strict=True)]
        if pool is None:
            return [output.relu_() for output in outputs]
        if pool.kernel_size == 2 and outputs[0].device.type == "cpu":
            return _max_of_pairs(outputs).relu_()
        return [pool(output).relu_() for output in outputs]
    outputs = [conv(part) for conv, part in zip(convs, parts, strict=True)]
    if pool is not None and _can_fuse(norms, outputs):
        if norms[0].training:
            return _norm_pool_relu(norms, outputs, pool.kernel_size)
        if pool.kernel_size == 2 and not torch.is_grad_enabled():
            return _pool_norm_relu(norms, outputs)
    relu = chains[0][segment.relu]
    normalised = [relu(norm(output)) for norm, output in zip(norms, outputs, strict=True)]
    return normalised if pool is None else [pool(part) for part in normalised]


def _can_fold(norms: Sequence[TaskBatchNorm]) -> bool:
    plain = all(not norm.training and norm.track_running_stats and norm.affine for norm in norms)
    return plain and type(norms[0]) is TaskBatchNorm and not torch.is_grad_enabled()


def _can_fuse(norms: Sequence[TaskBatchNorm], outputs: Sequence[Tensor]) -> bool:
    """Whether pooling may come first: scales > 0, and statistics in the dtype of the images (no autocast).

    A scale of 0 makes all inputs equal, of which pooling takes the first and not the largest.

    On a GPU the sign of the scales is not worth a synchronisation.
    """
    return all(
        (norm.training or isinstance(norm, PerTaskBatchNorm))
        and norm.visits is not None
        and norm.affine
        and output.device.type == "cpu"
        and output.dtype == norm.weight.dtype
        and bool((norm.weight > 0).all())
        for norm, output in zip(norms, outputs, strict=True)
    )


def _fold(convs: Sequence[nn.Conv2d], norms: Sequence[Any]) -> list[tuple[Tensor, Tensor]]:
    """Returns for each copy the convolution's weight and bias with the normalisation in them."""
    deviations = torch._foreach_add([norm.running_var for norm in norms], [norm.eps for norm in norms])
    torch._foreach_sqrt_(deviations)
    scales = torch._foreach_div([norm.weight for norm in norms], deviations)
    shifts = torch._foreach_mul([norm.running_mean for norm in norms], scales)
    folded = []
    for conv, norm, scale, shift in zip(convs, norms, scales, shifts, strict=True):
        bias = norm.bias - shift if conv.bias is None else torch.addcmul(norm.bias - shift, conv.bias, scale)
        weight = conv.weight * scale.view(-1, 1, 1, 1).to(conv.weight.dtype)
        folded.append((weight, bias.to(conv.weight.dtype)))
    return folded


def _max_of_pairs(images: Sequence[Tensor]) -> Tensor:
    """Max-pools several batches 2x2 into one tensor: `torch.maximum` knows no positions and is twice as fast."""
    _, channels, height, width = images[0].shape
    shape = (sum(len(part) for part in images), channels, height // 2, width // 2)
    pooled = torch.empty(shape, dtype=images[0].dtype, memory_format=torch.channels_last)
    for part, out in zip(images, torch.split(pooled, [len(part) for part in images]), strict=True):
        pixels = part.permute(0, 2, 3, 1)[:, : height // 2 * 2, : width // 2 * 2]
        larger = torch.maximum(pixels[:, 0::2], pixels[:, 1::2])
        torch.maximum(larger[:, :, 0::2], larger[:, :, 1::2], out=out.permute(0, 2, 3, 1))
    return pooled


def _pool_norm_relu(norms: Sequence[Any], outputs: Sequence[Tensor]) -> Tensor:
    """Max-pools 2x2, and then normalises each node with the running statistics of its task, in eval mode."""
    pooled = _max_of_pairs(outputs)
    slopes, shifts = zip(*[norm.affine_by_node() for norm in norms], strict=True)
    slope, shift = torch.cat(slopes).unsqueeze(1), torch.cat(shifts).unsqueeze(1)
    return _images(torch.addcmul(shift, _rows(pooled, len(slope)), slope).relu_(), pooled)


def _norm_pool_relu(norms: Sequence[Any], outputs: Sequence[Tensor], kernel: int) -> Tensor:
    sizes = [norm.visits.num_nodes for norm in norms]
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
    `(n * B, C, H // kernel, W // kernel)` and their means and inverse deviations `(n, C)`.
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
            grads.append(_images(rows, part))  # not grad_input: unless that is channels_last, rows are a copy
        grad_scales = [node_grads.sum(0) for node_grads in torch.split(grad_scale, sizes)]
        grad_shifts = [node_grads.sum(0) for node_grads in torch.split(grad_shift, sizes)]
        return None, None, None, *grads, *grad_scales, *grad_shifts


def _pool(images: Sequence[Tensor], kernel: int) -> tuple[Tensor, Tensor]:
    """Max-pools several batches into one tensor, with the positions of the maxima."""
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
    """Undoes `_rows` for images of the shape of `like`."""
    size, channels, height, width = like.shape
    return rows.view(size, height, width, channels).permute(0, 3, 1, 2)
