"""Three tiny tasks with odd names, and a checkpoint of a run on them."""

import torch
from lightning.pytorch import Trainer

from lws_lightning import Examples, LearnedWeightSharing, MultiTaskDataModule, TaskData

NAMES = ("größe x", "größe.x", "größe/x")
CLASSES = {"größe x": ("klein", "groß"), "größe.x": ("a", "b", "ç"), "größe/x": None}


class OddTasks(MultiTaskDataModule):
    """Noise, normalised as the option says."""

    class_counts = {"größe x": 2, "größe.x": 3, "größe/x": 2}  # noqa: RUF012
    image_size = (3, 8, 8)

    def __init__(self, normalised=False, **options):
        super().__init__(batch_size=4, **options)
        self.mean, self.std = ([0.5, 0.4, 0.3], [0.2, 0.25, 0.3]) if normalised else ([0.0] * 3, [1.0] * 3)

    @property
    def preprocessing(self):
        return super().preprocessing | {"mean": self.mean, "std": self.std}

    def on_after_batch_transfer(self, batch, dataloader_idx):
        def normalise(images):
            mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
            return (images / 255 - mean) / std

        if hasattr(batch, "sgd"):
            return type(batch)(*(part._replace(images=normalise(part.images)) for part in batch))
        return batch._replace(images=normalise(batch.images))

    def load_tasks(self):
        generator = torch.Generator().manual_seed(0)
        tasks = []
        for name, classes in self.class_counts.items():
            images = torch.randint(256, (12, 3, 8, 8), generator=generator, dtype=torch.uint8)
            labels = torch.arange(12) % classes
            examples = Examples(images, labels)
            tasks.append(TaskData(name, examples, examples, class_names=CLASSES[name]))
        return tasks


def train(folder, kind=LearnedWeightSharing, normalised=True, steps=4, **options):
    """Trains a little, so that copies differ and running statistics have moved; returns (checkpoint, method)."""
    data = OddTasks(normalised)
    method = kind(**{"network": "digits_convnet", "lr": 0.01, "seed": 0, **data.task_info, **options})
    trainer = Trainer(
        accelerator="cpu", max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, limit_val_batches=0, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(method, datamodule=data)
    path = folder / "checkpoints" / "last.ckpt"
    trainer.save_checkpoint(path)
    return path, method


def in_unit_range(count, seed=0):
    """Images as a stranger has them, `(N, 3, 8, 8)` in [0, 1]."""
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def as_network_input(images, data=None):
    data = data or OddTasks(True)
    mean, std = (torch.tensor(values, dtype=images.dtype).view(-1, 1, 1) for values in (data.mean, data.std))
    return (images - mean) / std
