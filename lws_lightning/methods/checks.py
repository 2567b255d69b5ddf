"""Refuses invalid options before training starts, with the reason and the remedy."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

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
from lightning.pytorch.utilities import rank_zero_warn

from lws_lightning.methods.record import DataRecord
from lws_lightning.networks import published_input
from lws_lightning.search import Sampling
from lws_lightning.sharing import Copies

if TYPE_CHECKING:
    from lws_lightning.methods.base import MultiTaskMethod

__all__ = [
    "check_copies",
    "check_fraction",
    "check_images",
    "check_input",
    "check_populations",
    "check_precision",
    "check_task_info",
    "check_trainer",
    "check_training_options",
]

_PRECISIONS = ("64-true", "32-true", "bf16-mixed", "16-mixed", "bf16-true")

_ALTERNATIVES: Mapping[type[Callback], str] = {
    BaseFinetuning: "To keep layers common to all tasks, set model.learned_layers",
    BatchSizeFinder: "Set data.batch_size; to bound a step's memory at any batch size, set model.max_images_per_pass",
    GradientAccumulationScheduler: "Use a larger data.batch_size",
    LearningRateFinder: "Compare values of model.lr by their errors on validation images (data.validation: split)",
    ModelPruning: "For smaller networks let tasks share more, with a smaller model.weights_per_layer or a "
    "model.weight_price; or prune what lws export writes",
    SpikeDetection: "A non-finite loss or gradient ends the run anyway; to bound large gradients, set "
    "model.clip_grad_norm",
    StochasticWeightAveraging: "Set model.ema_decay, for example 0.995; for learning rate decay, set model.lr_schedule",
    WeightAveraging: "Set model.ema_decay, for example 0.995, which needs no swapping of weights for evaluations",
}
"""Callbacks that need automatic optimization or a loss returned by the training step, and the alternative."""


def check_task_info(task_names: Sequence[str], num_classes: Sequence[int], image_shape: Sequence[int]) -> None:
    """Raises ValueError if the information about the data is inconsistent."""
    remedy = "These values come from the data: pass **datamodule.task_info."
    if not task_names or len(task_names) != len(num_classes):
        raise ValueError(f"There are {len(task_names)} task_names but {len(num_classes)} num_classes. {remedy}")
    if len(set(task_names)) != len(task_names):
        raise ValueError(f"task_names must differ from each other, but are {list(task_names)}. {remedy}")
    if min(num_classes) < 2:
        small = task_names[num_classes.index(min(num_classes))]
        raise ValueError(f"Every task needs at least two classes, but task {small!r} has fewer.")
    if len(image_shape) != 3:
        raise ValueError(f"image_shape must be (channels, height, width), but is {list(image_shape)}. {remedy}")


def check_populations(nes_samples: int, sgd_samples: int, nes_lr: float, sampling: Sampling) -> None:
    """Raises ValueError if an option for drawing populations or updating pi is out of range."""
    if nes_samples < 2:
        raise ValueError(f"nes_samples must be at least 2 to rank assignments, but is {nes_samples}.")
    if sgd_samples < 1:
        raise ValueError(f"sgd_samples must be at least 1, but is {sgd_samples}.")
    if not nes_lr >= 0:
        raise ValueError(f"nes_lr must not be negative, but is {nes_lr}.")
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling must be independent or systematic, but is {sampling!r}.")


def check_copies(copies: Copies, copy_rank: int) -> None:
    """Raises ValueError if the kind of copies is unknown or their rank is not positive."""
    if copies not in get_args(Copies):
        raise ValueError(f"copies must be one of {', '.join(get_args(Copies))}, but is {copies!r}.")
    if copy_rank < 1:
        raise ValueError(f"copy_rank must be at least 1, but is {copy_rank}.")


def check_images(method: "MultiTaskMethod") -> None:
    """Compares what a method's network does with its images with what the data and the pretrained weights say.

    Raises:
        ValueError: If both the data and the network normalise the images.
    """
    weights, network = method.hparams.get("pretrained_weights"), method.hparams.get("network")
    if method.trainer.training and isinstance(network, str) and (weights or method.network_input) is not None:
        published = None if weights is None else published_input(network, weights)
        check_input(method.network_input, published, method.data_record, method.image_shape)


def check_input(
    network_input: Mapping[str, Any] | None,
    published: Mapping[str, Any] | None,
    data: DataRecord,
    image_shape: Sequence[int],
) -> None:
    """Compares what a network does with its images with what the data and the pretrained weights say.

    Args:
        network_input: The values in use; None: the network takes the images as they are.
        published: The input of the pretrained weights (see `published_input`); None: unknown.
        data: What is known about the data.
        image_shape: `(C, H, W)`.

    Raises:
        ValueError: If both the data and the network normalise the images.
    """
    normalization = data.normalization(image_shape[0])
    if network_input is not None:
        if normalization is not None and (any(network_input["mean"]) or set(network_input["std"]) != {1.0}):
            raise ValueError(
                "model.network_input normalises the images, and so do the data: set data.normalization: none, or leave "
                "out network_input."
            )
        return
    if published is None or data.preprocessing is None or image_shape[0] != 3:
        return
    mean, std = normalization or ([0.0] * 3, [1.0] * 3)
    far = max(abs(a - b) for a, b in zip([*mean, *std], [*published["mean"], *published["std"]], strict=True)) > 0.01
    if far or 2 * min(image_shape[1:]) < published["size"]:
        rank_zero_warn(
            f"The pretrained weights were trained on images of {published['size']} pixels a side, normalised with mean "
            f"{published['mean']} and std {published['std']}; the network gets {image_shape[1]}x{image_shape[2]} "
            f"pixels, with mean {mean} and std {std}. Set model.network_input: weights for their own (or, for example, "
            "{size: 112})."
        )


def check_fraction(name: str, value: float) -> None:
    """Raises ValueError if an option that is a fraction is not in [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], because the others share the rest, but is {value}.")


