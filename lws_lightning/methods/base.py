"""The LightningModule of all methods: Lightning's hooks around a scheme, an objective and the weight update."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor

from lws_lightning.batches import EvaluationBatch, PredictionBatch, StepBatch
from lws_lightning.methods.arguments import CapturesArguments
from lws_lightning.methods.checkpoint_io import save_checkpoints_atomically
from lws_lightning.methods.checks import (
    check_copies,
    check_images,
    check_precision,
    check_task_info,
    check_trainer,
    check_training_options,
)
from lws_lightning.methods.engine import LightningEngine, trainer_of
from lws_lightning.methods.evaluation import TaskErrors
from lws_lightning.methods.prefix import frozen_prefix_of
from lws_lightning.methods.progress import FitProgress
from lws_lightning.methods.record import DataRecord
from lws_lightning.methods.resume import apply_adam_options, compare_options, refuse_import_path, resume_schedule
from lws_lightning.methods.scheme import Blueprint, Design
from lws_lightning.networks import (
    Initialization,
    NetworkBuilder,
    NetworkInput,
    build_network,
    choose_frozen_layers,
    choose_learned_layers,
    read_network_input,
)
from lws_lightning.randomness import resolve_seed
from lws_lightning.records import Evaluation, options_to_json
from lws_lightning.run_folders import claim_folder, has_output_location
from lws_lightning.search import SearchDistribution
from lws_lightning.sharing import Copies, RunningStats, TaskNetworks, frozen_tensors
from lws_lightning.training import (
    EarlyStopping,
    LRSchedule,
    NonFiniteError,
    WeightUpdate,
    lr_factor,
    normalised_weights,
    parameter_groups,
    require_equal,
    to_inputs,
)

__all__ = ["MultiTaskMethod"]


class MultiTaskMethod(CapturesArguments, LightningModule):
    """T networks that share weights according to a scheme, trained with Adam under manual optimization.

    A subclass is a constructor that takes plain values and passes a `Design` on. Each training step makes exactly one
    optimizer step, so `global_step` counts training steps.

    Args:
        design: What distinguishes this method from the others.
        network: The base architecture: a name (`lws_lightning.networks.NETWORKS`), a classifier of torchvision or timm
            as `torchvision:resnet18` or `timm:resnet18`, an import path `package.module:build`, or, from Python, a
            callable. Given an image shape, these build a `BaseNetwork` or a classifier that can be cut into layers
            (docs/own_network.md). Checkpoints do not contain a callable; pass it again on loading.
        task_names: Names of the T tasks; from the data.
        num_classes: Classes of each task; from the data.
        image_shape: `(C, H, W)`; from the data.
        validation_prefix: Prefix of the validation loop's metrics: `test_curve` if it evaluates test images (the
            paper's protocol), else `val`; from the data.
        lr: Adam's learning rate (the paper's eta_theta).
        weight_decay: Adam's L2 penalty; the paper has none.
        decoupled_decay: Whether `weight_decay` shrinks all weights by that part of `lr` in each step (AdamW, Loshchilov
            and Hutter 2019) instead, also the weights of copies that no task uses.
        lr_schedule: Course of the learning rate after the warm-up: `constant` (the paper), or `linear` or `cosine`
            decay to 0 at the last step.
        warmup_steps: Steps of linear warm-up from 0.
        adam_eps: Adam's epsilon, added to the root of its second moment. Where gradients are about this small, a rare
            large one no longer moves every weight by `lr`.
        clip_grad_norm: Maximum norm of the gradient of all weights together. None: no clipping, as in the paper.
            Replaces `trainer.gradient_clip_val`.
        running_stats: How the running statistics of batch normalisation follow a step's visits: `mean` (once, towards
            the mean over the visits), `per_visit` (the authors' program) or `per_task` (like `mean`, but with separate
            statistics for each task, at no cost to a prediction). The paper does not say.
        initialization: `torch` (PyTorch's default, which the authors' program keeps and which most likely produced the
            paper's numbers) or `he_uniform` (as the paper states; with few images it does worse without sharing, see
            docs/design.md). None: the network's default, `torch` for the paper's networks.
        learned_layers: Names of the layers that may be shared, with `*` and `?` as in file names, for example
            `["layer3.*", "layer4.*"]`. All others are common to all tasks. None: the network's default.
        pretrained_weights: Initial weights of every copy of a layer: a state dict file (`.pt`, `.safetensors`) or, for
            a torchvision classifier, the name of its weights, for example `IMAGENET1K_V1`; for one of timm, `DEFAULT`.
            Heads are initialised randomly. None: random weights.
        network_input: How the network resizes and normalises the images that the data provide, as part of its first
            layer. `weights`: to the size and with the mean and standard deviation that the network's published weights
            were trained with. `{size: 112, mean: [...], std: [...]}`: entries of one's own; those left out are those of
            the weights, or none. None: the images are used as they are.
        perturb_copies: Standard deviation of the noise added to each initial weight tensor, independently for each
            copy, relative to the tensor's root mean square. 0: no noise; copies with the same pretrained weights then
            differ only after training. Frozen weights get none.
        frozen_layers: Names of layers, with `*` and `?`, whose weights are not trained; their batch normalisations use
            the pretrained statistics. They are common to all tasks, unless their copies are parts beside them
            (`copies`). None: no layer is frozen.
        copies: What the copies of a learned layer are. `weights`: its whole block (the paper's). The others are parts
            of one frozen block, which all copies have in common: `adapter` (a narrow residual branch beside each
            convolution), `lora` (a matrix of low rank added to the weights of linear modules, attention and
            convolutions), `norm` (scale and shift of its normalisations). Copies start with pretrained behaviour, up to
            noise of about 1 %.
        copy_rank: Rank of the copies `adapter` and `lora`.
        feature_cache: Where the outputs of the frozen layers before the first trained one are kept, which are computed
            once for each training image: `memory`, a folder for files that later runs find again (for example
            `~/.cache/lws_lightning`), or `off`. Results differ only by rounding.
        max_images_per_pass: Bounds the memory of a training step: its populations are computed in consecutive passes,
            none of which computes more images than this at any layer. An image counts once for each distinct prefix of
            the assignments it is computed under. At least the batch size. None: one pass. Results differ only by
            rounding.
        loss_weights: Weight of each task in the mean over tasks that is minimised: a list in task order, or by task
            name (tasks not named get 1). Only ratios matter; equal weights are the paper's. Logged losses are
            unweighted. Adam normalises the size of gradients, so loss weights matter where tasks share and hardly for
            weights that only one task uses.
        ema_decay: Decay of an exponential moving average of weights and running statistics, in (0, 1), that
            evaluations, predictions and exports use; after n steps at most `(1 + n) / (10 + n)`. None: the current
            weights are used, as in the paper.
        seed: For initial weights, populations and all other random draws. None: the seed of `seed_everything`.

    Attributes:
        scheme: How the networks share weights, and the training step.
        network: The networks of the T tasks.
        average: The moving average of the weights (`ema_decay`), or None.
        distribution: The search distribution; None if the method does not search.
        objective: What is minimised.
        stopping: Per-task early stopping, or None.
        update: The weight update.
        evaluations: The last evaluation for each prefix.
    """

    neutral_options: ClassVar[frozenset[str]] = frozenset({"feature_cache", "max_images_per_pass", "validation_prefix"})
    """Options that affect results by rounding at most; not part of `identity`."""
    state_options: ClassVar[frozenset[str]] = frozenset(
        {
            "network",
            "task_names",
            "num_classes",
            "image_shape",
            "weights_per_layer",
            "learned_layers",
            "frozen_layers",
            "copies",
            "copy_rank",
            "network_input",
            "seed",
        }
    )
    """Options that the state in a checkpoint depends on: a run cannot resume with another value."""
    state_values: ClassVar[Mapping[str, Any]] = {
        "running_stats": "per_task",
        "ema_decay": None,
        "decoupled_decay": True,
    }
    """Option values that change what the state contains: a run cannot resume with a change from or to them."""
    start_options: ClassVar[frozenset[str]] = frozenset({"initialization", "pretrained_weights", "perturb_copies"})
    """Options of the initial networks, which have no effect on a resumed run."""
    training_options: ClassVar[frozenset[str]] = frozenset(
        {
            "lr",
            "weight_decay",
            "decoupled_decay",
            "lr_schedule",
            "warmup_steps",
            "adam_eps",
            "clip_grad_norm",
            "running_stats",
            "initialization",
            "pretrained_weights",
            "perturb_copies",
            "loss_weights",
            "ema_decay",
        }
    )
    """Options of every method for training the weights; a report warns where rows differ in them."""

    def __init__(
        self,
        design: Design,
        network: str | NetworkBuilder,
        task_names: Sequence[str],
        num_classes: Sequence[int],
        image_shape: Sequence[int],
        validation_prefix: str = "val",
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        decoupled_decay: bool = False,
        lr_schedule: LRSchedule = "constant",
        warmup_steps: int = 0,
        adam_eps: float = 1e-8,
        clip_grad_norm: float | None = None,
        running_stats: RunningStats = "mean",
        initialization: Initialization | None = None,
        learned_layers: list[str] | None = None,
        pretrained_weights: str | None = None,
        network_input: NetworkInput = None,
        perturb_copies: float = 0.0,
        frozen_layers: list[str] | None = None,
        copies: Copies = "weights",
        copy_rank: int = 8,
        feature_cache: str = "memory",
        max_images_per_pass: int | None = None,
        loss_weights: dict[str, float] | list[float] | None = None,
        ema_decay: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.save_hyperparameters(self.constructor_options(MultiTaskMethod))
        check_task_info(task_names, num_classes, image_shape)
        check_training_options(lr, adam_eps, clip_grad_norm, max_images_per_pass, perturb_copies, ema_decay)
        check_copies(copies, copy_rank)
        if design.patience is not None and validation_prefix == "test_curve":
            raise ValueError(
                "Early stopping needs validation images, but with data.validation: none the validation loop sees test "
                "images, which must not be used for selection. Set data.validation: split (or unused)."
            )
        self.method_name = design.name
        self.network_name = network if isinstance(network, str) else getattr(network, "__name__", "callable")
        self.task_names, self.num_classes = list(task_names), list(num_classes)
        self.image_shape = tuple(image_shape)
        self.validation_prefix = validation_prefix
        self.seed = resolve_seed(seed)
        self.lr, self.weight_decay, self.adam_eps = lr, weight_decay, adam_eps
        self.decoupled_decay = decoupled_decay
        self.lr_schedule, self.warmup_steps = lr_schedule, warmup_steps
        self.max_images_per_pass, self.ema_decay = max_images_per_pass, ema_decay
        self.feature_cache = feature_cache

        self.network_input = read_network_input(network_input, network, pretrained_weights, self.image_shape[0])
        if "network_input" in self.hparams:  # the values, which do not depend on the source of the weights
            self.hparams["network_input"] = self.network_input
        base = build_network(network, image_shape, pretrained_weights, self.network_input)
        base = choose_learned_layers(base, learned_layers)
        base = choose_frozen_layers(base, frozen_layers, learned_layers, copies)
        blueprint = Blueprint(
            base,
            self.task_names,
            self.num_classes,
            self.image_shape,
            self.seed,
            initialization,
            perturb_copies,
            copies,
            copy_rank,
        )
        if design.all_learned:
            blueprint = blueprint.all_learned()
        self.block_names = [layer.name for layer in base.layers]
        self.layer_names = blueprint.layer_names
        self.scheme = design.scheme(blueprint)  # the base is not kept: it may hold functions, which cannot be pickled
        self.network: TaskNetworks = self.scheme.network
        self.network.set_running_stats(running_stats)
        self.weights_per_layer = self.network.weights_per_layer
        self.distribution: SearchDistribution | None = self.scheme.distribution
        self.average: TaskNetworks | None = None
        if ema_decay is not None:
            self.average = copy.deepcopy(self.network, frozen_tensors(self.network)).requires_grad_(False)
        self.objective = design.objective(len(self.task_names), normalised_weights(loss_weights, task_names))
        self.stopping: EarlyStopping | None = None
        if design.patience is not None:
            self.stopping = EarlyStopping(self.scheme.unshared(), design.patience)

        self.progress = FitProgress()
        self.engine = LightningEngine(self, self.progress)
        self.update = WeightUpdate(
            self.network,
            self.objective,
            self.engine,
            self.task_names,
            self.seed,
            clip_grad_norm=clip_grad_norm,
            max_images_per_pass=max_images_per_pass,
            average=self.average,
            ema_decay=ema_decay or 0.0,
            stopping=self.stopping,
            penalty=self.scheme.penalty,
        )
        self.errors = TaskErrors(len(self.task_names))
        self.evaluations: dict[str, Evaluation] = {}
        self._evaluated_assignment = self.assignment
        self._data_record: DataRecord | None = None
        self._schedule_steps = 0
        self._saved_schedule_steps: int | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The options that a result depends on, as plain values: all but `neutral_options`; seed and K_l as in use.

        A subclass adds options that do not affect results to `neutral_options`. Run records, reports, sweeps and
        checkpoints compare identities.
        """
        options = {**self.hparams, "seed": self.seed, "weights_per_layer": self.weights_per_layer}
        return options_to_json(options, without=self.neutral_options)

    # Predictions and evaluations

    @property
    def assignment(self) -> Tensor:
        """The assignment for inference, `(L, T)` int64 on the CPU; `(0, T)` if tasks mix instead of choosing copies."""
        return self.scheme.assignment

    @property
    def evaluated_network(self) -> TaskNetworks:
        """The networks that evaluations use: those with averaged weights if `ema_decay` is set."""
        return self.network if self.average is None else self.average

    def inference_network(self, task: int) -> tuple[TaskNetworks, Tensor]:
        """Returns the networks and the assignment that predictions of a task use.

        With early stopping these are the task's best networks, but evaluations during training use the current weights.
        """
        during_fit = trainer_of(self) is not None and self.trainer.state.fn == "fit" and self.trainer.validating
        if self.stopping is None or during_fit or not self.stopping.has_best(task):
            return self.evaluated_network, self.assignment
        return self.stopping.best, self.stopping.best_assignment

    def task_index(self, task: int | str) -> int:
        """Returns the index of a task.

        Raises:
            ValueError: If there is no such task; the message lists the tasks.
        """
        if isinstance(task, str) and task in self.task_names:
            return self.task_names.index(task)
        if isinstance(task, int) and 0 <= task < len(self.task_names):
            return task
        raise ValueError(f"There is no task {task!r}; the tasks are: {', '.join(map(repr, self.task_names))}.")

    @property
    def data_record(self) -> DataRecord:
        """What is known about the data, from the Trainer's DataModule or else from the checkpoint."""
        trainer = trainer_of(self)
        datamodule = None if trainer is None else getattr(trainer, "datamodule", None)
        if datamodule is not None:
            return DataRecord.of(datamodule, self.num_classes)
        return self._data_record or DataRecord.of(None, self.num_classes)

    def forward(self, images: Tensor, task: int | str) -> Tensor:
        """Runs one task's own network.

        Args:
            images: `(N, C, H, W)`, uint8 in [0, 255] or floating point in [0, 1].
            task: Its index or name.

        Returns:
            `(N, classes)` logits.
        """
        index = self.task_index(task)
        networks, assignment = self.inference_network(index)
        return networks.forward_task(to_inputs(images, networks.dtype), assignment, index)

    def details(self) -> dict[str, Any]:
        """Returns what a record stores about the sharing besides the assignment, as plain values."""
        stopping = {} if self.stopping is None else self.stopping.details(self.task_names)
        details = self.scheme.details() | self.objective.details(self.task_names) | stopping
        if frozen_tensors(self.network):
            trained = self.network.parameters_in_use(self.assignment, trained_only=True)
            details |= {"trained_parameters_in_use": trained}
        return details

    # Training

    def configure_callbacks(self) -> Sequence[Callback]:
        """Refuses unsupported Trainer options, and adds the default callbacks that the user has not given."""
        # Here, because callbacks import methods.
        from lws_lightning.callbacks import ErrorMonitor, RunRecord, SharingMonitor

        check_trainer(self.trainer)
        check_precision(self.trainer, self.ema_decay)
        batch_size = getattr(getattr(self.trainer, "datamodule", None), "batch_size", None)
        if self.trainer.training and isinstance(batch_size, int):  # refuses a bound that is too small for any pass
            self.network.passes(self.assignment.unsqueeze(0), batch_size, self.max_images_per_pass)
        claim_folder(self.trainer)
        save_checkpoints_atomically(self.trainer)
        check_images(self)
        present = {type(callback) for callback in self.trainer.callbacks}  # type: ignore[attr-defined]
        with_a_place = (RunRecord, ErrorMonitor) if has_output_location(self.trainer) else ()
        defaults: tuple[type[Callback], ...] = (SharingMonitor, *with_a_place)
        return [self.progress, *(callback() for callback in defaults if callback not in present)]

    def setup(self, stage: str) -> None:
        """Lets checkpoint callbacks save the last good state when an error or Ctrl-C ends the run."""
        # Buffers are equal on all ranks by construction, and pi stays on the CPU.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]
        self.engine.save_on_exception(not self.engine.ranks.is_distributed)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Creates Adam over all trainable weights, and the schedule that advances with each step."""
        total_steps = self.trainer.estimated_stepping_batches if self.lr_schedule != "constant" else 0
        if total_steps == float("inf"):
            raise ValueError(f"lr_schedule {self.lr_schedule} needs an end: set trainer.max_steps or max_epochs.")
        self._schedule_steps = int(total_steps)
        adam = torch.optim.AdamW if self.decoupled_decay else torch.optim.Adam
        optimizer = adam(self._parameter_groups(), eps=self.adam_eps, fused=True)
        factor = lr_factor(self.lr_schedule, self.warmup_steps, self._schedule_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        # The interval is for LearningRateMonitor; Lightning itself steps no schedule under manual optimization.
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _parameter_groups(self) -> list[dict[str, Any]]:
        gate_lr = self.lr * self.scheme.gate_lr_factor
        return parameter_groups(self.network, self.objective, self.lr, gate_lr, self.weight_decay)

    def on_fit_start(self) -> None:
        """Lets the DataModule compute what the frozen layers before the first trained one make of each image."""
        use_features = getattr(getattr(self.trainer, "datamodule", None), "use_features", None)
        if use_features is not None:
            use_features(frozen_prefix_of(self, self.trainer.datamodule, self.feature_cache))  # type: ignore[attr-defined]

    def on_train_start(self) -> None:
        """Checks that all processes train the same networks; makes up for a missed evaluation."""
        for message in self.scheme.begin(self.trainer.estimated_stepping_batches):
            rank_zero_info(message)
        data = getattr(self.trainer, "datamodule", None)
        optimizer = self.optimizers().optimizer  # type: ignore[union-attr]
        require_equal(
            {
                "the seeds (seed_everything)": self.seed,
                "the data's options": None if data is None else data.state_dict(),
                "pi, weights or running statistics": self.state_dict(),
                "Adam's state": optimizer.state_dict()["state"],
                "the step": self.global_step,
            },
            self.device,
        )
        ranks = self.engine.ranks
        if ranks.is_distributed:
            share = "draws its own images" if ranks.distribute == "examples" else "computes some of the tasks"
            rank_zero_info(f"{ranks.world_size} processes; each {share} (data.distribute: {ranks.distribute}).")
        resume_schedule(self, self._saved_schedule_steps, self._schedule_steps)
        self._saved_schedule_steps = None
        self.progress.begin(self.trainer)
        if not self.update.tasks_in_training():
            self.trainer.should_stop = True

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Makes the scheme's step: an update of the weights, preceded by one of pi if there is a search."""
        if not self.update.tasks_in_training():  # trainer.min_steps asks for more: count an empty step
            self.update.skip()
            return
        try:
            metrics = self.scheme.step(self.update, batch)
        except NonFiniteError:  # raised on all ranks, before anything has changed
            self.engine.save_on_exception(True)
            raise
        if self.global_step % self.trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            for tag, value in metrics.items():
                self.log(tag, value, batch_size=1, prog_bar=tag == "train/loss")

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ends the run if a signal asked for it: the step is complete and all callbacks have seen it."""
        self.progress.after_step(self.trainer)

    def on_train_end(self) -> None:
        """Evaluates and saves the last step if the intervals have skipped it."""
        self.progress.finish(self.trainer)

    # Evaluation

    def on_validation_start(self) -> None:
        """Starts watching for signals, also in a sanity check before the first step."""
        self.progress.watch(self.trainer)

    def on_validation_epoch_start(self) -> None:
        """Resets the error counts."""
        self.errors.reset()
        self._evaluated_assignment = self.assignment

    def validation_step(self, batch: EvaluationBatch, batch_idx: int) -> None:
        """Evaluates a batch of one task."""
        self._evaluate(batch)
        self.progress.after_evaluation_batch(self.trainer)

    def on_validation_epoch_end(self) -> None:
        """Logs the errors under `validation_prefix`, and decides which tasks stop early."""
        self._finish_evaluation(self.validation_prefix)
        if self.stopping is not None and self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            network, assignment = self.evaluated_network, self.assignment
            counts = self.errors.compute()[:, :2].round().to(torch.int64)
            for message in self.stopping.judge(network, assignment, counts, self.global_step, self.task_names):
                rank_zero_info(message)
            if not self.update.tasks_in_training():
                self.trainer.should_stop = True
        self.progress.evaluated(self.trainer)

    def on_validation_end(self) -> None:
        """Ends the run if a signal asked for it."""
        self.progress.after_evaluation(self.trainer)

    def on_test_epoch_start(self) -> None:
        """Resets the error counts."""
        self.on_validation_epoch_start()

    def test_step(self, batch: EvaluationBatch, batch_idx: int) -> Tensor | None:
        """Evaluates a batch of test images of one task; returns the logits `(N, classes)`, None without images."""
        return self._evaluate(batch)

    def on_test_epoch_end(self) -> None:
        """Logs the errors under `test/`."""
        self._finish_evaluation("test")

    def predict_step(self, batch: PredictionBatch, batch_idx: int) -> dict[int, Tensor]:
        """Computes class probabilities.

        Args:
            batch: Images and the tasks to predict.
            batch_idx: Unused.

        Returns:
            For each task, `(N, classes)` float32.
        """
        if len(batch.images) == 0:
            return {}
        # In float32 even if the networks are in half precision, as in training.
        images = self.data_record.normalized(batch.images)
        return {task: self(images, task).float().softmax(-1) for task in batch.tasks}

    def _evaluate(self, batch: EvaluationBatch) -> Tensor | None:
        if len(batch.labels) == 0:  # if batches do not divide evenly among processes
            return None
        networks, assignment = self.inference_network(batch.task)
        if networks is self.evaluated_network:
            assignment = self._evaluated_assignment
        logits = networks.forward_task(to_inputs(batch.images, networks.dtype), assignment, batch.task)
        self.errors.update(batch.task, logits, batch.labels)
        return logits

    def _finish_evaluation(self, prefix: str) -> None:
        evaluation = self.errors.evaluation(prefix, self.global_step, self.task_names)
        if evaluation is None:
            return
        if not self.trainer.sanity_checking:
            self.evaluations[prefix] = evaluation
        for name, value in evaluation.as_metrics().items():
            self.log(name, value, batch_size=1, prog_bar=name == f"{prefix}/error")

    # Checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restricts the checkpoint to a complete step, and adds what state and options do not contain."""
        checkpoint["lws_method"] = f"{type(self).__module__}.{type(self).__qualname__}"
        checkpoint["lws_data"] = self.data_record.to_json()
        checkpoint["lws_schedule_steps"] = self._schedule_steps
        checkpoint["lws_identity"] = self.identity
        self.progress.save(self.trainer, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Applies or refuses options that differ from the checkpoint's (see `resume`); restores the run's progress."""
        self._data_record = DataRecord.from_json(checkpoint["lws_data"])
        if trainer_of(self) is None or not self.trainer.training:
            return
        self._saved_schedule_steps = checkpoint["lws_schedule_steps"]
        self.progress.load(self.trainer, checkpoint)
        # Lightning casts the module only after loading, which would round float64 weights.
        self.trainer.precision_plugin.convert_module(self)
        compare_options(self, checkpoint["lws_identity"])
        apply_adam_options(checkpoint, self._parameter_groups(), self.adam_eps)

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, trust_network: bool = False, **kwargs: Any) -> Self:
        """Loads a method from a checkpoint, as Lightning does.

        Args:
            checkpoint_path: The file.
            *args: See `LightningModule.load_from_checkpoint`.
            trust_network: Whether to import the network from an import path in the checkpoint. A checkpoint alone never
                makes this program import code.
            **kwargs: See `LightningModule.load_from_checkpoint`; options given here replace the checkpoint's.

        Raises:
            ValueError: If the checkpoint names an import path that is neither trusted nor replaced.
        """
        if "network" not in kwargs and not trust_network:
            refuse_import_path(torch.load(checkpoint_path, map_location="meta", weights_only=True))
        kwargs.setdefault("pretrained_weights", None)  # the checkpoint has the weights, and their source may be gone
        return super().load_from_checkpoint(checkpoint_path, *args, **kwargs)
