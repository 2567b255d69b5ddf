"""Atomic writing of checkpoints."""

import io
import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Trainer

from lws_lightning.records import write_atomically

__all__ = ["AtomicCheckpointIO", "save_checkpoints_atomically"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint to a temporary file in the same folder and renames it; Lightning copies it from `/tmp`.

    Neither a full disk nor a kill leaves a truncated file under the final name, or damages the file that was there.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Saves a checkpoint.

        Args:
            checkpoint: What to save.
            path: The file; missing folders are created. Remote files (`s3://...`) are left to Lightning.
            storage_options: If given, saving is left to Lightning.

        Raises:
            OSError: If it cannot be written; names the file.
        """
        if storage_options is not None or "://" in os.fspath(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write_atomically(Path(path), content.getbuffer())


def save_checkpoints_atomically(trainer: Trainer) -> None:
    """Makes a Trainer use `AtomicCheckpointIO`, unless the user has chosen another (`trainer.plugins`)."""
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = AtomicCheckpointIO()
