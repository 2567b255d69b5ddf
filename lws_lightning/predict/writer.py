"""Writes predictions to a CSV file atomically."""

import csv
import os
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
    """Writes a row `task, file, class, probability` for each of the most likely classes.

    Rows are ordered by image, then by task, then by decreasing probability. They go to a temporary file in the same
    folder, which replaces `path` at the end. If nothing could be predicted, nothing is written.

    Args:
        path: The file, UTF-8.
        task_names: Of all T tasks.
        class_names: Of each task; None if classes have no names and are written as numbers from 0.
        top_k: Number of classes, at least 1. A task with fewer classes has fewer rows.

    Attributes:
        images: Number of predicted images.
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
        # Not `tempfile`: only the owner can read its files, whatever the umask.
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self._file = temporary.open("w", encoding="utf-8", newline="")
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
            # A name that is invalid in the file system's encoding is not valid UTF-8 either.
            file_name = os.fsencode(file).decode("utf-8", "backslashreplace")
            for task, (values, classes) in best.items():
                names = self.class_names[task]
                for probability, index in zip(values[row], classes[row], strict=True):
                    class_name = index if names is None else names[index]
                    writer.writerow((self.task_names[task], file_name, class_name, f"{probability:.6g}"))

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Moves the file to its final path."""
        if self._file is None or self.images == 0:
            self._discard()
            return
        self._file.close()
        Path(self._file.name).replace(self.path)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Removes the temporary file."""
        self._discard()

    def _discard(self) -> None:
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink(missing_ok=True)

    def _best(self, probabilities: Tensor) -> tuple[list[list[float]], list[list[int]]]:
        """Returns the `top_k` probabilities and classes of each image; equal ones in the order of classes."""
        values, classes = torch.sort(probabilities.float().cpu(), descending=True, stable=True)
        return values[:, : self.top_k].tolist(), classes[:, : self.top_k].tolist()
