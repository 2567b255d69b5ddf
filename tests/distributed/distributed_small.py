"""Tiny data, a network without batch normalisation, and a Trainer for one process or for each of two."""

import os
import socket
from pathlib import Path

import torch
from lightning.pytorch import Trainer
from torch import nn

from lws_lightning.data import Examples, MultiTaskDataModule, TaskData
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_


class Uneven(MultiTaskDataModule):
    """Three tasks of random images that differ in size; the test sets are 11, 9 and 1 images."""

    class_counts = {"a": 3, "b": 4, "c": 5}  # noqa: RUF012
    image_size = (1, 8, 8)
    sizes = {"a": (40, 11), "b": (64, 9), "c": (12, 1)}  # noqa: RUF012

    def prepare_data(self):
        if Path(self.root).is_dir():
            with (Path(self.root) / "prepared").open("a") as file:
                file.write("once\n")

    def load_tasks(self):
        return [self.task(number, name) for number, name in enumerate(self.class_counts)]

    def task(self, number, name):
        generator = torch.Generator().manual_seed(number)
        parts = []
        for size in self.sizes[name]:
            images = torch.randint(256, (size, 1, 8, 8), generator=generator, dtype=torch.uint8)
            parts.append(Examples(images, torch.arange(size) % self.class_counts[name]))
        return TaskData(name, *parts)


def conv_without_norm(image_shape):
    channels, height, width = image_shape
    conv = nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    dense = nn.Sequential(nn.Flatten(), nn.Linear(4 * (height // 2) * (width // 2), 8), nn.ReLU())
    return BaseNetwork(
        [BaseLayer("conv", conv), BaseLayer("dense", dense)], lambda classes: nn.Linear(8, classes), 1, he_uniform_
    )


def small_trainer(folder, **options):
    """Makes a Trainer; in one of two processes with the plain strategy ddp, without further flags."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        options = {"devices": world_size, "strategy": "ddp"} | options
    return Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "default_root_dir": folder,
            "max_epochs": -1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            **options,
        }
    )


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
