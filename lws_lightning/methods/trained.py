"""How the weights are trained: gradients of the mean loss, a guard, one step of Adam."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from lws_lightning.batches import EvaluationBatch, TaskBatch
from lws_lightning.methods.averaging import decay_at, update_average
from lws_lightning.methods.distributed import Ranks, local_backward, require_equal
from lws_lightning.methods.guard import NonFiniteError, describe_gradient, describe_losses
from lws_lightning.methods.losses import task_losses
from lws_lightning.methods.optimization import (
    LRSchedule,
    clear_gradients,
    lr_factor,
    obey_schedule,
    total_norm,
)
from lws_lightning.methods.predicted import PredictedMethod
from lws_lightning.methods.progress import FitProgress, save_on_exception
from lws_lightning.randomness import seed_for
from lws_lightning.sharing import PopulationPass

__all__ = ["TrainedMethod"]


class TrainedMethod(PredictedMethod):
    """T networks trained with Adam by manual optimization.

    A training step calls `compute_gradients`, which changes nothing that a checkpoint holds, and `apply_gradients`.
    """

    lr: float
    weight_decay: float
    lr_schedule: LRSchedule
    warmup_steps: int
    adam_eps: float
    clip_grad_norm: float | None
    max_images_per_pass: int | None
    ema_decay: float | None
    seed: int
    progress: FitProgress
    _schedule_steps: int = 0
    _saved_schedule_steps: int | None = None
    loss_weights: Tensor | None = None
    """`(T,)` float64 with a mean of 1; None: all tasks count alike."""

    # What a subclass may change

    def tasks_in_training(self) -> Sequence[int]:
        """Returns the tasks that `compute_gradients` gets batches of, ascending."""
        return range(len(self.task_names))

    def losses_of(self, logits: Sequence[Tensor], labels: Tensor, tasks: range) -> Tensor:
        """Computes the losses of a pass.

        Args:
            logits: For each of T' tasks `(S, B, classes_t)`.
            labels: `(T', B)` int64.
            tasks: Positions of these tasks among those in training.

        Returns:
            `(S, T')` in nats.
        """
        return task_losses(logits, labels)

    def objective(self, losses: Tensor, tasks: range) -> Tensor:
        """Returns what is minimised in the (weighted) mean, `(S, T')`, of the losses of a pass (see `losses_of`)."""
        return losses

    def weigh(self, losses: Tensor, tasks: range) -> Tensor:
        """Multiplies each task's losses `(S, T')` by its loss weight; `tasks` as for `losses_of`."""
        if self.loss_weights is None:
            return losses
        numbers = self.tasks_in_training()
        return losses * self.loss_weights[[numbers[task] for task in tasks]].to(losses)

    def penalty(self) -> Tensor | None:
        """Returns what is minimised besides, a scalar, or None."""
        return None

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Returns Adam's parameter groups, each with `params`, `lr` and `weight_decay`."""
        return [{"params": self._weights(), "lr": self.lr, "weight_decay": self.weight_decay}]

    def rescale_gradients(self) -> None:
        """Changes the gradients of the mean loss in place, where a method wants others."""

    # Several processes

    @property
    def ranks(self) -> Ranks:
        """This process among those of the run."""
        return Ranks.of(self._trainer)

    def on_train_start(self) -> None:
        """Refuses to train if the processes would not train the same networks; makes up for a missed evaluation."""
        data = getattr(self.trainer, "datamodule", None)
        optimizer = self.optimizers().optimizer  # type: ignore[union-attr]
        require_equal(
            {
                "the seeds (seed_everything)": self.seed,
                "the options of the data": None if data is None else data.state_dict(),
                "pi, weights or running statistics": self.state_dict(),
                "Adam's state": optimizer.state_dict()["state"],
                "the step": self.global_step,
            },
            self.device,
        )
        ranks = self.ranks
        if ranks.several:
            what = "draws images of its own" if ranks.distribute == "examples" else "computes some of the tasks"
            rank_zero_info(f"{ranks.world_size} processes; each {what} (data.distribute: {ranks.distribute}).")
        self._go_on_with_schedule()
        self.progress.begin(self.trainer)

    def on_validation_start(self) -> None:
        """Watches for signals already where a fit begins with a sanity check."""
        self.progress.watch(self.trainer)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ends the run if a signal asked for it, now that the step is complete and all callbacks know of it."""
        self.progress.after_step(self.trainer)

    def validation_step(self, batch: EvaluationBatch, batch_idx: int) -> None:
        """Evaluates some images of one task."""
        super().validation_step(batch, batch_idx)
        self.progress.after_evaluation_batch(self.trainer)

    def on_validation_epoch_end(self) -> None:
        """Logs the errors under `validation_prefix`."""
        super().on_validation_epoch_end()
        self.progress.evaluated(self.trainer)

    def on_validation_end(self) -> None:
        """Ends the run if a signal asked for it."""
        self.progress.after_evaluation(self.trainer)

    def on_train_end(self) -> None:
        """Evaluates and saves the last step where the intervals have left it out."""
        self.progress.finish(self.trainer)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Makes the checkpoint one of a complete step, and adds how long the schedule is."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["lws_schedule_steps"] = self._schedule_steps
        self.progress.save(self.trainer, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Notes how far the checkpoint's run was."""
        super().on_load_checkpoint(checkpoint)
        if self._trainer is not None and self.trainer.training:
            self._saved_schedule_steps = checkpoint["lws_schedule_steps"]
            self.progress.load(self.trainer, checkpoint)

    def _go_on_with_schedule(self) -> None:
        """Takes the rate of this run's schedule, and says so where the checkpoint's ends at another step."""
        schedule: Any = self.lr_schedulers()
        obey_schedule(schedule)
        saved, self._saved_schedule_steps = self._saved_schedule_steps, None
        if saved is not None and saved != self._schedule_steps and not self.progress.finished:
            rank_zero_warn(
                f"Resuming with lr_schedule {self.lr_schedule} over {self._schedule_steps:,} steps instead of the "
                f"checkpoint's {saved:,}: step {self.global_step:,} goes on with a learning rate of "
                f"{schedule.optimizer.param_groups[0]['lr']:.3g}."
            )

    @contextmanager
    def whole_update(self) -> Iterator[None]:
        """Encloses an update of what checkpoints hold: no signal ends it, and after an error in it nothing is saved."""
        with self.progress.hold():
            try:
                yield
            except BaseException:
                self.save_on_exception(False)
                raise

    def save_on_exception(self, enabled: bool) -> None:
        """Says whether the checkpoint callbacks save when an exception ends the run; see `save_on_exception`."""
        if self._trainer is not None:
            save_on_exception(self.trainer, enabled)

    # The update of the weights

    def compute_gradients(self, batch: TaskBatch, population: Tensor | None) -> Tensor:
        """Computes the gradient of the mean loss over a population and the tasks (Algorithm 1, StepSGD).

        Nothing that a checkpoint holds has changed when this returns or raises.

        Args:
            batch: B images of each task.
            population: `(S, L, T)` int64; None where no assignment describes the sharing, and S is 1.

        Returns:
            Losses `(S, T)`, detached.

        Raises:
            NonFiniteError: If a loss or gradient is not finite.
        """
        parameters = self._weights()
        clear_gradients(parameters)
        self.network.discard_running_stats()
        ranks = self.ranks
        own_images = ranks.rank if ranks.distribute == "examples" else 0
        self.network.draw_by(partial(seed_for, self.seed, "masks", self.global_step, own_images))
        with local_backward(self._trainer):
            losses = self.population_losses(batch, population, backward=True)
            penalty = self.penalty()
            if penalty is not None and ranks.rank == 0:  # once in the sum over ranks
                self.manual_backward(penalty)
            if not ranks.tasks(len(batch.images)):  # a gradient scaler insists on having scaled something
                self.manual_backward(parameters[0].sum() * 0)
        if ranks.several:
            self._add_up_ranks(ranks, parameters, losses)
        # What is checked from here on is the same on all ranks, so that all of them raise or none.
        self.refuse_non_finite(losses, "SGD")
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            scaler.unscale_(self.optimizers().optimizer)  # type: ignore[union-attr]
        self.rescale_gradients()
        norm = total_norm(parameters)
        if scaler is None and not bool(torch.isfinite(norm)):
            self.save_on_exception(True)
            tasks, step = self.tasks_in_training(), self.global_step
            raise NonFiniteError(describe_gradient(self.network, population, tasks, self.task_names, step))
        if self.clip_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.clip_grad_norm, norm)
        return losses

    def _add_up_ranks(self, ranks: Ranks, parameters: Sequence[nn.Parameter], losses: Tensor) -> None:
        """Replaces gradients, losses and what the batch normalisations have seen by those of all ranks."""
        losses.mul_(ranks.weight)
        norms = list(self.network.norms())
        seen = [norm.pending(ranks.weight) for norm in norms]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flags = self.progress.stop_flags(losses.device)
        ranks.add_up([*gradients, losses, *seen, flags])
        self.progress.agree_to_stop(flags.tolist())
        for norm, statistics in zip(norms, seen, strict=True):
            norm.replace_pending(statistics)

    def population_losses(self, batch: TaskBatch, population: Tensor | None, backward: bool = False) -> Tensor:
        """Computes the losses of a population in passes of at most `max_images_per_pass`.

        Of several ranks each computes its own part: the losses on its own images, or zeros for the tasks of the others.
        So does the gradient: their sum over ranks is that of the mean loss.

        Args:
            batch: B images of each task.
            population: `(S, L, T)` int64, or None.
            backward: Whether to add the gradient of their mean to the gradients of the weights. The activations of a
                pass are freed before the next one.

        Returns:
            `(S, T)`, detached.

        Raises:
            ValueError: If `max_images_per_pass` is less than B.
        """
        ranks, num_tasks = self.ranks, len(batch.images)
        own = ranks.tasks(num_tasks)
        images = self._own_inputs(batch.images, own)
        passes = self.network.passes(population, images.shape[1], self.max_images_per_pass)
        if len(passes) == 1 and len(own) == num_tasks:
            losses = self.losses_of(self.run_networks(images, population), batch.labels, passes[0].tasks)
            if backward:
                tasks = passes[0].tasks
                objective = self.weigh(self.objective(losses, tasks), tasks).mean()
                self.manual_backward(objective * ranks.weight if ranks.several else objective)
            return losses.detach()
        size = 1 if population is None else len(population)
        dtype = torch.promote_types(images.dtype, torch.float32)
        losses = torch.zeros(size, num_tasks, dtype=dtype, device=images.device)
        for part in ranks.own_passes(passes, num_tasks):
            found = self._pass_losses(images, batch.labels, population, part, backward)
            losses[list(part.rows), part.tasks.start : part.tasks.stop] = found
        return losses

    def _own_inputs(self, images: Tensor, tasks: range) -> Tensor:
        """Returns the input of the networks for the tasks at some positions; what stands at the others is undefined."""
        if len(tasks) == len(images):
            return self.to_inputs(images)
        computed = self.to_inputs(images[tasks.start : tasks.stop])
        inputs = computed.new_empty(images.shape)
        inputs[tasks.start : tasks.stop] = computed
        return inputs

    def run_networks(self, images: Tensor, population: Tensor | None, **part: PopulationPass) -> list[Tensor]:
        """Returns the logits of the tasks in training; see the network's `forward`."""
        return self.network(images, population, **part)  # type: ignore[no-any-return]

    def _pass_losses(
        self, images: Tensor, labels: Tensor, population: Tensor | None, part: PopulationPass, backward: bool
    ) -> Tensor:
        """Returns the losses of a part, detached; nothing else of its graph is left."""
        logits = self.run_networks(images, population, part=part)
        losses = self.losses_of(logits, labels[part.tasks.start : part.tasks.stop], part.tasks)
        if backward:
            size = 1 if population is None else len(population)
            objective = self.weigh(self.objective(losses, part.tasks), part.tasks)
            share = self.ranks.weight if self.ranks.several else 1.0
            self.manual_backward(objective.sum() * share / (size * len(images)))
        return losses.detach()

    def apply_gradients(self) -> None:
        """Moves running statistics and weights by what `compute_gradients` has found, as a whole."""
        with self.whole_update():
            self.network.commit_running_stats()
            self.optimizers().step()  # type: ignore[union-attr]
            self.lr_schedulers().step()  # type: ignore[union-attr]
            if self.average is not None and self.ema_decay is not None:
                update_average(self.average, self.network, decay_at(self.global_step, self.ema_decay))

    def refuse_non_finite(self, losses: Tensor, phase: str) -> None:
        """Raises NonFiniteError if one of the losses `(S, T)` is not finite."""
        bad = ~torch.isfinite(losses)
        if not bool(bad.any()):
            return
        columns = zip(self.tasks_in_training(), bad.any(0).tolist(), strict=True)
        names = [self.task_names[task] for task, is_bad in columns if is_bad]
        self.save_on_exception(True)
        raise NonFiniteError(describe_losses(names, phase, self.global_step))

    def _weights(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Makes Adam over every trainable weight, and the schedule that `apply_gradients` steps."""
        optimizer = torch.optim.Adam(self.parameter_groups(), eps=self.adam_eps, fused=True)
        total_steps = self.trainer.estimated_stepping_batches if self.lr_schedule != "constant" else 0
        if total_steps == float("inf"):
            raise ValueError(f"lr_schedule {self.lr_schedule} needs an end: set trainer.max_steps or max_epochs.")
        self._schedule_steps = int(total_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lr_factor(self.lr_schedule, self.warmup_steps, self._schedule_steps)
        )
        # The interval is for LearningRateMonitor; Lightning itself steps no schedule under manual optimization.
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def log_now(self, values: dict[str, Tensor | float], **options: Any) -> None:
        """Logs values if this is a step at which the Trainer passes values on to its loggers."""
        if self.global_step % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            self.log_dict(values, batch_size=1, **options)
