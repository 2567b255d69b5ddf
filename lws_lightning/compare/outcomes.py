"""Which test images a run got wrong, beside its record."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer

from lws_lightning.batches import EvaluationBatch
from lws_lightning.records import write_atomically

__all__ = ["OUTCOMES_FILE", "TestOutcomes", "read_outcomes"]

OUTCOMES_FILE = "test_outcomes.npz"


class TestOutcomes(Callback):
    """Writes for each test image of each task, in the order of the data, whether the run got it wrong.

    A comparison of two methods on the same images is more exact by the image than by the number of errors. The file
    `test_outcomes.npz`, with an array of booleans for each task by its number, is in the Trainer's `default_root_dir`;
    for a run of a sweep, that is its own folder.
    """

    __test__ = False  # not a test of pytest

    def __init__(self) -> None:
        self._wrong: dict[int, list[np.ndarray]] = {}

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forgets an earlier test."""
        self._wrong = {}

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: EvaluationBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Compares the predictions that `test_step` returns with the labels."""
        if outputs is None:
            return
        wrong = outputs.argmax(-1) != batch.labels
        self._wrong.setdefault(batch.task, []).append(wrong.cpu().numpy())

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the file."""
        file = io.BytesIO()
        arrays: Any = {str(task): np.concatenate(parts) for task, parts in self._wrong.items()}
        np.savez_compressed(file, **arrays)
        write_atomically(Path(trainer.default_root_dir) / OUTCOMES_FILE, file.getvalue())


def read_outcomes(folder: Path) -> dict[int, np.ndarray]:
    """Returns what `TestOutcomes` wrote into a run's folder: for each task with test images, `(N,)` booleans."""
    with np.load(folder / OUTCOMES_FILE) as arrays:
        return {int(task): arrays[task] for task in arrays.files}
