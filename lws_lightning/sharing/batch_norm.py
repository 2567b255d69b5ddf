"""Batch normalisation with the statistics of one task's batch, for many tasks' batches in one pass."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lws_lightning.sharing.nodes import NodeModule, Nodes, modules_of
from lws_lightning.sharing.replacing import replace_modules

__all__ = ["RunningStats", "TaskBatchNorm", "convert_batch_norms", "norms_of", "restore_batch_norms"]

RunningStats = Literal["mean", "per_visit", "per_task"]
"""How running statistics follow the visits of a step: see `TaskBatchNorm`."""


class TaskBatchNorm(nn.modules.batchnorm._BatchNorm, NodeModule):
    """Batch normalisation as if each task's network ran alone.

    In training, the B images of each node (one task's batch behind one sequence of copies) are normalised with their
    own statistics. The running statistics do not move in the forward pass but in `commit`, once a step, after it is
    known that the step is good. Until then all passes of the step add up in one tensor. `running_stats` says how the
    statistics move:

    - `mean`: by the momentum towards the mean over the step's visits, whatever the order of tasks. A copy without a
      visit keeps its statistics.
    - `per_visit`: as the authors' program does it, by the momentum at every visit, one after the other
      (assignments outside, tasks inside), here in closed form. With many tasks the last ones then dominate.
    - `per_task`: those of each task that has visited the copy, as with `mean`, by the momentum towards the mean over
      its visits; after n moves by at least 1 / (n + 1), so that nothing is left of the initial zeros and ones. Common
      running statistics are a mixture of the tasks that use a copy, so that in eval mode a task's network sees other
      activations than it was trained with. A task's network runs alone, so that statistics of its own cost a
      prediction nothing. Scale and shift belong to the copy, as ever.

    The paper does not say how batch normalisation treats the tasks. In eval mode (but for `per_task`), and outside of a
    population's pass, this is torch's own batch normalisation.

    Attributes:
        running_stats: See above; `per_task` is chosen by `keep_statistics_per_task`.
        running_mean: `(C,)`, with `per_task` `(T, C)`.
        running_var: `(C,)`, with `per_task` `(T, C)`.
        num_batches_tracked: How often they have moved, int64; with `per_task` `(T,)`.
    """

    running_stats: RunningStats = "mean"
    torch_type: type[nn.Module] = nn.BatchNorm2d
    # What the step has seen: `(rows, 2 C + 1)`, sums over the visits of their weight times mean and variance, and of
    # their weight, by row of the running statistics (one, or one for each task).
    _pending: Tensor | None = None
    _of_pass: Tensor | None = None  # the current pass's part of it

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"Batch normalisation expects at least two dimensions, not {input.dim()}.")

    def keep_statistics_per_task(self, num_tasks: int) -> None:
        """Gives each task running statistics of its own, which start as those that all tasks have had."""
        self.running_stats = "per_task"
        for name, values in self._buffers.items():
            if values is not None:
                self._buffers[name] = values.repeat(num_tasks, *[1] * values.dim())

    def forward(self, input: Tensor) -> Tensor:
        """Normalises `(n * B, C, ...)`.

        Raises:
            ValueError: If a channel has one value only; in eval mode with statistics of each task, if nobody has said
                which tasks the images belong to.
        """
        if self.training or self.running_mean is None:
            if self.nodes is not None:
                return self._normalise_nodes(input, self.nodes.size)
            if self.running_stats == "per_task":
                return nn.functional.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)
        elif self.running_stats == "per_task":
            slope, shift = self.affine_by_node()
            images = len(input) // len(slope)
            shape = (len(input), self.num_features, *[1] * (input.dim() - 2))
            slope, shift = (values.repeat_interleave(images, 0).view(shape) for values in (slope, shift))
            return torch.addcmul(shift, input.to(slope.dtype), slope).to(input.dtype)
        return super().forward(input)

    def _normalise_nodes(self, input: Tensor, num_nodes: int) -> Tensor:
        if input.numel() == num_nodes * input.shape[1]:
            raise ValueError(
                "Batch normalisation in training needs more than one value of each channel. Take larger batches."
            )
        output, mean, inverse_std = _NodeBatchNorm.apply(input, self.weight, self.bias, num_nodes, self.eps)
        self.collect(mean, inverse_std, input.numel() // mean.numel())
        return output  # type: ignore[no-any-return]

    def affine_by_node(self) -> tuple[Tensor, Tensor]:
        """Returns what eval mode with statistics of each task multiplies a node with and adds then, `(n, C)` both."""
        assert self.running_mean is not None
        assert self.running_var is not None
        if self.nodes is None:
            raise ValueError(
                "Running statistics are kept for each task, so that this module alone does not know which to take. "
                "Call the method's forward(images, task), or take task_network(task)."
            )
        tasks = self.nodes.tasks.to(self.running_mean.device, non_blocking=True)
        slope = (self.running_var[tasks] + self.eps).rsqrt()
        if self.weight is not None:
            slope = slope * self.weight
        shift = -self.running_mean[tasks] * slope
        return slope, shift if self.bias is None else shift + self.bias

    @torch.no_grad()
    def collect(self, mean: Tensor, inverse_std: Tensor, count: int) -> None:
        """Adds the statistics of a pass to what waits for `commit`.

        Args:
            mean: `(n, C)`, of each node.
            inverse_std: `(n, C)`, one over the root of biased variance plus eps.
            count: Over how many values of a channel each was computed.
        """
        if self.nodes is None or not self.track_running_stats:
            return
        weights, kept = self._weights(self.nodes)
        variance = (inverse_std**-2 - self.eps) * (count / max(count - 1, 1))
        values = torch.cat([mean, variance, torch.ones_like(mean[:, :1])], 1).to(_at_least_float32(mean))
        with torch.autocast(mean.device.type, enabled=False):  # a product of matrices, which would be rounded
            seen = weights.to(values, non_blocking=True) @ values
        if self.runs and self._of_pass is not None:  # in the block's next place: one move after the other
            seen -= (1 - kept) * self._of_pass
            self._of_pass = self._of_pass + seen
        else:
            self._of_pass = seen
        self.runs += 1
        self._pending = seen if self._pending is None else self._pending + seen

    def _weights(self, nodes: Nodes) -> tuple[Tensor, float]:
        """Returns the weight of each node `(rows, n)` (float64) in each row, and that of the row as it has been."""
        if self.running_stats == "per_task":  # visits are counted, and `commit` divides by their number
            assert self.running_mean is not None
            weights = torch.zeros(len(self.running_mean), nodes.size, dtype=torch.float64)
            ones = torch.ones(len(nodes.visits), dtype=torch.float64)
            return weights.index_put_((nodes.tasks[nodes.visits], nodes.visits), ones, accumulate=True), 1.0
        momentum = self.momentum
        if momentum is None:
            assert self.num_batches_tracked is not None
            momentum = 1 / (int(self.num_batches_tracked) + 1)
        if self.running_stats == "mean":
            each = torch.full((len(nodes.visits),), momentum / nodes.total, dtype=torch.float64)
            kept = 1 - momentum
        else:
            each = momentum * (1 - momentum) ** (nodes.total - 1 - nodes.numbers).double()
            kept = (1 - momentum) ** nodes.total
        weights = torch.zeros(nodes.size, dtype=torch.float64).index_add_(0, nodes.visits, each)
        return weights.unsqueeze(0), kept

    @torch.no_grad()
    def commit(self) -> None:
        """Moves the running statistics by what the step's training passes have seen."""
        if self._pending is None:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        sums, share = torch.split(self._pending, [2 * self.num_features, 1], 1)
        moves = share > 0
        if self.running_stats == "per_task":
            first = 1 / (self.num_batches_tracked.unsqueeze(1).to(share.dtype) + 1)
            momentum = (first if self.momentum is None else first.clamp(min=self.momentum)) * moves
            sums, share = sums * (momentum / share.clamp(min=torch.finfo(share.dtype).tiny)), momentum
        for buffer, added in zip((self.running_mean, self.running_var), sums.chunk(2, 1), strict=True):
            buffer.view(len(sums), -1).mul_(1 - share).add_(added)
        self.num_batches_tracked.view(-1).add_(moves.squeeze(1))
        self._pending = None

    def pending(self, weight: float) -> Tensor:
        """Returns what would be committed, in a form that can be added up over processes.

        Args:
            weight: By what this process's statistics count in the sum.

        Returns:
            `(rows, 2 C + 1)`; zeros where this process has seen nothing.
        """
        if self._pending is not None:
            return self._pending * weight
        assert self.running_mean is not None
        rows = self.running_mean.view(-1, self.num_features)
        return rows.new_zeros(len(rows), 2 * self.num_features + 1, dtype=_at_least_float32(rows))

    def replace_pending(self, summed: Tensor) -> None:
        """Takes a sum of what `pending` returned in place of what this process has seen."""
        self._pending = summed

    def discard(self) -> None:
        """Forgets what has been seen since the last commit."""
        self._pending = None

    def of_task(self, task: int) -> nn.Module:
        """Returns torch's batch normalisation with the same parameters, and the buffers that a task's network has."""
        plain: nn.Module = _like(self, self.torch_type)
        if self.running_stats == "per_task":
            plain._buffers = {
                name: values[task].clone() for name, values in self._buffers.items() if values is not None
            }
        return plain


def norms_of(module: nn.Module) -> list[TaskBatchNorm]:
    """Returns the batch normalisations within a module."""
    return [part for part in modules_of(module) if isinstance(part, TaskBatchNorm)]


def convert_batch_norms(module: nn.Module) -> nn.Module:
    """Replaces torch's batch normalisations in a module by `TaskBatchNorm`, keeping parameters and buffers.

    Raises:
        ValueError: If a batch normalisation is of another kind, which would mix the tasks' statistics.
    """
    return replace_modules(module, lambda part, _: _converted(part))


def _converted(module: nn.Module) -> nn.Module:
    if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        converted: TaskBatchNorm = _like(module, TaskBatchNorm)
        converted.torch_type = type(module)
        return converted
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, TaskBatchNorm):
        raise ValueError(
            f"{type(module).__name__} would normalise the images of several tasks together. Use nn.BatchNorm1d, 2d or "
            "3d, whose statistics are kept apart for each task, or a normalisation of single images."
        )
    return module


