"""What every method shares: the networks, the update of the weights, evaluation, checkpoints."""

import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from lightning.pytorch import Callback
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from lws_lightning.batches import StepBatch, TaskBatch
from lws_lightning.callbacks import RunRecord, SharingMonitor
from lws_lightning.methods.checks import check_pass_size, check_task_info, check_trainer
from lws_lightning.methods.evaluated import EvaluatedMethod
from lws_lightning.methods.losses import task_losses
from lws_lightning.methods.optimization import (
    LRSchedule,
    NonFiniteError,
    clear_gradients,
    lr_factor,
    total_norm,
    uninterrupted,
)
from lws_lightning.methods.resume import (
    apply_learning_rate,
    compare_options,
    forget_unfinished_batch,
    refuse_import_path,
)
from lws_lightning.networks import (
    BaseNetwork,
    Initialization,
    NetworkBuilder,
    build_network,
    make_multi_task_network,
)
from lws_lightning.randomness import resolve_seed
from lws_lightning.search import SearchDistribution
from lws_lightning.sharing import PopulationPass, RunningStats, split_population

__all__ = ["MultiTaskMethod"]


class MultiTaskMethod(EvaluatedMethod):
    """Base of the methods: T networks made of weight sets, trained with Adam by manual optimization.

    A subclass says how many weights each layer has, which assignment is used for inference, and what a training step
    is. `global_step` counts training steps: each takes exactly one step of the one optimizer.

    Args:
        network: The base architecture: a name (`lws_lightning.networks.NETWORKS`), an import path
            `package.module:build`, or, from Python, a callable that builds a `BaseNetwork` for an image shape. A
            callable does not go into checkpoints and is handed over again on loading.
        task_names: Names of the T tasks; from the data.
        num_classes: Classes of each task; from the data.
        image_shape: `(C, H, W)`; from the data.
        validation_prefix: Under which tag the validation loop logs: `test_curve` if it looks at test images (the
            paper's protocol), else `val`; from the data.
        lr: Adam's learning rate (the paper's eta_theta).
        weight_decay: Adam's L2 penalty; the paper has none.
        lr_schedule: What the learning rate does after the warm-up: `constant` (the paper), `linear` or `cosine` down to
            0 at the last step.
        warmup_steps: Steps over which the learning rate rises linearly from 0.
        clip_grad_norm: Largest norm of the gradient of all weights together; a larger one is scaled down. None: no
            limit, as in the paper. This takes the place of `trainer.gradient_clip_val`.
        running_stats: How the running statistics of batch normalisation follow a step's visits: `mean` (once, towards
            the mean over the visits) or `per_visit` (the authors' program). The paper does not say.
        initialization: `he_uniform` (what the paper says) or `torch` (PyTorch's own, which the authors' program
            leaves in place; with few images it does better, see docs/design.md). None: as the network says,
            `he_uniform` for the paper's.
        max_images_per_pass: Bounds the memory of a training step. Its populations are computed in several passes, one
            after the other, none of which computes more images at any layer; an image counts once for each distinct
            prefix of the assignments that it is computed under. At least the batch size. None: in one pass. Results
            differ by rounding only.
        seed: For initial weights, populations and whatever else is drawn. None: the seed of `seed_everything`.
    """

    method_name: str

    def __init__(
        self,
        network: str | NetworkBuilder,
        task_names: Sequence[str],
        num_classes: Sequence[int],
        image_shape: Sequence[int],
        validation_prefix: str = "val",
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        lr_schedule: LRSchedule = "constant",
        warmup_steps: int = 0,
        clip_grad_norm: float | None = None,
        running_stats: RunningStats = "mean",
        initialization: Initialization | None = None,
        max_images_per_pass: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(task_names, validation_prefix)
        self._save_options(ignore=[] if isinstance(network, str) else ["network"])
        check_task_info(task_names, num_classes, image_shape)
        positive = {"lr": lr, "clip_grad_norm": clip_grad_norm, "max_images_per_pass": max_images_per_pass}
        for name, value in positive.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, but is {value}.")
        self.automatic_optimization = False
        self.network_name = network if isinstance(network, str) else getattr(network, "__name__", "callable")
        self.num_classes = list(num_classes)
        self.lr, self.weight_decay = lr, weight_decay
        self.lr_schedule, self.warmup_steps = lr_schedule, warmup_steps
        self.clip_grad_norm = clip_grad_norm
        self.max_images_per_pass = max_images_per_pass
        self.seed = resolve_seed(seed)
        self.base = build_network(network, image_shape)
        self.layer_names = [part.name for part in self.base.learned_layers]
        self.network = make_multi_task_network(
            self.base, num_classes, self.choose_weights_per_layer(self.base), self.seed, initialization
        )
        self.network.set_running_stats(running_stats)
        self.weights_per_layer = self.network.weights_per_layer
        self.distribution: SearchDistribution | None = None

    def _save_options(self, ignore: list[str]) -> None:
        """Saves the options as hyper-parameters, so that the class can be made again from a checkpoint.

        Of a user's subclass only its own arguments are saved, because it may itself set those of its base.
        """
        own_frame = inspect.currentframe()
        assert own_frame is not None
        outermost = innermost = frame = own_frame.f_back
        while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is self:
            outermost, frame = frame, frame.f_back
        of_this_package = type(self).__module__.split(".")[0] == __name__.split(".")[0]
        self.save_hyperparameters(ignore=ignore, frame=innermost if of_this_package else outermost)

    # What a subclass says

    def choose_weights_per_layer(self, base: BaseNetwork) -> Sequence[int]:
        """Returns K_l for each learned layer."""
        raise NotImplementedError

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Does one training step."""
        raise NotImplementedError

    def rescale_gradients(self) -> None:
        """Changes the gradients of the mean loss in place, where a method wants others."""

    # The update of the weights

    def compute_gradients(self, batch: TaskBatch, population: Tensor) -> Tensor:
        """Computes the gradient of the mean loss over a population and the tasks (Algorithm 1, StepSGD).

        Nothing that a checkpoint holds has changed when this returns or raises.

        Args:
            batch: B images of each task.
            population: `(S, L, T)` int64.

        Returns:
            Losses `(S, T)`, detached.

        Raises:
            NonFiniteError: If a loss or gradient is not finite.
        """
        parameters = self._weights()
        clear_gradients(parameters)
        self.network.discard_running_stats()
        losses = self.population_losses(batch, population, backward=True)
        self.refuse_non_finite(losses, "SGD")
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            scaler.unscale_(self.optimizers().optimizer)  # type: ignore[union-attr]
        self.rescale_gradients()
        norm = total_norm(parameters)
        if scaler is None and not bool(torch.isfinite(norm)):
            raise NonFiniteError(self._describe_gradient(population))
        if self.clip_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.clip_grad_norm, norm)
        return losses

    def population_losses(self, batch: TaskBatch, population: Tensor, backward: bool = False) -> Tensor:
        """Computes the losses of a population in passes of at most `max_images_per_pass`.

        Args:
            batch: B images of each task.
            population: `(S, L, T)` int64.
            backward: Whether to add the gradient of their mean to the gradients of the weights. The activations of a
                pass are freed before the next one.

        Returns:
            `(S, T)`, detached.

        Raises:
            ValueError: If `max_images_per_pass` is less than B.
        """
        images = self.to_inputs(batch.images)
        passes = split_population(population, images.shape[1], self.max_images_per_pass)
        if len(passes) == 1:
            losses = task_losses(self.network(images, population), batch.labels)
            if backward:
                self.manual_backward(losses.mean())
            return losses.detach()
        of_passes = [self._pass_losses(images, batch.labels, population, part, backward) for part in passes]
        losses = of_passes[0].new_empty(len(population), len(images))
        for part, found in zip(passes, of_passes, strict=True):
            losses[list(part.rows), part.tasks.start : part.tasks.stop] = found
        return losses

    def _pass_losses(
        self, images: Tensor, labels: Tensor, population: Tensor, part: PopulationPass, backward: bool
    ) -> Tensor:
        """Returns the losses of a part, detached; nothing else of its graph is left."""
        logits = self.network(images, population, part=part)
        losses = task_losses(logits, labels[part.tasks.start : part.tasks.stop])
        if backward:
            self.manual_backward(losses.sum() / (len(population) * len(images)))
        return losses.detach()

    def apply_gradients(self) -> None:
        """Moves running statistics and weights by what `compute_gradients` has found, as a whole."""
        with uninterrupted():
            self.network.commit_running_stats()
            self.optimizers().step()  # type: ignore[union-attr]
            self.lr_schedulers().step()  # type: ignore[union-attr]

    def refuse_non_finite(self, losses: Tensor, phase: str) -> None:
        """Raises NonFiniteError if one of the losses `(S, T)` is not finite."""
        bad = ~torch.isfinite(losses)
        if not bool(bad.any()):
            return
        names = [name for name, is_bad in zip(self.task_names, bad.any(0).tolist(), strict=True) if is_bad]
        raise NonFiniteError(
            f"Step {self.global_step}: the loss of task {_quoted(names)} on the {phase} batch is not finite. The "
            "weights are those of the step before. Try a lower model.lr or model.clip_grad_norm, and look at the "
            "images of the task."
        )

    def _describe_gradient(self, population: Tensor) -> str:
        names = set()
        for index, number, block in self.network.copies():
            if any(not bool(torch.isfinite(p.grad).all()) for p in block.parameters() if p.grad is not None):
                used = torch.ones_like(population[:, 0]) if index is None else population[:, index] == number
                names |= {self.task_names[task] for task in used.any(0).nonzero().flatten().tolist()}
        for name, head in zip(self.task_names, self.network.heads, strict=True):
            if any(not bool(torch.isfinite(p.grad).all()) for p in head.parameters() if p.grad is not None):
                names.add(name)
        return (
            f"Step {self.global_step}: the gradient of weights that task {_quoted(sorted(names))} uses is not finite. "
            "The weights are those of the step before. Try a lower model.lr or model.clip_grad_norm."
        )

    def _weights(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Makes Adam over every trainable weight, and the schedule that `apply_gradients` steps."""
        optimizer = torch.optim.Adam(self._weights(), lr=self.lr, weight_decay=self.weight_decay, fused=True)
        total_steps = self.trainer.estimated_stepping_batches if self.lr_schedule != "constant" else 0
        if total_steps == float("inf"):
            raise ValueError(f"lr_schedule {self.lr_schedule} needs an end: set trainer.max_steps or max_epochs.")
        factor = lr_factor(self.lr_schedule, self.warmup_steps, int(total_steps))
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, factor)}

    def log_now(self, values: dict[str, Tensor | float], **options: Any) -> None:
        """Logs values if this is a step at which the Trainer passes values on to its loggers."""
        if self.global_step % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            self.log_dict(values, batch_size=1, **options)

    # Lightning's hooks

    def configure_callbacks(self) -> Sequence[Callback]:
        """Refuses Trainer options that cannot work, and brings the callbacks that a user has not given."""
        check_trainer(self.trainer)
        check_pass_size(self.max_images_per_pass, self.trainer)
        present = {type(callback) for callback in self.trainer.callbacks}  # type: ignore[attr-defined]
        return [kind() for kind in (SharingMonitor, RunRecord) if kind not in present]

    def setup(self, stage: str) -> None:
        """Lets checkpoint callbacks save the last good state when the run is stopped by an error or Ctrl-C."""
        # Every checkpoint of this module is taken after a complete step; the advice does not apply.
        warnings.filterwarnings("ignore", message="Using ModelCheckpoint with manual optimization")
        for callback in self.trainer.checkpoint_callbacks:
            if hasattr(callback, "save_on_exception"):
                callback.save_on_exception = True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the seed that is in force; see `resume` for a step that was interrupted."""
        checkpoint["lws_seed"] = self.seed
        forget_unfinished_batch(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Obeys or refuses options that differ from the checkpoint's; see `resume`."""
        if self._trainer is None or not self.trainer.training:
            return
        saved = {**checkpoint.get("hyper_parameters", {}), "seed": checkpoint.get("lws_seed", self.seed)}
        compare_options(saved, {**self.hparams, "seed": self.seed})
        apply_learning_rate(checkpoint, self.lr, self.weight_decay)

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, trust_network: bool = False, **kwargs: Any) -> Self:
        """Makes a method from a checkpoint, as Lightning does.

        Args:
            checkpoint_path: The file.
            *args: See `LightningModule.load_from_checkpoint`.
            trust_network: Whether an import path that the checkpoint names as its network may be imported. A checkpoint
                by itself never makes this program import code.
            **kwargs: See `LightningModule.load_from_checkpoint`; options given here replace the checkpoint's.

        Raises:
            ValueError: If the checkpoint names an import path that is neither trusted nor replaced.
        """
        if "network" not in kwargs and not trust_network:
            refuse_import_path(torch.load(checkpoint_path, map_location="meta", weights_only=True))
        return super().load_from_checkpoint(checkpoint_path, *args, **kwargs)

    # What callbacks and results ask for

    def parameters_in_use(self) -> int:
        """Counts the distinct parameters of the T networks under `assignment`."""
        return self.network.parameters_in_use(self.assignment)

    def parameters_total(self) -> int:
        """Counts all parameters, of all copies and heads."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def task_parameters(self, task: int) -> Iterator[nn.Parameter]:
        """Yields the parameters of one task's own network."""
        for module in self.network.task_modules(self.assignment, task):
            yield from module.parameters()


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
