"""What a run says at its end: the error, whether the search has settled, the parameters, and what to do next."""

import math
import shlex
from pathlib import Path

import torch

from lws_lightning.methods import MultiTaskMethod, trainer_of
from lws_lightning.records import Decisions, Evaluation, probabilities_by_copy
from lws_lightning.sharing import MultiTaskNetwork

__all__ = ["decisions_of", "run_summary"]

_LEARNED_BY_HEART, _FEW_ERRORS = 0.05, 5.0  # nats of training loss, percent of the images of an evaluation
_IMAGES = {"val": "validation images", "test": "test images", "test_curve": "test images"}


def run_summary(method: MultiTaskMethod, evaluation: Evaluation | None, folder: Path | None) -> list[str]:
    """Returns up to five lines about a finished run.

    Args:
        method: The trained method.
        evaluation: Its last evaluation; None if there was none.
        folder: Of the run; None if it leaves no files.
    """
    lines = ["Error: not evaluated." if evaluation is None else f"Error: {_error_text(evaluation)}."]
    if (decisions := decisions_of(method)) is not None:
        lines.append(f"Search: {decisions}{'' if decisions.settled else f'. {_remedy(method)}'}.")
    if evaluation is not None and (hint := _overfitting(method, evaluation)):
        lines.append(hint)
    lines.append(f"Parameters: {_parameters_text(method)}.")
    if folder is not None:
        if folder.is_relative_to(Path.cwd()):
            folder = folder.relative_to(Path.cwd())
        run = shlex.quote(str(folder))
        report = f"lws report {shlex.quote(str(folder.parent))}"
        lines.append(f"Run: {run}. Next: lws export --ckpt_path {run} --all_tasks --format pt2, or {report}")
    return lines


def decisions_of(method: MultiTaskMethod) -> Decisions | None:
    """Returns how far a method's search has come; None without a search."""
    if method.distribution is None:
        return None
    return Decisions.of(probabilities_by_copy(method.distribution.probs.tolist(), method.weights_per_layer))


def _overfitting(method: MultiTaskMethod, evaluation: Evaluation) -> str:
    """Returns what helps a run that has learned its training images by heart, empty for any other."""
    losses = method.update.task_losses().values()
    loss = sum(losses) / len(losses) if losses else math.inf
    if not loss <= _LEARNED_BY_HEART or evaluation.error < _FEW_ERRORS:
        return ""
    trainer = trainer_of(method)
    augmentation = getattr(getattr(trainer, "datamodule", None), "augmentation", None)
    augmented = callable(augmentation) and augmentation() is not None
    return (
        f"Overfits: the training loss is {loss:.2g}, but {evaluation.error:.2f} % of the {_IMAGES[evaluation.prefix]} "
        f"are wrong. {'Augment more' if augmented else 'Augment (data.augmentation)'}, regularise "
        "(configs/options/training_plus.yaml), or start from pretrained weights (configs/options/trunk.yaml)."
    )


def _remedy(method: MultiTaskMethod) -> str:
    options = method.hparams
    if options.get("critical_z"):
        return f"Train longer, or lower model.critical_z ({options['critical_z']:g})"
    return "Train longer" + (f", or raise model.nes_lr ({options['nes_lr']:g})" if "nes_lr" in options else "")


def _error_text(evaluation: Evaluation) -> str:
    low, high = evaluation.interval
    return (
        f"{evaluation.error:.2f} % of {evaluation.images:,} {_IMAGES[evaluation.prefix]} (95 % interval over images: "
        f"{low:.2f} to {high:.2f})"
    )


def _parameters_text(method: MultiTaskMethod) -> str:
    """Returns the parameters in use, and those of no and full sharing where tasks choose between copies."""
    network = method.network
    used = f"{network.parameters_in_use(method.assignment):,}"
    if not isinstance(network, MultiTaskNetwork) or not len(method.assignment):
        return used
    full = network.parameters_in_use(torch.zeros_like(method.assignment))
    none = full + (len(method.task_names) - 1) * sum(network.layer_parameters())
    return f"{used}; without sharing {none:,}, all shared {full:,}"
