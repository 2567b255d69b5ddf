"""Batch normalisation whose running statistics are kept for each task by itself."""

from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.sharing.batch_norm import TaskBatchNorm

__all__ = ["PerTaskBatchNorm", "keep_statistics_per_task"]


class PerTaskBatchNorm(TaskBatchNorm):
    """`TaskBatchNorm` with running statistics of every task; scale and shift belong to the copy, as ever.

    In training each task's batch is normalised with its own statistics. Common running statistics are a mixture of the
    tasks that use a copy, so that in eval mode a task's network sees other activations than it was trained with. A
    task's network runs alone, so that statistics of its own cost a prediction nothing. The paper does not have this.

    Once a step, the statistics of each task that has visited the copy move by the momentum towards the mean over its
    visits; after n moves by at least 1 / (n + 1), so that nothing is left of the initial zeros and ones. Those of other
    tasks stay.

    Attributes:
        running_mean: `(T, C)`.
        running_var: `(T, C)`.
        num_batches_tracked: `(T,)` int64, how often each has moved.
    """

    def keep(self, num_tasks: int) -> None:
        """Gives each task the statistics that all tasks have had."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.running_mean = self.running_mean.repeat(num_tasks, 1)
        self.running_var = self.running_var.repeat(num_tasks, 1)
        self.num_batches_tracked = self.num_batches_tracked.repeat(num_tasks)
        # What each pass of the step has seen, by the number of its first visit: `(T, 2 C + 1)`, the sums of means and
        # variances over each task's visits, and their numbers.
        self._seen: dict[int, Tensor] = {}

    def forward(self, input: Tensor) -> Tensor:
        """Normalises `(n * B, C, ...)`.

        Raises:
            ValueError: In eval mode, if nobody has said which tasks the images belong to.
        """
        if self.training:
            if self.visits is not None:
                return super().forward(input)
            return nn.functional.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)
        slope, shift = self.affine_by_node()
        images = len(input) // len(slope)
        shape = (len(input), self.num_features, *[1] * (input.dim() - 2))
        slope, shift = (values.repeat_interleave(images, 0).view(shape) for values in (slope, shift))
        return torch.addcmul(shift, input.to(slope.dtype), slope).to(input.dtype)

    def affine_by_node(self) -> tuple[Tensor, Tensor]:
        """Returns what eval mode multiplies each node with and what it adds then, `(n, C)` both."""
        assert self.running_mean is not None
        assert self.running_var is not None
        if self.visits is None or self.visits.tasks is None:
            raise ValueError(
                "Running statistics are kept for each task, so that this module alone does not know which to take. "
                "Call the method's forward(images, task), or take task_network(task)."
            )
        tasks = self.visits.tasks.to(self.running_mean.device, non_blocking=True)
        slope = (self.running_var[tasks] + self.eps).rsqrt()
        if self.weight is not None:
            slope = slope * self.weight
        shift = -self.running_mean[tasks] * slope
        return slope, shift if self.bias is None else shift + self.bias

    @torch.no_grad()
    def collect(self, mean: Tensor, inverse_std: Tensor, count: int) -> None:
        """Adds up the statistics of a pass by task; see `TaskBatchNorm.collect`."""
        visits = self.visits
        if visits is None:
            return
        assert visits.tasks is not None
        assert self.running_mean is not None
        visited = torch.zeros(len(self.running_mean), visits.num_nodes, dtype=torch.float64)
        tasks = visits.tasks[visits.nodes]
        visited.index_put_((tasks, visits.nodes), torch.ones(len(tasks), dtype=torch.float64), accumulate=True)
        visited = visited.to(mean, non_blocking=True)
        variance = (inverse_std**-2 - self.eps) * (count / max(count - 1, 1))
        with torch.autocast(mean.device.type, enabled=False):  # a product of matrices, which would be rounded
            seen = [visited @ mean, visited @ variance, visited.sum(1, keepdim=True)]
        first, found = int(visits.numbers[0]), torch.cat(seen, 1)
        self._seen[first] = found + self._seen[first] if self.runs_again(visits) else found

    @torch.no_grad()
    def commit(self) -> None:
        """Moves the running statistics by what the step's training passes have seen."""
        if not self._seen:
            return
        seen = torch.stack(list(self._seen.values())).sum(0)
        self._seen = {}
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        number = seen[:, -1:]
        moves = number > 0
        mean, variance = (seen[:, :-1] / number.clamp(min=torch.finfo(seen.dtype).tiny)).chunk(2, 1)
        first = 1 / (self.num_batches_tracked.unsqueeze(1).to(seen.dtype) + 1)
        momentum = (first if self.momentum is None else first.clamp(min=self.momentum)) * moves
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum.to(self.running_mean.dtype))
        self.running_var.lerp_(variance.to(self.running_var.dtype), momentum.to(self.running_var.dtype))
        self.num_batches_tracked.add_(moves.squeeze(1))

    def pending(self, weight: float) -> Tensor:
        """Returns what would be committed as a vector `(T * (2 C + 1) + 2,)`; see `TaskBatchNorm.pending`."""
        assert self.running_mean is not None
        dtype = torch.promote_types(self.running_mean.dtype, torch.float32)
        summed = self.running_mean.new_zeros(self._seen_shape().numel() + 2, dtype=dtype)
        for seen in self._seen.values():
            summed[:-2] += seen.flatten() * weight
            summed[-1] = 1
        return summed

    def replace_pending(self, statistics: Tensor, kept: float, processes: float) -> None:
        """Takes a sum over processes in place of what this one has seen; see `TaskBatchNorm.replace_pending`."""
        self._seen = {0: statistics.view(self._seen_shape())} if processes > 0 else {}

    def discard(self) -> None:
        """Forgets what has been seen since the last commit."""
        self._seen = {}

    def _seen_shape(self) -> torch.Size:
        assert self.running_mean is not None
        return torch.Size((len(self.running_mean), 2 * self.num_features + 1))

    def of_task(self, task: int) -> nn.Module:
        """Returns torch's batch normalisation with one task's statistics; parameters are the same tensors."""
        plain: Any = self.plain_type(self.num_features, self.eps, self.momentum, self.affine)
        plain._parameters = self._parameters
        for name, values in self._buffers.items():
            plain._buffers[name] = None if values is None else values[task].clone()
        return plain.train(self.training)  # type: ignore[no-any-return]


def keep_statistics_per_task(module: nn.Module, num_tasks: int) -> None:
    """Makes the batch normalisations in a module, if they have running statistics, keep those of each task."""
    for part in module.modules():
        if type(part) is TaskBatchNorm and part.track_running_stats:
            changed: Any = part
            changed.__class__ = PerTaskBatchNorm  # keeps parameters, hooks and whoever refers to it
            changed.keep(num_tasks)
