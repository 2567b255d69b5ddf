"""Batch normalisation that normalises each task's batch separately, for many batches in one pass."""

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

    In training, the B images of each node (one task's batch after one sequence of copies) are normalised with their own
    statistics. The running statistics are not updated in the forward pass but in `commit`, once per step, after the
    step is known to be finite. Until then, all passes of the step accumulate in one tensor. `running_stats` selects the
    update:

    - `mean`: by the momentum towards the mean over the step's visits, regardless of the order of tasks. A copy without
      a visit keeps its statistics.
    - `per_visit`: as in the authors' program, by the momentum at every visit, one after the other (assignments outside,
      tasks inside), here in closed form. With many tasks, the last ones then dominate.
    - `per_task`: as `mean`, but separately for each task that has visited the copy; after n updates by at least
      1 / (n + 1), so that nothing of the initial zeros and ones remains. Shared running statistics are a mixture over
      the tasks that use a copy, so in eval mode a task's network sees different activations than in training. A task's
      network runs alone, so separate statistics do not make predictions more expensive. Scale and shift still belong
      to the copy.

    The paper does not say how batch normalisation treats the tasks. In eval mode (except with `per_task`), and outside
    a population's pass, this is torch's batch normalisation.

    Attributes:
        running_stats: See above; `per_task` is set by `keep_statistics_per_task`.
        running_mean: `(C,)`, with `per_task` `(T, C)`.
        running_var: `(C,)`, with `per_task` `(T, C)`.
        num_batches_tracked: The number of updates, int64; with `per_task` `(T,)`.
    """

    running_stats: RunningStats = "mean"
    torch_type: type[nn.Module] = nn.BatchNorm2d
    # The step's statistics, `(rows, 2 C + 1)`: weighted sums over visits of mean and variance, and the sum of weights,
    # for each row of the running statistics (one, or one per task).
    _pending: Tensor | None = None
    _of_pass: Tensor | None = None  # the contribution of the current pass

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"Batch normalisation expects at least two dimensions, not {input.dim()}.")

    def keep_statistics_per_task(self, num_tasks: int) -> None:
        """Gives each task its own running statistics, initialised with the shared ones."""
        self.running_stats = "per_task"
        for name, values in self._buffers.items():
            if values is not None:
                self._buffers[name] = values.repeat(num_tasks, *[1] * values.dim())

    def forward(self, input: Tensor) -> Tensor:
        """Normalises `(n * B, C, ...)`.

        Raises:
            ValueError: If a channel has only one value in training; or, in eval mode with statistics per task, if the
                tasks of the images are unknown.
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
                "Batch normalisation in training needs more than one value per channel. Use larger batches."
            )
        output, mean, inverse_std = _NodeBatchNorm.apply(input, self.weight, self.bias, num_nodes, self.eps)
        self.collect(mean, inverse_std, input.numel() // mean.numel())
        return output  # type: ignore[no-any-return]

    def affine_by_node(self) -> tuple[Tensor, Tensor]:
        """Returns the slope and shift, `(n, C)` each, of eval mode with statistics per task."""
        assert self.running_mean is not None
        assert self.running_var is not None
        if self.nodes is None:
            raise ValueError(
                "Running statistics are kept per task, and this module alone does not know which task's to use. Call "
                "the method's forward(images, task), or use task_network(task)."
            )
        tasks = self.nodes.tasks.to(self.running_mean.device, non_blocking=True)
        slope = (self.running_var[tasks] + self.eps).rsqrt()
        if self.weight is not None:
            slope = slope * self.weight
        shift = -self.running_mean[tasks] * slope
        return slope, shift if self.bias is None else shift + self.bias

    @torch.no_grad()
    def collect(self, mean: Tensor, inverse_std: Tensor, count: int) -> None:
        """Adds a pass's statistics to those pending for `commit`.

        Args:
            mean: `(n, C)`, the mean of each node.
            inverse_std: `(n, C)`, 1 / sqrt(biased variance + eps).
            count: The number of values per channel in each.
        """
        if self.nodes is None or not self.track_running_stats:
            return
        weights, retained = self._weights(self.nodes)
        variance = (inverse_std**-2 - self.eps) * (count / max(count - 1, 1))
        values = torch.cat([mean, variance, torch.ones_like(mean[:, :1])], 1).to(_at_least_float32(mean))
        with torch.autocast(mean.device.type, enabled=False):  # which would round the matrix product
            seen = weights.to(values, non_blocking=True) @ values
        if self.runs and self._of_pass is not None:  # the block runs again: updates follow one another
            seen -= (1 - retained) * self._of_pass
            self._of_pass = self._of_pass + seen
        else:
            self._of_pass = seen
        self.runs += 1
        self._pending = seen if self._pending is None else self._pending + seen

    def _weights(self, nodes: Nodes) -> tuple[Tensor, float]:
        """Returns the weight of each node in each row, `(rows, n)` float64, and that of the row's previous value."""
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
            visit_weights = torch.full((len(nodes.visits),), momentum / nodes.total, dtype=torch.float64)
            retained = 1 - momentum
        else:
            visit_weights = momentum * (1 - momentum) ** (nodes.total - 1 - nodes.numbers).double()
            retained = (1 - momentum) ** nodes.total
        weights = torch.zeros(nodes.size, dtype=torch.float64).index_add_(0, nodes.visits, visit_weights)
        return weights.unsqueeze(0), retained

    @torch.no_grad()
    def commit(self) -> None:
        """Updates the running statistics with the pending ones of the step's training passes."""
        if self._pending is None:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        sums, share = torch.split(self._pending, [2 * self.num_features, 1], 1)
        updated = share > 0
        if self.running_stats == "per_task":
            first = 1 / (self.num_batches_tracked.unsqueeze(1).to(share.dtype) + 1)
            momentum = (first if self.momentum is None else first.clamp(min=self.momentum)) * updated
            sums, share = sums * (momentum / share.clamp(min=torch.finfo(share.dtype).tiny)), momentum
        for buffer, added in zip((self.running_mean, self.running_var), sums.chunk(2, 1), strict=True):
            buffer.view(len(sums), -1).mul_(1 - share).add_(added)
        self.num_batches_tracked.view(-1).add_(updated.squeeze(1))
        self._pending = None

    def pending(self, weight: float) -> Tensor:
        """Returns the pending statistics in a form that can be summed over ranks.

        Args:
            weight: This rank's weight in the sum.

        Returns:
            `(rows, 2 C + 1)`; zeros if nothing is pending.
        """
        if self._pending is not None:
            return self._pending * weight
        assert self.running_mean is not None
        rows = self.running_mean.view(-1, self.num_features)
        return rows.new_zeros(len(rows), 2 * self.num_features + 1, dtype=_at_least_float32(rows))

    def replace_pending(self, summed: Tensor) -> None:
        """Replaces the pending statistics with the sum of `pending` over ranks."""
        self._pending = summed

    def discard(self) -> None:
        """Discards what is pending since the last commit."""
        self._pending = None

    def of_task(self, task: int) -> nn.Module:
        """Returns torch's batch normalisation with the same parameters and one task's buffers."""
        norm: nn.Module = _like(self, self.torch_type)
        if self.running_stats == "per_task":
            norm._buffers = {name: values[task].clone() for name, values in self._buffers.items() if values is not None}
        return norm


def norms_of(module: nn.Module) -> list[TaskBatchNorm]:
    """Returns the batch normalisations within a module."""
    return [part for part in modules_of(module) if isinstance(part, TaskBatchNorm)]


def convert_batch_norms(module: nn.Module) -> nn.Module:
    """Replaces torch's batch normalisations in a module by `TaskBatchNorm`, keeping parameters and buffers.

    Raises:
        ValueError: For other types of batch normalisation, which would mix the tasks' statistics.
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
            "3d, whose statistics are kept separate for each task, or a normalisation of single images."
        )
    return module


def restore_batch_norms(module: nn.Module, task: int) -> nn.Module:
    """Undoes `convert_batch_norms`, keeping parameters and the buffers of one task."""
    return replace_modules(module, lambda part, _: part.of_task(task) if isinstance(part, TaskBatchNorm) else part)


def _like(norm: Any, cls: Any) -> Any:
    result = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    result._parameters, result._buffers = norm._parameters, norm._buffers
    return result.train(norm.training)


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