def restore_batch_norms(module: nn.Module, task: int) -> nn.Module:
    """Undoes `convert_batch_norms`, keeping parameters and the buffers of one task."""
    return replace_modules(module, lambda part, _: part.of_task(task) if isinstance(part, TaskBatchNorm) else part)


def _like(norm: Any, kind: Any) -> Any:
    made = kind(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    made._parameters, made._buffers = norm._parameters, norm._buffers
    return made.train(norm.training)


def _at_least_float32(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


class _NodeBatchNorm(torch.autograd.Function):
    """Torch's batch normalisation kernel on each node's slice, written into one tensor."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, num_nodes: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        output = torch.empty_like(input)
        statistics_dtype = weight.dtype if weight is not None else input.dtype
        mean = input.new_empty(num_nodes, input.shape[1], dtype=statistics_dtype)
        inverse_std = torch.empty_like(mean)
        for images, out, m, s in zip(input.chunk(num_nodes), output.chunk(num_nodes), mean, inverse_std, strict=True):
            torch.native_batch_norm(images, weight, bias, None, None, True, 0.0, eps, out=(out, m, s))
        ctx.save_for_backward(input, weight, mean, inverse_std)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, inverse_std)
        return output, mean, inverse_std

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, mean, inverse_std = ctx.saved_tensors
        num_nodes = len(mean)
        grad_output = grad_output.contiguous(memory_format=_memory_format(input))
        grad_input = torch.empty_like(input)
        grad_weight, grad_bias = torch.empty_like(mean), torch.empty_like(mean)
        for images, upstream, m, s, *out in zip(
            input.chunk(num_nodes),
            grad_output.chunk(num_nodes),
            mean,
            inverse_std,
            grad_input.chunk(num_nodes),
            grad_weight,
            grad_bias,
            strict=True,
        ):
            torch.ops.aten.native_batch_norm_backward.out(
                upstream, images, weight, None, None, m, s, True, ctx.eps, [True, True, True],
                out0=out[0], out1=out[1], out2=out[2],
            )  # fmt: skip
        if weight is None:
            return grad_input, None, None, None, None
        return grad_input, grad_weight.sum(0), grad_bias.sum(0), None, None


def _memory_format(tensor: Tensor) -> torch.memory_format:
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format
