"""The update of the weights: gradients of the mean loss over a population and the tasks, a guard, one step."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from lws_lightning.batches import TaskBatch
from lws_lightning.randomness import seed_for
from lws_lightning.sharing import PopulationPass, TaskNetworks
from lws_lightning.training.averaging import decay_at, update_average
from lws_lightning.training.engine import Engine
from lws_lightning.training.guard import NonFiniteError, describe_gradient, describe_losses
from lws_lightning.training.objective import Objective
from lws_lightning.training.optimization import clear_gradients, total_norm
from lws_lightning.training.ranks import Ranks
from lws_lightning.training.stopping import EarlyStopping

__all__ = ["Observer", "WeightUpdate", "to_inputs"]

Observer = Callable[[Sequence[Tensor], Tensor, range], None]
"""Called with the logits of a pass, for each of its tasks `(S, B, classes)`, their labels, and their positions."""


class WeightUpdate:
    """Computes the losses of populations, and moves the weights by the gradient of their mean.

    A training step calls `gradients`, which changes nothing that a checkpoint holds, and then `apply`.

    Args:
        network: The networks of T tasks.
        objective: What is minimised.
        engine: Makes backward passes and optimizer steps.
        task_names: Of the T tasks, for messages.
        seed: For the masks of random layers.
        clip_grad_norm: Largest norm of the gradient of all weights together; None: no limit.
        max_images_per_pass: See `MultiTaskMethod`; None: one pass.
        average: An average of the weights that follows them; None: there is none.
        ema_decay: How much of itself the average keeps in a step.
        stopping: Which tasks have stopped, where the assignment is fixed; None: all train throughout.
        penalty: Returns what is minimised besides, a scalar, or None.

    Attributes:
        network, objective, engine, seed: As given.
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

    @property
    def step(self) -> int:
        """How many steps have been made."""
        return self.engine.steps

    @property
    def ranks(self) -> Ranks:
        """This process among those of the run."""
        return self.engine.ranks

    def parameters(self) -> list[nn.Parameter]:
        """Returns the parameters that are trained: the weights, then those of the objective."""
        weights = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        return [*weights, *self.objective.parameters()]

    def tasks_in_training(self) -> list[int]:
        """Returns the tasks that have not been stopped, ascending."""
        return list(range(len(self.task_names))) if self.stopping is None else self.stopping.tasks_in_training()

    def evaluate(self, batch: TaskBatch, population: Tensor) -> Tensor:
        """Computes the losses of a population in eval mode.

        Args:
            batch: B images of each of the T tasks.
            population: `(S, L, T)` int64.

        Returns:
            `(S, T)` on the CPU.

        Raises:
            NonFiniteError: If one is not finite.
        """
        tasks = range(len(self.task_names))
        with torch.no_grad(), self.network.evaluating():
            losses = self.ranks.total(self.losses(batch, population, tasks)).cpu()
        self._refuse_non_finite(losses, tasks, "NES")
        return losses

    def gradients(
        self,
        batch: TaskBatch,
        population: Tensor | None,
        *,
        observe: Observer | None = None,
        rescale: Callable[[], None] | None = None,
    ) -> Tensor:
        """Computes the gradient of the mean loss over a population and the tasks (Algorithm 1, StepSGD).

        Nothing that a checkpoint holds has changed when this returns or raises.

        Args:
            batch: B images of each of the T tasks; those of stopped tasks are left out.
            population: `(S, L, T)` int64; None where no assignment describes the sharing, and S is 1.
            observe: Sees the logits of every pass.
            rescale: Changes the gradients in place, where a method wants others than those of the mean loss.

        Returns:
            Losses `(S, T')` of the T' tasks in training, detached.

        Raises:
            NonFiniteError: If a loss or gradient is not finite.
        """
        tasks, of_all_tasks = self.tasks_in_training(), population
        if len(tasks) < len(self.task_names):
            batch = TaskBatch(batch.images[tasks], batch.labels[tasks])
            population = None if population is None else population[:, :, tasks]
        parameters, ranks = self.parameters(), self.ranks
        clear_gradients(parameters)
        self.network.discard_running_stats()
        own_images = ranks.rank if ranks.distribute == "examples" else 0
        self.network.draw_by(partial(seed_for, self.seed, "masks", self.step, own_images))
        with self.engine.local_backward():
            losses = self.losses(batch, population, tasks, backward=True, observe=observe)
            penalty = None if self._penalty is None else self._penalty()
            if penalty is not None and ranks.rank == 0:  # once in the sum over ranks
                self.engine.backward(penalty)
            if not ranks.tasks(len(tasks)):  # a gradient scaler insists on having scaled something
                self.engine.backward(parameters[0].sum() * 0)
        if ranks.is_distributed:
            self._add_up_ranks(ranks, parameters, losses)
        # What is checked from here on is the same on all ranks, so that all of them raise or none.
        self._refuse_non_finite(losses, tasks, "SGD")
        scaled = self.engine.unscale()
        if rescale is not None:
            rescale()
        if self.stopping is not None and of_all_tasks is not None:
            self.stopping.drop_gradients(self.network, of_all_tasks[0])
        norm = total_norm(parameters)
        if not scaled and not bool(torch.isfinite(norm)):
            raise NonFiniteError(describe_gradient(self.network, population, tasks, self.task_names, self.step))
        if self.clip_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.clip_grad_norm, norm)
        return losses

    def apply(self) -> None:
        """Moves running statistics, weights and their average by what `gradients` has found, as a whole."""
        with self.engine.uninterrupted():
            self.network.commit_running_stats()
            self.engine.step()
            if self._average is not None:
                update_average(self._average, self.network, decay_at(self.step, self._ema_decay))

    def skip(self) -> None:
        """Makes a step that changes nothing."""
        for parameter in self.parameters():
            parameter.grad = None
        self.apply()

    def losses(
        self,
        batch: TaskBatch,
        population: Tensor | None,
        tasks: Sequence[int] | None = None,
        *,
        backward: bool = False,
        observe: Observer | None = None,
    ) -> Tensor:
        """Computes the losses of a population in passes of at most `max_images_per_pass`.

        Of several ranks each computes its own part: the losses on its own images, or zeros for the tasks of the others.
        So does the gradient: their sum over ranks is that of the mean loss.

        Args:
            batch: B images of each of T' tasks.
            population: `(S, L, T')` int64, or None.
            tasks: The T' tasks; None: all.
            backward: Whether to add the gradient of their mean to the gradients of the weights. The activations of a
                pass are freed before the next one.
            observe: Sees the logits of every pass.

        Returns:
            `(S, T')`, detached.

        Raises:
            ValueError: If `max_images_per_pass` is less than B.
        """
        tasks = range(len(self.task_names)) if tasks is None else tasks
        ranks, num_tasks = self.ranks, len(tasks)
        own = ranks.tasks(num_tasks)
        images = self._own_inputs(batch.images, own)
        passes = self.network.passes(population, images.shape[1], self.max_images_per_pass)
        whole = len(passes) == 1 and len(own) == num_tasks
        size = 1 if population is None else len(population)
        dtype = torch.promote_types(images.dtype, torch.float32)
        losses = torch.zeros(size, num_tasks, dtype=dtype, device=images.device)
        for part in passes if whole else ranks.own_passes(passes, num_tasks):
            labels = batch.labels[part.tasks.start : part.tasks.stop]
            logits = self._run(images, population, tasks, None if whole else part)
            numbers = [tasks[position] for position in part.tasks]
            found = self.objective.losses(logits, labels, numbers)
            if observe is not None:
                observe(logits, labels, part.tasks)
            if backward:
                self._backward(found, numbers, size * num_tasks, whole)
            if whole:
                return found.detach()
            losses[list(part.rows), part.tasks.start : part.tasks.stop] = found.detach()
        return losses

    def _backward(self, losses: Tensor, tasks: Sequence[int], count: int, whole: bool) -> None:
        """Adds the gradient of a pass's part of the mean over `count` losses.

        With tasks that have stopped the mean over the others is scaled to the sum over T, whoever has stopped.
        """
        minimised = self.objective(losses, tasks)
        in_training = len(self.tasks_in_training()) if self.stopping is not None else len(self.task_names)
        if in_training < len(self.task_names):
            minimised = minimised * (in_training / len(self.task_names))
        share = self.ranks.weight if self.ranks.is_distributed else 1.0
        mean = minimised.mean() * share if whole else minimised.sum() * share / count
        self.engine.backward(mean)

    def _run(
        self, images: Tensor, population: Tensor | None, tasks: Sequence[int], part: PopulationPass | None
    ) -> list[Tensor]:
        if len(tasks) == len(self.task_names):
            return self.network(images, population, part=part)  # type: ignore[no-any-return]
        return self.network(images, population, tasks=tasks, part=part)  # type: ignore[no-any-return]

    def _own_inputs(self, images: Tensor, tasks: range) -> Tensor:
        """Returns the input of the networks for the tasks at some positions; what stands at the others is undefined."""
        dtype = next(self.network.parameters()).dtype
        if len(tasks) == len(images):
            return to_inputs(images, dtype)
        computed = to_inputs(images[tasks.start : tasks.stop], dtype)
        inputs = computed.new_empty(images.shape)
        inputs[tasks.start : tasks.stop] = computed
        return inputs

    def _add_up_ranks(self, ranks: Ranks, parameters: Sequence[nn.Parameter], losses: Tensor) -> None:
        """Replaces gradients, losses and what the batch normalisations have seen by those of all ranks."""
        losses.mul_(ranks.weight)
        norms = list(self.network.norms())
        seen = [norm.pending(ranks.weight) for norm in norms]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self.engine.add_up([*gradients, losses, *seen])
        for norm, statistics in zip(norms, seen, strict=True):
            norm.replace_pending(statistics)

    def _refuse_non_finite(self, losses: Tensor, tasks: Sequence[int], phase: str) -> None:
        bad = ~torch.isfinite(losses)
        if not bool(bad.any()):
            return
        columns = zip(tasks, bad.any(0).tolist(), strict=True)
        names = [self.task_names[task] for task, is_bad in columns if is_bad]
        raise NonFiniteError(describe_losses(names, phase, self.step))


def to_inputs(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Turns images into a network's input: bytes are scaled to [0, 1] (paper, section "Experiments")."""
    inputs = images.to(dtype)
    return inputs.div_(255) if images.dtype == torch.uint8 else inputs
