"""Logs the sharing during training: entropies as scalars, assignment and probabilities as pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lws_lightning.callbacks.checks import require_method
from lws_lightning.callbacks.tags import tags_of
from lws_lightning.callbacks.tensorboard import tensorboards
from lws_lightning.drawing import (
    affinity_figure,
    affinity_of_probabilities,
    array_png,
    assignment_figure,
    groups_text,
    picture_array,
    probabilities_figure,
)
from lws_lightning.methods import MultiTaskMethod
from lws_lightning.records import BestEffortWriter
from lws_lightning.run_folders import is_dry_run, run_folder

__all__ = ["SharingMonitor"]

_ENTROPY = "entropy/mean"


class SharingMonitor(Callback):
    """Logs the progress of the search and draws which tasks share which weights.

    Every `log_every_n_steps` steps it logs the entropy of the search distribution in nats as `entropy/mean` and
    `entropy/<layer>`, means over tasks: log K_l for uniform probabilities, 0 for a decision; and
    `sharing/distinct_weights` (copies in use over all layers) and `sharing/parameters`. Fixed sharing has no entropies.
    If no assignment describes the sharing, there are no distinct weights and no picture of the assignment.

    At each evaluation and at the end of training, TensorBoard gets the figures `sharing/assignment`,
    `sharing/probabilities` and `sharing/affinity` (how likely two tasks share a layer, with at least two tasks) and the
    histogram `sharing/probabilities_histogram`; at the end also the text `sharing/groups`. The last pictures are saved
    as PNG files in `pictures/` of the run folder, if it has one (see `run_folder`), with or without TensorBoard.

    Args:
        pictures_every_evaluation: False draws at the end only. Drawing 50 tasks with 20 copies takes a few seconds.
    """

    def __init__(self, pictures_every_evaluation: bool = True) -> None:
        self.pictures_every_evaluation = pictures_every_evaluation
        self._folder: Path | None = None
        self._drawn_at: int | None = None
        self._pictures: dict[str, NDArray[np.uint8]] = {}
        self._writer = BestEffortWriter("The pictures of the sharing")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Checks the module and notes the run folder, on every process."""
        require_method(pl_module, self)
        self._folder = run_folder(trainer)
        self._drawn_at = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Logs the scalars."""
        every: int = getattr(trainer, "log_every_n_steps", 0)
        if every < 1 or trainer.global_step % every or trainer.barebones:
            return
        module = require_method(pl_module, self)
        totals, by_layer = _scalars(module)
        for name, value in totals.items():
            pl_module.log(name, value, on_step=True, on_epoch=False, prog_bar=name == _ENTROPY)
        # After each step Lightning goes through everything ever passed to `log`, which takes half a millisecond for
        # 2 L values. So these go to the loggers directly, with the step that Lightning uses for the others.
        trainer.callback_metrics.update(by_layer)
        values = {name: float(value) for name, value in by_layer.items()}
        for logger in trainer.loggers if values else ():
            logger.log_metrics(values, step=trainer.global_step - 1)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws for TensorBoard."""
        fitting = trainer.state.fn == "fit" and not trainer.sanity_checking and not is_dry_run(trainer)
        if not (fitting and self.pictures_every_evaluation and trainer.is_global_zero):
            return
        module = require_method(pl_module, self)
        if tensorboards(trainer) and (module.distribution is not None or self._drawn_at is None):
            self._draw(trainer, module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws the last state, for TensorBoard and as files."""
        # Not in `on_fit_end`: the loggers are closed by then.
        if is_dry_run(trainer) or not trainer.is_global_zero or self._folder is None:
            return
        module = require_method(pl_module, self)
        if self._drawn_at is None or (module.distribution is not None and self._drawn_at < trainer.global_step):
            self._draw(trainer, module)
        if len(module.assignment):
            text = groups_text(module.assignment, module.layer_names, module.task_names)
            for logger in tensorboards(trainer):
                logger.experiment.add_text("sharing/groups", text, trainer.global_step)
        for name, picture in self._pictures.items():
            self._writer.write(self._folder / "pictures" / f"{name}.png", array_png(picture))
        self._pictures = {}

    def _draw(self, trainer: Trainer, module: MultiTaskMethod) -> None:
        """Renders the pictures, and shows them in TensorBoard."""
        self._drawn_at = trainer.global_step
        self._pictures = {name: picture_array(figure) for name, figure in _figures(module).items()}
        for logger in tensorboards(trainer):
            for name, picture in self._pictures.items():
                # `add_figure` would import pyplot, which is global state.
                logger.experiment.add_image(f"sharing/{name}", picture, trainer.global_step, dataformats="HWC")
            if module.distribution is not None:
                probs = module.distribution.probs
                copies = torch.arange(probs.shape[-1])
                real = copies < torch.tensor(module.weights_per_layer)[:, None, None]
                logger.experiment.add_histogram(
                    "sharing/probabilities_histogram", probs[real.expand_as(probs)], trainer.global_step
                )


def _figures(module: MultiTaskMethod) -> dict[str, Figure]:
    names = module.layer_names, module.task_names, module.weights_per_layer
    figures = {}
    if len(module.assignment):
        likely = None if module.distribution is None else module.distribution.probs.amax(-1)
        figures["assignment"] = assignment_figure(module.assignment, *names, probabilities=likely)
    if module.distribution is not None:
        figures["probabilities"] = probabilities_figure(module.distribution.probs, *names)
        if len(module.task_names) > 1:
            affinity = affinity_of_probabilities(module.distribution.probs)
            subtitle = "The probability that both use the same copy, from the search distribution."
            figures["affinity"] = affinity_figure(affinity, *names[:2], subtitle=subtitle)
    return figures


def _scalars(module: MultiTaskMethod) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Returns the scalars over all layers, and those of each layer."""
    # `log` leaves CPU tensors where they are; a number would be copied to the GPU and back.
    totals = {"sharing/parameters": torch.tensor(float(module.network.parameters_in_use(module.assignment)))}
    if len(module.assignment):
        distinct = sum(len(set(row)) for row in module.assignment.tolist())
        totals["sharing/distinct_weights"] = torch.tensor(float(distinct))
    layers: dict[str, torch.Tensor] = {}
    if module.distribution is not None:
        by_layer = module.distribution.entropy().mean(1)
        totals[_ENTROPY] = by_layer.mean()
        tags = tags_of(module.layer_names)
        layers = {f"entropy/{tag}": value for tag, value in zip(tags, by_layer, strict=True)}
    return totals, layers
