"""What every method shares: the networks, the update of the weights, evaluation, checkpoints."""

import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from lws_lightning.batches import EvaluationBatch, StepBatch, TaskBatch
from lws_lightning.callbacks import RunRecord, SharingMonitor
from lws_lightning.methods.checks import check_task_info, check_trainer
from lws_lightning.methods.evaluation import Evaluation, TaskErrors
from lws_lightning.methods.losses import task_losses
from lws_lightning.methods.optimization import (
    LRSchedule,
    NonFiniteError,
    clear_gradients,
    lr_factor,
    total_norm,
    uninterrupted,
)
from lws_lightning.methods.resume import apply_learning_rate, compare_options, forget_unfinished_batch
from lws_lightning.networks import (
    BaseNetwork,
    Initialization,
    NetworkBuilder,
    build_network,
    make_multi_task_network,
)
from lws_lightning.randomness import resolve_seed
from lws_lightning.search import SearchDistribution
from lws_lightning.sharing import RunningStats

__all__ = ["MultiTaskMethod"]


class MultiTaskMethod(LightningModule):
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
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self._save_options(ignore=[] if isinstance(network, str) else ["network"])
        check_task_info(task_names, num_classes, image_shape)
        for name, value in {"lr": lr, "clip_grad_norm": clip_grad_norm}.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, but is {value}.")
        self.automatic_optimization = False
        self.network_name = network if isinstance(network, str) else getattr(network, "__name__", "callable")
        self.task_names, self.num_classes = list(task_names), list(num_classes)
        self.validation_prefix = validation_prefix
        self.lr, self.weight_decay = lr, weight_decay
        self.lr_schedule, self.warmup_steps = lr_schedule, warmup_steps
        self.clip_grad_norm = clip_grad_norm
        self.seed = resolve_seed(seed)
        self.base = build_network(network, image_shape)
        self.layer_names = [part.name for part in self.base.learned_layers]
        self.network = make_multi_task_network(
            self.base, num_classes, self.choose_weights_per_layer(self.base), self.seed, initialization
        )
        self.network.set_running_stats(running_stats)
        self.weights_per_layer = self.network.weights_per_layer
        self.distribution: SearchDistribution | None = None
        self.errors = TaskErrors(len(task_names))
        self.evaluations: dict[str, Evaluation] = {}
        self._evaluated_assignment: Tensor | None = None

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

    @property
    def assignment(self) -> Tensor:
        """The assignment that is used for inference, `(L, T)` int64 on the CPU."""
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
        losses = task_losses(self.network(self.to_inputs(batch.images), population), batch.labels)
        self.manual_backward(losses.mean())
        losses = losses.detach()
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

    def apply_gradients(self) -> None:
        """Moves running statistics and weights by what `compute_gradients` has found, as a whole."""
        with uninterrupted():
            self.network.commit_running_stats()
            self.optimizers().step()  # type: ignore[union-attr]
            self.lr_schedulers().step()  # type: ignore[union-attr]

    def to_inputs(self, images: Tensor) -> Tensor:
        """Turns images into the network's input: bytes are scaled to [0, 1] (paper, section "Experiments")."""
        inputs = images.to(self.dtype)
        return inputs.div_(255) if images.dtype == torch.uint8 else inputs

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
        optimizer = torch.optim.Adam(self._weights(), lr=self.lr, weight_decay=self.weight_decay, foreach=True)
        total_steps = self.trainer.estimated_stepping_batches if self.lr_schedule != "constant" else 0
        if total_steps == float("inf"):
            raise ValueError(f"lr_schedule {self.lr_schedule} needs an end: set trainer.max_steps or max_epochs.")
        factor = lr_factor(self.lr_schedule, self.warmup_steps, int(total_steps))
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, factor)}

    def log_now(self, values: dict[str, Tensor | float], **options: Any) -> None:
        """Logs values if this is a step at which the Trainer passes values on to its loggers."""
        if self.global_step % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            self.log_dict(values, batch_size=1, **options)

    # Evaluation

    def forward(self, images: Tensor, task: int | str) -> Tensor:
        """Runs one task's own network.

        Args:
            images: `(N, C, H, W)`, uint8 in [0, 255] or floating point in [0, 1].
            task: Its index or name.

        Returns:
            `(N, classes)` logits.
        """
        index = self.task_names.index(task) if isinstance(task, str) else task
        return self.network.forward_task(self.to_inputs(images), self.assignment, index)

    def on_validation_epoch_start(self) -> None:
        """Starts counting anew."""
        self._start_evaluation()

    def validation_step(self, batch: EvaluationBatch, batch_idx: int) -> None:
        """Evaluates some images of one task."""
        self._evaluate(batch)

    def on_validation_epoch_end(self) -> None:
        """Logs the errors under `validation_prefix`."""
        self._finish_evaluation(self.validation_prefix)

    def on_test_epoch_start(self) -> None:
        """Starts counting anew."""
        self._start_evaluation()

    def test_step(self, batch: EvaluationBatch, batch_idx: int) -> None:
        """Evaluates some test images of one task."""
        self._evaluate(batch)

    def on_test_epoch_end(self) -> None:
        """Logs the errors under `test/`."""
        self._finish_evaluation("test")

    def _start_evaluation(self) -> None:
        self.errors.reset()
        self._evaluated_assignment = self.assignment

    def _evaluate(self, batch: EvaluationBatch) -> None:
        assert self._evaluated_assignment is not None
        logits = self.network.forward_task(self.to_inputs(batch.images), self._evaluated_assignment, batch.task)
        self.errors.update(batch.task, logits, batch.labels)

    def _finish_evaluation(self, prefix: str) -> None:
        evaluation = self.errors.evaluation(prefix, self.global_step, self.task_names)
        if evaluation is None:
            return
        if not self.trainer.sanity_checking:
            self.evaluations[prefix] = evaluation
        bar = {f"{prefix}/error"}
        for name, value in evaluation.as_metrics().items():
            self.log(name, value, batch_size=1, prog_bar=name in bar)

    # Lightning's hooks

    def configure_callbacks(self) -> Sequence[Callback]:
        """Refuses Trainer options that cannot work, and brings the callbacks that a user has not given."""
        check_trainer(self.trainer)
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
