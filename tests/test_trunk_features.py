"""Features as images, and the small part on top of them."""

import pytest
import torch
from torch import nn

from benchmarks.trunk_features import TrunkFeatures, branch
from lws_lightning import LearnedWeightSharing, LinearProbe

CLASSES = {"a": 3, "b": 2}


@pytest.fixture
def file(tmp_path):
    generator = torch.Generator().manual_seed(0)

    def part(name, classes, images):
        levels = torch.randint(0, 256, (images, 1280), generator=generator, dtype=torch.uint8)
        return {name: levels, f"{name}_labels": torch.arange(images) % classes}

    tasks = {
        name: {"classes": count, **part("train", count, 12 * count), **part("test", count, 6)}
        for name, count in CLASSES.items()
    }
    torch.save({"range": torch.linspace(0.5, 3, 1280), "tasks": tasks}, tmp_path / "features.pt")
    return tmp_path / "features.pt"


def test_each_seed_draws_its_own_images_of_each_class(file):
    def drawn(seed):
        data = TrunkFeatures(str(file), train_images_per_class=4, seed=seed)
        return {task.name: task for task in data.load_tasks()}

    tasks, again, other = drawn(1), drawn(1), drawn(2)
    for name, count in CLASSES.items():
        assert tasks[name].train.labels.bincount().tolist() == [4] * count
        assert tasks[name].unused.labels.bincount().tolist() == [8] * count
        rows = torch.cat([tasks[name].train.images, tasks[name].unused.images]).flatten(1)
        assert len(rows.unique(dim=0)) == 12 * count  # all of them, each once
        assert torch.equal(tasks[name].train.images, again[name].train.images)
        assert not torch.equal(tasks[name].train.images, other[name].train.images)


def test_batches_have_the_features(file):
    data = TrunkFeatures(str(file), batch_size=2)
    data.setup("fit")
    batch = data.train_dataloader().dataset[0]
    levels = batch.sgd.images.clone()
    features = data.on_after_batch_transfer(batch, 0).sgd.images
    torch.testing.assert_close(features[..., 0, 0], levels[..., 0, 0] / 255 * torch.linspace(0.5, 3, 1280))


def test_the_branch_begins_as_the_identity_and_copies_differ(file):
    data = TrunkFeatures(str(file))
    module = LearnedWeightSharing(network=branch, weights_per_layer=2, **data.task_info)
    features = torch.rand(4, 1280, 1, 1)
    copies = module.network.layers[0].copies
    for copy in copies:
        torch.testing.assert_close(copy(features), features.flatten(1))
    assert not torch.equal(copies[0].branch.first.weight, copies[1].branch.first.weight)
    trained = branch((1280, 1, 1)).layers[0].block
    assert isinstance(trained.branch.first, nn.Linear)


def test_a_probe_and_learned_sharing_train_on_them(file, quiet_trainer):
    for kind, options in ((LinearProbe, {"penalties": [0.1]}), (LearnedWeightSharing, {"weights_per_layer": 2})):
        data = TrunkFeatures(str(file), batch_size=2)
        trainer = quiet_trainer(max_steps=3, limit_val_batches=0)
        module = kind(network=branch, **options, **data.task_info)
        trainer.fit(module, datamodule=data)
        (result,) = trainer.test(module, datamodule=data, verbose=False)
        assert 0 <= result["test/error"] <= 100