def check_trainer(trainer: Trainer) -> None:
    """Raises ValueError for Trainer options that conflict with manual optimization or the protocol."""
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
        for callback_type, alternative in _ALTERNATIVES.items():
            if isinstance(callback, callback_type):
                raise ValueError(
                    f"The callback {type(callback).__name__} cannot work, because this method optimises manually. "
                    f"{alternative}."
                )
        monitor = getattr(callback, "monitor", None)
        if isinstance(monitor, str) and monitor.split("/")[0] in ("test_curve", "test"):
            raise ValueError(
                f"{type(callback).__name__} monitors {monitor!r}, but test images must not be used for selection. Set "
                "data.validation: split (or unused) and monitor 'val/error'."
            )


def check_precision(trainer: Trainer, ema_decay: float | None) -> None:
    """Raises ValueError for a precision that is not supported, alone or with averaged weights."""
    if trainer.precision not in _PRECISIONS:
        why = "gradients in float16 need a scaler" if trainer.precision == "16-true" else "it has not been tested"
        raise ValueError(
            f"trainer.precision {trainer.precision} cannot work, because {why}. Choose one of {', '.join(_PRECISIONS)}."
        )
    if trainer.precision == "bf16-true" and ema_decay is not None:
        raise ValueError(
            "model.ema_decay cannot work with trainer.precision bf16-true: an update of the average is smaller than "
            "the resolution of bfloat16. Use bf16-mixed, or leave ema_decay out."
        )


def _check_strategy(trainer: Trainer) -> None:
    """Refuses strategies that cannot divide a step as docs/distributed.md describes."""
    strategy = trainer.strategy
    name = f"trainer.strategy {type(strategy).__name__}"
    remedy = "Set trainer.strategy: ddp, or trainer.devices: 1 (see docs/distributed.md)."
    if isinstance(strategy, FSDPStrategy | ModelParallelStrategy | DeepSpeedStrategy):
        raise ValueError(
            f"{name} cannot work: it shards the weights and gathers them for the forward pass of the whole module, but "
            "a training step here runs several forward and backward passes, each through different weights. "
            f"{remedy} To save memory, set model.max_images_per_pass."
        )
    if isinstance(strategy, SingleDeviceStrategy):
        return
    if not isinstance(strategy, DDPStrategy) or isinstance(strategy, XLAStrategy):
        raise ValueError(f"{name} is not supported: pi would diverge between its processes. {remedy}")
    if strategy._ddp_kwargs.get("static_graph"):
        raise ValueError(
            f"{name} with static_graph=True cannot work, because every step uses different weights. "
            "Leave static_graph out."
        )
    if strategy._ddp_comm_hook is not None or strategy._model_averaging_period is not None:
        raise ValueError(
            f"{name} with ddp_comm_hook or model_averaging_period has no effect, because the method itself sums the "
            "gradients of all processes, once per step. Leave these options out."
        )
    processes = max(trainer.world_size, trainer.num_devices * trainer.num_nodes)
    if processes > 1 and trainer.overfit_batches:  # type: ignore[attr-defined]
        raise ValueError(
            "trainer.overfit_batches cannot work with several processes, because Lightning would distribute the "
            "repeated batches in its own way. Set trainer.devices: 1."
        )
    if getattr(strategy, "_layer_sync", None) is not None:
        raise ValueError(
            "trainer.sync_batchnorm cannot work, because it would normalise the images of several tasks together. "
            "Leave it out; with data.distribute: tasks every task's whole batch is normalised on one process."
        )


def check_training_options(
    lr: float,
    adam_eps: float,
    clip_grad_norm: float | None,
    max_images_per_pass: int | None,
    perturb_copies: float,
    ema_decay: float | None,
) -> None:
    """Raises ValueError if an option that every method has is out of range; see `MultiTaskMethod`."""
    positive = {"lr": lr, "adam_eps": adam_eps, "clip_grad_norm": clip_grad_norm}
    positive["max_images_per_pass"] = max_images_per_pass
    for name, value in positive.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive, but is {value}.")
    if not perturb_copies >= 0:
        raise ValueError(f"perturb_copies must not be negative, but is {perturb_copies}.")
    if ema_decay is not None and not 0 < ema_decay < 1:
        raise ValueError(f"ema_decay must be in (0, 1), or null for no averaging, but is {ema_decay}.")
