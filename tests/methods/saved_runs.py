"""Checkpoints and states of runs, shared by tests of whole runs."""

import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from small import state_of


def load(path):
    return torch.load(path, weights_only=True)


def checkpointing(tmp_path, **options):
    return ModelCheckpoint(dirpath=tmp_path / "ckpt", filename="{step}", save_top_k=-1, **options)


class Recorder(Callback):
    """Counts evaluations and records the state after every step."""

    def __init__(self):
        self.states, self.evaluations = {}, []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.states[trainer.global_step] = state_of(pl_module, trainer)

    def on_validation_end(self, trainer, pl_module):
        self.evaluations.append(trainer.global_step)
