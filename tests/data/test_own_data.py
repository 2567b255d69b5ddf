"""The data set of a user's own, as docs/own_data.md shows it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer

from lws_lightning import FixedSharing

SNIPPET = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "own_data.md").read_text(encoding="utf-8"), re.DOTALL
)[-1]


@pytest.fixture
def my_tasks(tmp_path):
    """The DataModule of the page, with files to read."""
    generator = np.random.default_rng(0)
    for name, classes in (("shapes", 3), ("colours", 5)):
        arrays = {}
        for split, count in (("train", 20), ("test", 10)):
            arrays[f"{split}_images"] = generator.integers(0, 256, (count, 1, 16, 16)).astype(np.uint8)
            arrays[f"{split}_labels"] = np.arange(count) % classes
        np.savez(tmp_path / f"{name}.npz", **arrays)
    names = {}
    exec(SNIPPET, names)
    return lambda **options: names["MyTasks"](str(tmp_path), **options)


def test_it_takes_thirty_lines_and_public_names_only():
    assert len(SNIPPET.splitlines()) <= 30
    assert re.findall(r"from (lws_lightning\S*) import", SNIPPET) == ["lws_lightning"]


def test_it_has_splits_and_batches(my_tasks):
    data = my_tasks(validation="split", batch_size=4)
    assert [[len(labels) for _, labels in data.examples(split)] for split in ("train", "validation", "test")] == [
        [16, 16],
        [4, 4],
        [10, 10],
    ]
    batch = next(iter(data.train_dataloader())).sgd
    assert batch.images.shape == (2, 4, 1, 16, 16)
    assert batch.images.dtype == torch.uint8


def test_it_trains_and_chooses_tasks(my_tasks, tmp_path):
    data = my_tasks(batch_size=4, tasks=["colours"], seed=0)
    method = FixedSharing("none", network="dkl_convnet", seed=0, **data.task_info)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = Trainer(max_steps=2, default_root_dir=tmp_path, enable_model_summary=False, **quiet)
    trainer.fit(method, datamodule=data)
    assert trainer.global_step == 2
