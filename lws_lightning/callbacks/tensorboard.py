"""The TensorBoard logs of a run: where they are, and the options of a run in them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

__all__ = ["drop_placeholder_metric", "tensorboards", "write_options", "writers"]


def tensorboards(trainer: Trainer) -> list[TensorBoardLogger]:
    """Returns the TensorBoard loggers of a Trainer."""
    return [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]


@contextmanager
def writers(trainer: Trainer, folder: Path | None) -> Iterator[list[SummaryWriter]]:
    """Gives the writers of a Trainer's TensorBoard logs.

    Args:
        trainer: The Trainer.
        folder: Of the run; a Trainer without a TensorBoard logger, such as that of `lws test`, goes on with the
            TensorBoard log in it, if there is one.
    """
    loggers = tensorboards(trainer)
    if loggers or folder is None or not any(folder.glob("events.out.tfevents.*")):
        yield [logger.experiment for logger in loggers]
        return
    with SummaryWriter(str(folder)) as writer:
        yield [writer]


def drop_placeholder_metric(trainer: Trainer) -> None:
    """Keeps Lightning from logging the metric `hp_metric` with the value -1 at the start of a fit.

    Only the first description of metrics in a log counts, so a later one with the error would have no effect.
    """
    for logger in tensorboards(trainer):
        logger._default_hp_metric = False


def write_options(trainer: Trainer, options: Mapping[str, Any], metrics: Sequence[str]) -> None:
    """Shows options and metrics in TensorBoard's HPARAMS.

    Args:
        trainer: At the start of a fit.
        options: Plain values by name.
        metrics: Tags of scalars; HPARAMS shows the last value of each.
    """
    values = {name: _plain(value) for name, value in options.items()}
    for logger in tensorboards(trainer):
        # Their values are logged at evaluations; here only their names count.
        for summary in hparams(values, dict.fromkeys(metrics, 0.0)):  # type: ignore[no-untyped-call]
            logger.experiment._get_file_writer().add_summary(summary)


def _plain(value: Any) -> bool | int | float | str:
    if isinstance(value, bool | int | float | str):
        return value
    return "none" if value is None else json.dumps(value)
