"""Writes predictions into a CSV file that is never there half."""

import csv
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from lws_lightning.batches import PredictionBatch

__all__ = ["PredictionWriter"]


class PredictionWriter(Callback):
    """Writes a row `task, file, class, probability` for each of the likeliest classes.

    Rows are ordered by image, then by task, then by falling probability. They go into a file beside `path`, which takes
    its place at the end. If nothing could be predicted, nothing is written.

    Args:
        path: The file, UTF-8.
        task_names: Of all T tasks.
        class_names: Of each task; None where classes have none, which are then written as numbers from 0.
        top_k: Of how many classes; at least 1. A task with fewer classes has fewer rows.

    Attributes:
        images: How many were predicted.
        broken: Files that could not be read, each with the reason.
    """

    def __init__(
        self, path: str | Path, task_names: Sequence[str], class_names: Sequence[Sequence[str] | None], top_k: int = 1
    ) -> None:
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, but is {top_k}.")
        self.path, self.top_k = Path(path), top_k
        self.task_names, self.class_names = list(task_names), list(class_names)
        self.images = 0
        self.broken: list[tuple[str, str]] = []
        self._file: IO[str] | None = None

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Opens the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 (closed at the end of the run)
            "w", encoding="utf-8", newline="", dir=self.path.parent, prefix=f".{self.path.name}.", delete=False
        )
        csv.writer(self._file, lineterminator="\n").writerow(("task", "file", "class", "probability"))

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: PredictionBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Writes the rows of a batch."""
        self.broken += batch.broken
        self.images += len(batch.files)
        best = {task: self._best(probabilities) for task, probabilities in (outputs or {}).items()}
        assert self._file is not None
        writer = csv.writer(self._file, lineterminator="\n")
        for row, file in enumerate(batch.files):
            # A name that is not valid in the file system's encoding is no valid UTF-8 either.
            shown = os.fsencode(file).decode("utf-8", "backslashreplace")
            for task, (values, classes) in best.items():
                for probability, number in zip(values[row], classes[row], strict=True):
                    writer.writerow((self.task_names[task], shown, self._class(task, number), f"{probability:.6g}"))

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts the file into its place, with the permissions of any other."""
        if self._file is None or self.images == 0:
            self._discard()
            return
        self._file.close()
        umask = os.umask(0)
        os.umask(umask)
        Path(self._file.name).chmod(0o666 & ~umask)
        Path(self._file.name).replace(self.path)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leaves nothing behind."""
        self._discard()

    def _discard(self) -> None:
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink(missing_ok=True)

    def _best(self, probabilities: Tensor) -> tuple[list[list[float]], list[list[int]]]:
        """Returns values and classes, of equal ones the first class first."""
        values, classes = torch.sort(probabilities.float().cpu(), descending=True, stable=True)
        return values[:, : self.top_k].tolist(), classes[:, : self.top_k].tolist()

    def _class(self, task: int, number: int) -> str | int:
        names = self.class_names[task]
        return number if names is None else names[number]
