"""Batch normalisation with the statistics of one task's batch, for many tasks' batches in one pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lws_lightning.sharing.replacing import replace_modules

__all__ = [
    "RunningStats",
    "TaskBatchNorm",
    "Visits",
    "convert_batch_norms",
    "modules_of",
    "norms_of",
    "restore_batch_norms",
    "visiting",
]

RunningStats = Literal["mean", "per_visit", "per_task"]
"""How running statistics follow the visits of a step: see `TaskBatchNorm`, and `PerTaskBatchNorm` for `per_task`."""


@dataclass(frozen=True)
class Visits:
    """Which nodes a copy computes and in which order a plain loop would visit them.

    Attributes:
        num_nodes: n; the copy's input holds n times B images, node by node.
        nodes: `(V,)` int64, the node of each visit.
        numbers: `(V,)` int64, where each visit stands among the copy's visits of the step, counted from 0.
        total: How many visits of the copy the step has; more than V if it takes several passes.
        tasks: `(n,)` int64, whose images each node holds; None where nobody asks.
    """

    num_nodes: int
    nodes: Tensor
    numbers: Tensor
    total: int
    tasks: Tensor | None = None

    def weights(self, momentum: float, running_stats: RunningStats) -> tuple[Tensor, float]:
        """Returns each node's weight `(n,)` (float64) in the new running statistics, and that of the old ones."""
        if running_stats == "mean":
            each = torch.full((len(self.nodes),), momentum / self.total, dtype=torch.float64)
            kept = 1 - momentum
        else:
            later_visits = (self.total - 1 - self.numbers).double()
            each = momentum * (1 - momentum) ** later_visits
            kept = (1 - momentum) ** self.total
        return torch.zeros(self.num_nodes, dtype=torch.float64).index_add_(0, self.nodes, each), kept


class TaskBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation as if each task's network ran alone.

    In training, the B images of each node (one task's batch under one prefix of an assignment) are normalised with
    their own statistics. The running statistics do not move in the forward pass but in `commit`, once a step, after
    it is known that the step is good:

    - `mean`: by the momentum towards the mean over the step's visits, whatever the order of tasks. A copy without a
      visit keeps its statistics.
    - `per_visit`: as the authors' program does it, by the momentum at every visit, one after the other
      (assignments outside, tasks inside), here in closed form. With many tasks the last ones then dominate.

    The paper does not say how batch normalisation treats the tasks. In eval mode (with running statistics), and outside
    a population's pass, this is torch's own batch normalisation.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plain_type: type[nn.Module] = nn.BatchNorm2d
        self.visits: Visits | None = None
        self.running_stats: RunningStats = "mean"
        # What each pass of the step adds, by the number of its first visit, which no other pass has.
        self._pending: dict[int, tuple[Tensor, Tensor, float]] = {}
        self._collected: Visits | None = None  # of the pass that was last collected

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"Batch normalisation expects at least two dimensions, not {input.dim()}.")

    def forward(self, input: Tensor) -> Tensor:
        """Normalises `(n * B, C, ...)`."""
        if self.visits is None or not (self.training or self.running_mean is None):
            return super().forward(input)
        if input.numel() == self.visits.num_nodes * input.shape[1]:
            raise ValueError(
                "Batch normalisation in training needs more than one value of each channel. Take larger batches."
            )
        output, mean, inverse_std = _NodeBatchNorm.apply(input, self.weight, self.bias, self.visits.num_nodes, self.eps)
        self.collect(mean, inverse_std, input.numel() // mean.numel())
        return output  # type: ignore[no-any-return]

    @torch.no_grad()
    def collect(self, mean: Tensor, inverse_std: Tensor, count: int) -> None:
        """Keeps the statistics of a pass for `commit`.

        Args:
            mean: `(n, C)`, of each node.
            inverse_std: `(n, C)`, one over the root of biased variance plus eps.
            count: Over how many values of a channel each was computed.
        """
        visits = self.visits
        if visits is None or not self.track_running_stats:
            return
        assert self.num_batches_tracked is not None
        momentum = self.momentum
        if momentum is None:
            momentum = 1 / (int(self.num_batches_tracked) + 1)
        weights, kept = visits.weights(momentum, self.running_stats)
        weights = weights.to(mean, non_blocking=True)
        variance = (inverse_std**-2 - self.eps) * (count / max(count - 1, 1))
        with torch.autocast(mean.device.type, enabled=False):  # a product of matrices, which would be rounded
            new_mean, new_variance = weights @ mean, weights @ variance
        first = int(visits.numbers[0])
        if self.runs_again(visits):  # one move after the other
            old_mean, old_variance, old_kept = self._pending[first]
            new_mean, new_variance = new_mean + kept * old_mean, new_variance + kept * old_variance
            kept = kept * old_kept
        self._pending[first] = (new_mean, new_variance, kept)

    def runs_again(self, visits: Visits) -> bool:
        """Says whether the module runs for a second time in a pass, because its block has it in two places."""
        again = self._collected is visits
        self._collected = visits
        return again

    @torch.no_grad()
    def commit(self) -> None:
        """Moves the running statistics by what the step's training passes have seen."""
        if not self._pending:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        _, _, kept = next(iter(self._pending.values()))
        self.running_mean.mul_(kept)
        self.running_var.mul_(kept)
        for mean, variance, _ in self._pending.values():
            self.running_mean.add_(mean)
            self.running_var.add_(variance)
        self.num_batches_tracked.add_(1)
        self._pending = {}

    def pending(self, weight: float) -> Tensor:
        """Returns what would be committed, in a form that can be added up over processes.

        Args:
            weight: By what this process's statistics count in the sum.

        Returns:
            `(2 C + 2,)`: what is added to mean and variance, times `weight`; the share of the old statistics that is
            kept; 1. Zeros where this process has seen nothing.
        """
        reference = self.running_mean if self.weight is None else self.weight
        summed = torch.zeros(2 * self.num_features + 2, device=None if reference is None else reference.device)
        if reference is not None:
            summed = summed.to(torch.promote_types(reference.dtype, torch.float32))
        for mean, variance, kept in self._pending.values():
            summed[:-2] += torch.cat([mean, variance]) * weight
            summed[-2], summed[-1] = kept, 1
        return summed

    def replace_pending(self, statistics: Tensor, kept: float, processes: float) -> None:
        """Takes a sum of what `pending` returned in place of what this process has seen.

        Args:
            statistics: All but the last two entries.
            kept: The last but one.
            processes: The last.
        """
        self._pending = {}
        if processes > 0:
            mean, variance = statistics.chunk(2)
            self._pending[0] = (mean, variance, kept / processes)

    def discard(self) -> None:
        """Forgets what has been seen since the last commit."""
        self._pending = {}

    def of_task(self, task: int) -> nn.Module:
        """Returns torch's batch normalisation with the same parameters, and the buffers that a task's network has."""
        plain: nn.Module = _like(self, self.plain_type)
        return plain


@contextmanager
def visiting(norms: Sequence[tuple[TaskBatchNorm, Visits]]) -> Iterator[None]:
    """Tells batch normalisations which nodes the input of the enclosed pass consists of."""
    # Not `norm.visits = ...`: what `nn.Module.__setattr__` does for parameters takes longer than all the rest here.
    for norm, visits in norms:
        object.__setattr__(norm, "visits", visits)
    try:
        yield
    finally:
        for norm, _ in norms:
            object.__setattr__(norm, "visits", None)


def modules_of(module: nn.Module) -> list[nn.Module]:
    """Returns a module and all within it, each once and before its children, as `Module.modules` does.

    It makes no names on the way, which several times a step would cost more than the bookkeeping that it is for.
    """
    found: dict[nn.Module, None] = {}
    pending: list[nn.Module | None] = [module]
    while pending:
        part = pending.pop()
        if part is not None and part not in found:
            found[part] = None
            pending.extend(reversed(part._modules.values()))
    return list(found)


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
        converted.plain_type = type(module)
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
