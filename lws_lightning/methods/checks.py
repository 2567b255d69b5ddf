"""What is refused before training starts, with the reason and the remedy."""

from collections.abc import Mapping, Sequence
from typing import get_args

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    Callback,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    SpikeDetection,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.strategies import (
    DDPStrategy,
    DeepSpeedStrategy,
    FSDPStrategy,
    ModelParallelStrategy,
    SingleDeviceStrategy,
)
from lightning.pytorch.strategies.xla import XLAStrategy

from lws_lightning.search import Sampling

__all__ = ["check_populations", "check_precision", "check_share", "check_task_info", "check_trainer"]

_PRECISIONS = ("64-true", "32-true", "bf16-mixed", "16-mixed", "bf16-true")

_INSTEAD: Mapping[type[Callback], str] = {
    BaseFinetuning: "To keep layers common to all tasks, set model.learned_layers",
    BatchSizeFinder: "Set data.batch_size; to bound the memory of a step whatever it is, set model.max_images_per_pass",
    GradientAccumulationScheduler: "Use a larger data.batch_size",
    LearningRateFinder: "Compare some values of model.lr by their errors on validation images (data.validation: split)",
    ModelPruning: "For networks with fewer weights let tasks share more, by a smaller model.weights_per_layer or a "
    "model.weight_price; or prune what lws export writes",
    SpikeDetection: "A loss or gradient that is not finite ends the run by itself; to bound large ones, set "
    "model.clip_grad_norm",
    StochasticWeightAveraging: "Set model.ema_decay, for example 0.995; for a falling learning rate model.lr_schedule",
    WeightAveraging: "Set model.ema_decay, for example 0.995, with which no weights are exchanged during evaluations",
}
"""Callbacks that presuppose automatic optimization, or a loss that a training step returns, and what to do instead."""


def check_task_info(task_names: Sequence[str], num_classes: Sequence[int], image_shape: Sequence[int]) -> None:
    """Raises ValueError if what the data say of themselves does not fit together."""
    remedy = "These values come from the data: pass **datamodule.task_info."
    if not task_names or len(task_names) != len(num_classes):
        raise ValueError(f"There are {len(task_names)} task_names but {len(num_classes)} num_classes. {remedy}")
    if len(set(task_names)) != len(task_names):
        raise ValueError(f"task_names must differ from each other, but are {list(task_names)}. {remedy}")
    if min(num_classes) < 2:
        small = task_names[num_classes.index(min(num_classes))]
        raise ValueError(f"Every task needs at least two classes, but num_classes of task {small!r} is less.")
    if len(image_shape) != 3:
        raise ValueError(f"image_shape must be (channels, height, width), but is {list(image_shape)}. {remedy}")


def check_populations(nes_samples: int, sgd_samples: int, nes_lr: float, sampling: Sampling) -> None:
    """Raises ValueError if assignments cannot be drawn, or pi moved by them, as the options say."""
    if nes_samples < 2:
        raise ValueError(f"nes_samples must be at least 2 to rank assignments, but is {nes_samples}.")
    if sgd_samples < 1:
        raise ValueError(f"sgd_samples must be at least 1, but is {sgd_samples}.")
    if not nes_lr >= 0:
        raise ValueError(f"nes_lr must not be negative, but is {nes_lr}.")
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling must be independent or systematic, but is {sampling!r}.")


def check_share(name: str, value: float) -> None:
    """Raises ValueError if an option that is a share of a whole is not in [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], because the others share the rest, but is {value}.")


def check_trainer(trainer: Trainer) -> None:
    """Raises ValueError for Trainer options that manual optimization or the protocol cannot honour."""
    if trainer.gradient_clip_val:
        raise ValueError(
            "trainer.gradient_clip_val cannot work, because this method optimises manually. Use the method's own "
            f"option instead: model.clip_grad_norm: {trainer.gradient_clip_val}."
        )
    if trainer.accumulate_grad_batches != 1:
        raise ValueError(
            "trainer.accumulate_grad_batches cannot work, because this method optimises manually, and every training "
            "step is one update of pi and one of the weights. Use a larger data.batch_size instead."
        )
    _check_strategy(trainer)
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        for kind, instead in _INSTEAD.items():
            if isinstance(callback, kind):
                raise ValueError(
                    f"The callback {type(callback).__name__} cannot work, because this method optimises manually. "
                    f"{instead}."
                )
        monitor = getattr(callback, "monitor", None)
        if isinstance(monitor, str) and monitor.split("/")[0] in ("test_curve", "test"):
            raise ValueError(
                f"{type(callback).__name__} monitors {monitor!r}, but nothing may be selected by test images. Set "
                "data.validation: split (or unused) and monitor 'val/error'."
            )


def check_precision(trainer: Trainer, ema_decay: float | None) -> None:
    """Raises ValueError for a precision in which weights, or an average of them, cannot be kept."""
    if trainer.precision not in _PRECISIONS:
        why = "gradients in float16 need a scaler" if trainer.precision == "16-true" else "it has not been tried"
        raise ValueError(
            f"trainer.precision {trainer.precision} cannot work, for {why}. Choose one of {', '.join(_PRECISIONS)}."
        )
    if trainer.precision == "bf16-true" and ema_decay is not None:
        raise ValueError(
            "model.ema_decay cannot work with trainer.precision bf16-true: a step of the average is smaller than what "
            "bfloat16 resolves. Take bf16-mixed, or leave ema_decay out."
        )


def _check_strategy(trainer: Trainer) -> None:
    """Refuses strategies under which processes cannot do what `distributed` describes."""
    strategy = trainer.strategy
    name = f"trainer.strategy {type(strategy).__name__}"
    remedy = "Set trainer.strategy: ddp, or trainer.devices: 1 (see docs/distributed.md)."
    if isinstance(strategy, FSDPStrategy | ModelParallelStrategy | DeepSpeedStrategy):
        raise ValueError(
            f"{name} cannot work: it shards the weights and gathers them for the forward pass of the whole module, but "
            "a training step here runs several forward and backward passes, each through other weights. "
            f"{remedy} To save memory, set model.max_images_per_pass."
        )
    if isinstance(strategy, SingleDeviceStrategy):
        return
    if not isinstance(strategy, DDPStrategy) or isinstance(strategy, XLAStrategy):
        raise ValueError(f"{name} is not known to work: pi would drift apart between its processes. {remedy}")
    if strategy._ddp_kwargs.get("static_graph"):
        raise ValueError(
            f"{name} with static_graph=True cannot work, because every step uses other weights than the one before. "
            "Leave static_graph out."
        )
    if strategy._ddp_comm_hook is not None or strategy._model_averaging_period is not None:
        raise ValueError(
            f"{name} with ddp_comm_hook or model_averaging_period has no effect, because the method itself adds up the "
            "gradients of all processes, once a step. Leave these options out."
        )
    processes = max(trainer.world_size, trainer.num_devices * trainer.num_nodes)
    if processes > 1 and trainer.overfit_batches:  # type: ignore[attr-defined]
        raise ValueError(
            "trainer.overfit_batches cannot work with several processes, for Lightning would deal the repeated batches "
            "out to them in its own way. Set trainer.devices: 1."
        )
    if getattr(strategy, "_layer_sync", None) is not None:
        raise ValueError(
            "trainer.sync_batchnorm cannot work, because it would normalise the images of several tasks together. "
            "Leave it out; with data.distribute: tasks every task's batch is normalised whole."
        )
