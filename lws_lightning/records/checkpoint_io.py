"""Checkpoints that are whole or not there."""

import io
import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Trainer

from lws_lightning.records.files import write_atomically

__all__ = ["WholeFileIO", "save_whole_files"]


class WholeFileIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and then renames it, where Lightning copies it from the system's `/tmp`.

    So neither a full disk nor a kill leaves a part of a file under its final name, or damages the file that was there.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Saves a checkpoint.

        Args:
            checkpoint: What to save.
            path: The file; missing folders are made. Files of other machines (`s3://...`) are left to Lightning.
            storage_options: Not used.

        Raises:
            OSError: If it cannot be written, with the file's name.
        """
        if storage_options is not None or "://" in os.fspath(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write_atomically(Path(path), content.getbuffer())


def save_whole_files(trainer: Trainer) -> None:
    """Makes a Trainer save by `WholeFileIO`, unless the user has chosen another way (`trainer.plugins`)."""
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = WholeFileIO()
