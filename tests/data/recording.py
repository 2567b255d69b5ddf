"""A module that writes down the batches it sees, and short runs of it."""

import torch
from lightning.pytorch import LightningModule, Trainer


class Recorder(LightningModule):
    """Trains nothing and writes down what it sees."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.steps = []
        self.validated = []

    def training_step(self, batch, batch_idx):
        self.steps.append(tuple(part.tolist() for part in (batch.nes.labels, *batch.sgd[::-1], batch.nes.images)))
        self.manual_backward(self.weight * 0)
        self.optimizers().step()

    def validation_step(self, batch, batch_idx):
        self.validated.append((batch.task, batch.images[:, 0, 0, 0].tolist()))

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(**options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(accelerator="cpu", devices=1, enable_model_summary=False, num_sanity_val_steps=0, **quiet | options)


def steps_of(datamodule, **options):
    recorder = Recorder()
    trainer(**options).fit(recorder, datamodule)
    return recorder.steps
