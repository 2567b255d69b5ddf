"""The weight update: gradients of the mean loss over a population and the tasks, checks, one step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.batches import FeatureBatch, TaskBatch
from lws_lightning.randomness import seed_for
from lws_lightning.sharing import PopulationPass, TaskNetworks
from lws_lightning.training.averaging import decay_at, update_average
from lws_lightning.training.engine import Engine
from lws_lightning.training.guard import NonFiniteError, non_finite_gradient_message, non_finite_loss_message
from lws_lightning.training.objective import Objective
from lws_lightning.training.optimization import gradient_norm, zero_gradients
from lws_lightning.training.ranks import Ranks
from lws_lightning.training.stopping import EarlyStopping

__all__ = ["Observer", "WeightUpdate", "to_inputs"]

Observer = Callable[[Sequence[Tensor], Tensor, range], None]
"""Called with a pass's logits (`(S, B, classes)` for each task), labels, and the positions of its tasks."""


class WeightUpdate:
    """Computes the losses of populations, and updates the weights by the gradient of their mean.

    A training step calls `gradients`, which changes no checkpointed state, and then `apply`.

    Args:
        network: The networks of T tasks.
        objective: The training objective.
        engine: Runs backward passes and optimizer steps.
        task_names: Names of the T tasks, for messages.
        seed: For the masks of random layers.
        clip_grad_norm: Maximum norm of the gradient of all weights together; None: no clipping.
        max_images_per_pass: See `MultiTaskMethod`; None: one pass.
        average: Networks that hold the moving average of the weights; None: no averaging.
        ema_decay: The decay of the average.
        stopping: Early stopping of tasks under a fixed assignment; None: no early stopping.
        penalty: Returns a scalar to minimise besides the objective, or None.
    """

    def __init__(
        self,
        network: TaskNetworks,
        objective: Objective,
        engine: Engine,
        task_names: Sequence[str],
        seed: int = 0,
        *,
        clip_grad_norm: float | None = None,
        max_images_per_pass: int | None = None,
        average: TaskNetworks | None = None,
        ema_decay: float = 0.0,
        stopping: EarlyStopping | None = None,
        penalty: Callable[[], Tensor | None] | None = None,
    ) -> None:
        self.network, self.objective, self.engine = network, objective, engine
        self.task_names, self.seed = list(task_names), seed
        self.clip_grad_norm = clip_grad_norm
        self.max_images_per_pass = max_images_per_pass
        self.stopping = stopping
        self._average, self._ema_decay = average, ema_decay
        self._penalty = penalty
        self._last: tuple[list[int], Tensor] | None = None

    @property
    def step(self) -> int:
        """The number of completed steps."""
        return self.engine.steps

    @property
    def ranks(self) -> Ranks:
        """This process's rank."""
        return self.engine.ranks

    def parameters(self) -> list[nn.Parameter]:
        """Returns the trained parameters: the weights, then those of the objective."""
        weights = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        return [*weights, *self.objective.parameters()]

    def tasks_in_training(self) -> list[int]:
        """Returns the tasks that have not been stopped, ascending."""
        return list(range(len(self.task_names))) if self.stopping is None else self.stopping.tasks_in_training()

    def evaluate(self, batch: TaskBatch | FeatureBatch, population: Tensor) -> Tensor:
        """Computes the losses of a population in eval mode.

        Args:
            batch: B images of each of the T tasks.
            population: `(S, L, T)` int64.

        Returns:
            `(S, T)` on the CPU.

        Raises:
            NonFiniteError: If a loss is not finite.
        """
        tasks = range(len(self.task_names))
        with torch.no_grad(), self.network.evaluating():
            losses = self.ranks.weighted_sum(self.losses(batch, population, tasks)).cpu()
        self._refuse_non_finite(losses, tasks, "NES")
        return losses

    def gradients(
        self,
        batch: TaskBatch | FeatureBatch,
        population: Tensor,
        *,
        observe: Observer | None = None,
        rescale: Callable[[], None] | None = None,
    ) -> Tensor:
        """Computes the gradient of the mean loss over a population and the tasks (Algorithm 1, StepSGD).

        Checkpointed state is unchanged when this returns or raises.

        Args:
            batch: B images of each of the T tasks; those of stopped tasks are ignored.
            population: `(S, L, T)` int64.
            observe: Called with the logits of every pass.
            rescale: Rescales the gradients of the mean loss in place.

        Returns:
            Losses `(S, T')` of the T' tasks in training, detached.

        Raises:
            NonFiniteError: If a loss or gradient is not finite.
        """
        tasks, full_population = self.tasks_in_training(), population
        if len(tasks) < len(self.task_names):
            batch = batch._replace(images=batch.images[tasks], labels=batch.labels[tasks])
            population = population[:, :, tasks]
        parameters, ranks = self.parameters(), self.ranks
        zero_gradients(parameters)
        self.network.discard_running_stats()
        mask_stream = ranks.rank if ranks.distribute == "examples" else 0
        self.network.seed_random_layers(partial(seed_for, self.seed, "masks", self.step, mask_stream))
        with self.engine.local_backward():
            losses = self.losses(batch, population, tasks, backward=True, observe=observe)
            penalty = None if self._penalty is None else self._penalty()
            if penalty is not None and ranks.rank == 0:  # once in the sum over ranks
                self.engine.backward(penalty)
            if not ranks.tasks(len(tasks)):  # a gradient scaler fails if it has scaled nothing
                self.engine.backward(parameters[0].sum() * 0)
        if ranks.is_distributed:
            self._sum_over_ranks(ranks, parameters, losses)
        # All checks from here on see the same values on all ranks, so that either all of them raise or none.
        self._refuse_non_finite(losses, tasks, "SGD")
        scaled = self.engine.unscale()
        if rescale is not None:
            rescale()
        if self.stopping is not None:
            self.stopping.drop_gradients(self.network, full_population[0])
        norm = gradient_norm(parameters)
        if not scaled and not bool(torch.isfinite(norm)):
            raise NonFiniteError(
                non_finite_gradient_message(self.network, population, tasks, self.task_names, self.step)
            )
        if self.clip_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.clip_grad_norm, norm)
        self._last = tasks, losses
        return losses

    def task_losses(self) -> dict[str, float]:
        """Returns the mean loss over the population of the last step by task; waits for the device.

        Stopped tasks are left out, and before the first step there are none.
        """
        if self._last is None:
            return {}
        tasks, losses = self._last
        return dict(zip((self.task_names[task] for task in tasks), losses.mean(0).tolist(), strict=True))

    def apply(self) -> None:
        """Updates running statistics, weights and their average from the last `gradients`, as one transaction."""
        with self.engine.uninterrupted():
            self.network.commit_running_stats()
            self.engine.step()
            if self._average is not None:
                update_average(self._average, self.network, decay_at(self.step, self._ema_decay))

    @torch.no_grad()
    def duplicate(self, source: str, target: str) -> None:
        """Makes a block equal to another: weights and running statistics, their average, and the optimizer's state.

        Args:
            source: Name of the block in the network.
            target: Name of the block that is overwritten.
        """
        for network in (self.network, self._average):
            if network is not None:
                network.get_submodule(target).load_state_dict(network.get_submodule(source).state_dict())
        parameters = [list(self.network.get_submodule(name).parameters()) for name in (source, target)]
        for of_source, of_target in zip(*parameters, strict=True):
            self.engine.copy_state(of_source, of_target)

    def skip(self) -> None:
        """Makes a step that changes nothing."""
        for parameter in self.parameters():
            parameter.grad = None
        self.apply()

    def losses(
        self,
        batch: TaskBatch | FeatureBatch,
        population: Tensor,
        tasks: Sequence[int] | None = None,
        *,
        backward: bool = False,
        observe: Observer | None = None,
    ) -> Tensor:
        """Computes the losses of a population in passes of at most `max_images_per_pass`.

        With multiple ranks, each computes its share: the losses on its own images, or zeros for the other ranks' tasks.
        The same holds for gradients: their sum over ranks is the gradient of the mean loss.

        Args:
            batch: B images of each of T' tasks.
            population: `(S, L, T')` int64.
            tasks: The T' tasks; None: all.
            backward: Whether to accumulate the gradient of their mean. The activations of a pass are freed before the
                next pass.
            observe: Called with the logits of every pass.

        Returns:
            `(S, T')`, detached.

        Raises:
            ValueError: If `max_images_per_pass` is less than B.
        """
        tasks = range(len(self.task_names)) if tasks is None else tasks
        ranks, num_tasks = self.ranks, len(tasks)
        own = ranks.tasks(num_tasks)
        images = self._inputs_of(batch.images, own)
        passes = self.network.passes(population, images.shape[1], self.max_images_per_pass)
        whole = len(passes) == 1 and len(own) == num_tasks
        size = len(population)
        dtype = torch.promote_types(images.dtype, torch.float32)
        losses = torch.zeros(size, num_tasks, dtype=dtype, device=images.device)
        for population_pass in passes if whole else ranks.passes_of_rank(passes, num_tasks):
            labels = batch.labels[population_pass.tasks.start : population_pass.tasks.stop]
            logits = self._run(images, population, tasks, None if whole else population_pass, batch.layer)
            task_numbers = [tasks[position] for position in population_pass.tasks]
            pass_losses = self.objective.losses(logits, labels, task_numbers)
            if observe is not None:
                observe(logits, labels, population_pass.tasks)
            if backward:
                self._backward(pass_losses, task_numbers, size * num_tasks, whole)
            if whole:
                return pass_losses.detach()
            rows, columns = list(population_pass.rows), population_pass.tasks
            losses[rows, columns.start : columns.stop] = pass_losses.detach()
        return losses

    def _backward(self, losses: Tensor, tasks: Sequence[int], count: int, whole: bool) -> None:
        """Accumulates the gradient of a pass's contribution to the mean over `count` losses.

        With stopped tasks, the mean over the others is scaled to the sum over T, so that it does not depend on which
        tasks have stopped.
        """
        minimised = self.objective(losses, tasks)
        in_training = len(self.tasks_in_training()) if self.stopping is not None else len(self.task_names)
        if in_training < len(self.task_names):
            minimised = minimised * (in_training / len(self.task_names))
        share = self.ranks.weight if self.ranks.is_distributed else 1.0
        mean = minimised.mean() * share if whole else minimised.sum() * share / count
        self.engine.backward(mean)

    def _run(
        self,
        images: Tensor,
        population: Tensor,
        tasks: Sequence[int],
        population_pass: PopulationPass | None,
        first_layer: int,
    ) -> list[Tensor]:
        options: dict[str, Any] = {} if len(tasks) == len(self.task_names) else {"tasks": tasks}
        if first_layer:
            options["first_layer"] = first_layer
        return self.network(images, population, population_pass=population_pass, **options)  # type: ignore[no-any-return]

    def _inputs_of(self, images: Tensor, tasks: range) -> Tensor:
        """Returns the networks' inputs for the tasks at the given positions; the values at others are undefined."""
        if len(tasks) == len(images):
            return to_inputs(images, self.network.dtype)
        computed = to_inputs(images[tasks.start : tasks.stop], self.network.dtype)
        inputs = computed.new_empty(images.shape)
        inputs[tasks.start : tasks.stop] = computed
        return inputs

    def _sum_over_ranks(self, ranks: Ranks, parameters: Sequence[nn.Parameter], losses: Tensor) -> None:
        """Replaces gradients, losses and collected batch statistics with their sums over ranks."""
        losses.mul_(ranks.weight)
        norms = list(self.network.norms())
        pending = [norm.pending(ranks.weight) for norm in norms]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self.engine.all_reduce([*gradients, losses, *pending])
        for norm, statistics in zip(norms, pending, strict=True):
            norm.replace_pending(statistics)

    def _refuse_non_finite(self, losses: Tensor, tasks: Sequence[int], phase: str) -> None:
        bad = ~torch.isfinite(losses)
        if not bool(bad.any()):
            return
        columns = zip(tasks, bad.any(0).tolist(), strict=True)
        names = [self.task_names[task] for task, is_bad in columns if is_bad]
        raise NonFiniteError(non_finite_loss_message(names, phase, self.step))


def to_inputs(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Converts images to a network's input: bytes are scaled to [0, 1] (paper, section "Experiments")."""
    inputs = images.to(dtype)
    return inputs.div_(255) if images.dtype == torch.uint8 else inputs
