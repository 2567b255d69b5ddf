"""What every method shares: the networks, the update of the weights, evaluation, checkpoints."""

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from lightning.pytorch import Callback
from torch import nn

from lws_lightning.batches import StepBatch
from lws_lightning.methods.checks import check_pass_size, check_precision, check_task_info, check_trainer
from lws_lightning.methods.inference import count_multiply_adds, median_seconds
from lws_lightning.methods.optimization import LRSchedule
from lws_lightning.methods.progress import FitProgress
from lws_lightning.methods.resume import (
    apply_adam_options,
    compare_options,
    refuse_import_path,
)
from lws_lightning.methods.trained import TrainedMethod
from lws_lightning.methods.weighting import normalised_weights
from lws_lightning.networks import (
    BaseNetwork,
    Initialization,
    NetworkBuilder,
    build_network,
    choose_learned_layers,
    make_multi_task_network,
)
from lws_lightning.randomness import resolve_seed
from lws_lightning.records import default_options, has_own_place, plain_options, save_whole_files, take_folder
from lws_lightning.search import SearchDistribution
from lws_lightning.sharing import RunningStats, TaskNetworks

__all__ = ["MultiTaskMethod"]


class MultiTaskMethod(TrainedMethod):
    """Base of the methods: T networks made of weight sets, trained with Adam by manual optimization.

    A subclass says how many weights each layer has, which assignment is used for inference, and what a training step
    is. `global_step` counts training steps: each takes exactly one step of the one optimizer.

    Args:
        network: The base architecture: a name (`lws_lightning.networks.NETWORKS`), a classifier of torchvision as
            `torchvision:resnet18`, an import path `package.module:build`, or, from Python, a callable. What these build
            for an image shape is a `BaseNetwork`, or a classifier that can be cut into layers (docs/own_network.md). A
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
        adam_eps: What Adam adds to the root of its second moment. Where gradients have become as small as this, a rare
            large one no longer moves every weight by `lr`.
        clip_grad_norm: Largest norm of the gradient of all weights together; a larger one is scaled down. None: no
            limit, as in the paper. This takes the place of `trainer.gradient_clip_val`.
        running_stats: How the running statistics of batch normalisation follow a step's visits: `mean` (once, towards
            the mean over the visits), `per_visit` (the authors' program) or `per_task` (as `mean`, but each task has
            statistics of its own, which costs its predictions nothing). The paper does not say.
        initialization: `torch` (PyTorch's own, which the authors' program leaves in place and which most likely made
            the paper's numbers) or `he_uniform` (what the paper says; with few images it does worse without sharing,
            see docs/design.md). None: as the network says, `torch` for the paper's.
        learned_layers: Names of the layers that may be shared, with `*` and `?` as in file names, for example
            `["layer3.*", "layer4.*"]`. The others are common to all tasks. None: as the network says.
        pretrained_weights: What every copy of a layer starts from: a file with a state dict (`.pt`, `.safetensors`), or
            for a classifier of torchvision the name of its weights, for example `IMAGENET1K_V1`. Heads are fresh. None:
            from random weights.
        perturb_copies: Random numbers with this times the root mean square of each tensor of weights are added to it
            at the start, in each copy by itself. 0: none; copies with the same pretrained weights then differ only once
            they have been trained.
        max_images_per_pass: Bounds the memory of a training step. Its populations are computed in several passes, one
            after the other, none of which computes more images at any layer; an image counts once for each distinct
            prefix of the assignments that it is computed under. At least the batch size. None: in one pass. Results
            differ by rounding only.
        loss_weights: How much each task counts in the mean over tasks that is minimised: a number for each task in
            order, or by name, where a task without one weighs 1. Only their ratios matter; equal weights are those of
            the paper. The logged losses are without weights. Adam divides by the size of a gradient, so that weights
            matter where tasks share and hardly for weights that one task has alone.
        ema_decay: Evaluations, predictions and exports use an exponential moving average of the weights and running
            statistics that keeps this share of itself at each step, in (0, 1); after n steps at most
            `(1 + n) / (10 + n)`. None: they use the current weights, as in the paper.
        seed: For initial weights, populations and whatever else is drawn. None: the seed of `seed_everything`.
    """

    method_name: str
    neutral_options: ClassVar[frozenset[str]] = frozenset({"max_images_per_pass", "validation_prefix"})
    """Options that a result does not depend on, but for rounding; not part of `identity`."""
    state_options: ClassVar[frozenset[str]] = frozenset(
        {"network", "task_names", "num_classes", "image_shape", "weights_per_layer", "learned_layers", "seed"}
    )
    """Options that the state in a checkpoint depends on: a run cannot go on with another value."""
    state_values: ClassVar[Mapping[str, Any]] = {"running_stats": "per_task", "ema_decay": None}
    """Values of options with which the state holds something more or less: no run can go on from them, or to them."""
    start_options: ClassVar[frozenset[str]] = frozenset({"initialization", "pretrained_weights", "perturb_copies"})
    """Options of the networks' start, which have no effect on a run that goes on from a checkpoint."""
    training_options: ClassVar[frozenset[str]] = frozenset(
        {
            "lr",
            "weight_decay",
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
    """Options that every method has and that say how weights are trained; a report warns where rows differ in them."""

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
        adam_eps: float = 1e-8,
        clip_grad_norm: float | None = None,
        running_stats: RunningStats = "mean",
        initialization: Initialization | None = None,
        learned_layers: list[str] | None = None,
        pretrained_weights: str | None = None,
        perturb_copies: float = 0.0,
        max_images_per_pass: int | None = None,
        loss_weights: dict[str, float] | list[float] | None = None,
        ema_decay: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(task_names, validation_prefix)
        self._save_options(ignore=[] if isinstance(network, str) else ["network"])
        check_task_info(task_names, num_classes, image_shape)
        positive = {"lr": lr, "adam_eps": adam_eps, "clip_grad_norm": clip_grad_norm}
        positive["max_images_per_pass"] = max_images_per_pass
        for name, value in positive.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, but is {value}.")
        if not perturb_copies >= 0:
            raise ValueError(f"perturb_copies must not be negative, but is {perturb_copies}.")
        if ema_decay is not None and not 0 < ema_decay < 1:
            raise ValueError(f"ema_decay must be in (0, 1), or null for no average of the weights, but is {ema_decay}.")
        self.automatic_optimization = False
        self.progress = FitProgress()
        self.network_name = network if isinstance(network, str) else getattr(network, "__name__", "callable")
        self.num_classes = list(num_classes)
        self.lr, self.weight_decay = lr, weight_decay
        self.lr_schedule, self.warmup_steps, self.adam_eps = lr_schedule, warmup_steps, adam_eps
        self.clip_grad_norm = clip_grad_norm
        self.max_images_per_pass = max_images_per_pass
        self.loss_weights = normalised_weights(loss_weights, task_names)
        self.seed = resolve_seed(seed)
        self.image_shape = tuple(image_shape)
        self.initialization, self.perturb_copies = initialization, perturb_copies
        base = build_network(network, image_shape, pretrained_weights)
        base = self.choose_base(choose_learned_layers(base, learned_layers))
        self.block_names = [part.name for part in base.layers]
        self.layer_names = [part.name for part in base.learned_layers]
        self.network = self.make_network(base)  # the base itself is not kept: it may hold functions, not to be pickled
        self.network.set_running_stats(running_stats)
        self.ema_decay = ema_decay
        self.average = None if ema_decay is None else copy.deepcopy(self.network).requires_grad_(False)
        self.weights_per_layer = self.network.weights_per_layer
        self.distribution: SearchDistribution | None = None
        self._multiply_adds: list[int] | None = None

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

    @property
    def identity(self) -> dict[str, Any]:
        """The options that a result depends on, as plain values: all but `neutral_options`; seed and K_l as in force.

        A subclass with options that have no consequence for a result adds them to `neutral_options`. The record of a
        run, reports, sweeps and checkpoints compare identities.
        """
        options = {**self.hparams, "seed": self.seed, "weights_per_layer": self.weights_per_layer}
        return plain_options(options, without=self.neutral_options)

    @classmethod
    def default_options(cls) -> dict[str, Any]:
        """Returns the default values of the options, as plain values."""
        return default_options(cls, MultiTaskMethod)

    # What a subclass says

    def choose_base(self, base: BaseNetwork) -> BaseNetwork:
        """Returns the base architecture, where a method wants it changed."""
        return base

    def choose_weights_per_layer(self, base: BaseNetwork) -> Sequence[int]:
        """Returns K_l for each learned layer, for `make_network`."""
        raise NotImplementedError

    def make_network(self, base: BaseNetwork) -> TaskNetworks:
        """Makes the networks of the T tasks; here weight sets that an assignment chooses from."""
        sizes = self.choose_weights_per_layer(base)
        return make_multi_task_network(
            base, self.num_classes, sizes, self.seed, self.initialization, self.perturb_copies
        )

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Takes one Adam step under `assignment`; a method that learns it does more."""
        assignment = self.assignment
        losses = self.compute_gradients(batch.sgd, None if assignment is None else assignment.unsqueeze(0))
        self.apply_gradients()
        self.log_now({"train/loss": losses.mean()}, prog_bar=True)

    # Lightning's hooks

    def configure_callbacks(self) -> Sequence[Callback]:
        """Refuses Trainer options that cannot work, and brings the callbacks that a user has not given."""
        from lws_lightning.callbacks import RunRecord, SharingMonitor  # they know methods, so not above

        check_trainer(self.trainer)
        check_precision(self.trainer, self.ema_decay)
        check_pass_size(self.max_images_per_pass, self.trainer)
        take_folder(self.trainer)
        save_whole_files(self.trainer)
        present = {type(callback) for callback in self.trainer.callbacks}  # type: ignore[attr-defined]
        kinds = (SharingMonitor, RunRecord) if has_own_place(self.trainer) else (SharingMonitor,)
        return [kind() for kind in kinds if kind not in present]

    def setup(self, stage: str) -> None:
        """Lets checkpoint callbacks save the last good state when the run is stopped by an error or Ctrl-C."""
        # The buffers are equal on all ranks by construction, and pi stays on the CPU.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]
        self.save_on_exception(not self.ranks.several)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the identity."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["lws_identity"] = self.identity

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Obeys or refuses options that differ from the checkpoint's; see `resume`."""
        super().on_load_checkpoint(checkpoint)
        if self._trainer is None or not self.trainer.training:
            return
        # Lightning casts the module after loading, so that float64 weights would be rounded on their way.
        self.trainer.precision_plugin.convert_module(self)
        compare_options(self, checkpoint["lws_identity"])
        apply_adam_options(checkpoint, self.parameter_groups(), self.adam_eps)

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
        kwargs.setdefault("pretrained_weights", None)  # the checkpoint has weights; where those came from may be gone
        return super().load_from_checkpoint(checkpoint_path, *args, **kwargs)

    # What callbacks and results ask for

    def details(self) -> dict[str, Any]:
        """Returns what a record should say of the sharing beyond the assignment, as plain values."""
        return {}

    def parameters_in_use(self) -> int:
        """Counts the distinct parameters of the T networks under `assignment`."""
        return self.network.parameters_in_use(self.assignment)

    def parameters_total(self) -> int:
        """Counts all parameters, of all copies and heads."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def task_parameters(self, task: int) -> Iterator[nn.Parameter]:
        """Yields the parameters that a prediction of one task needs."""
        yield from self.network.task_parameters(self.assignment, task)

    def inference_parameters(self, task: int) -> int:
        """Counts the distinct parameters that a prediction of one task needs."""
        return sum(parameter.numel() for parameter in self.task_parameters(task))

    def inference_multiply_adds(self, task: int) -> int:
        """Counts the multiply-adds of convolutions and matrix products for one image of a task."""
        if self._multiply_adds is None:  # which copy a task uses changes, but not what it costs
            self._multiply_adds = count_multiply_adds(self.network, self.assignment, self.image_shape)
        return self._multiply_adds[task]

    def inference_seconds(self, batch_size: int) -> float:
        """Times the prediction of a batch by the first task's network, in eval mode, on the device where it is."""
        images = torch.zeros(batch_size, *self.image_shape, dtype=torch.uint8, device=self.device)
        with self.networks_for_inference(0).evaluating():
            return median_seconds(lambda batch: self(batch, 0), images)
