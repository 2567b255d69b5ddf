"""Runs on folders of images, from the command line and from Python."""

import json
from pathlib import Path

import pytest
import torch
from fakes import write_folders
from recording import Recorder, steps_of, trainer

from lws_lightning import FixedSharing
from lws_lightning.training import to_inputs

MEAN_STD = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}
CROP = {"name": "RandomCrop", "size": 8, "padding": 2}
QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")


@pytest.fixture
def seen(monkeypatch):
    """The inputs of networks, in training and in evaluations."""
    inputs = []

    def watched(images, dtype):
        inputs.append(to_inputs(images, dtype))
        return inputs[-1]

    for place in ("training.update", "methods.base"):
        monkeypatch.setattr(f"lws_lightning.{place}.to_inputs", watched)
    return inputs


def test_preprocessing_is_plain_and_complete(make):
    assert make(image_size=[8, 6], resize="pad", background=3, normalization=MEAN_STD).preprocessing == {
        "size": [8, 6],
        "channels": 3,
        "mode": "pad",
        "background": 3,
        "interpolation": "bilinear",
        "scale": 1 / 255,
        **MEAN_STD,
    }
    assert make(channels=1).preprocessing["mean"] == [0.0]
    assert make(normalization="imagenet").preprocessing["std"] == [0.229, 0.224, 0.225]
    json.dumps(make().preprocessing)


@pytest.mark.parametrize("normalization", ["none", "imagenet", MEAN_STD])
def test_the_network_sees_what_preprocessing_says(make, quiet_trainer, seen, normalization):
    data = make(normalization=normalization)
    module = FixedSharing(network="digits_convnet", sharing="full", **data.task_info)
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, datamodule=data)
    inputs = seen[0]
    told = data.preprocessing
    mean, std = (torch.tensor(told[key]).view(3, 1, 1) for key in ("mean", "std"))
    raw = next(iter(data.train_dataloader().dataset)).sgd.images
    assert torch.allclose(inputs, (raw.float() * told["scale"] - mean) / std, atol=1e-6)
    seen.clear()
    quiet_trainer().test(module, datamodule=data, verbose=False)
    images = data.examples("test")[0][0]
    assert torch.allclose(seen[0], (images.float() * told["scale"] - mean) / std, atol=1e-6)
    assert torch.allclose(to_inputs(data.normalize(images), torch.float32), seen[0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_resumed_run_sees_the_same_batches(make, tmp_path, in_memory, workers):
    options = {"augmentation": [CROP, "RandomHorizontalFlip"], "seed": 5}
    whole = steps_of(make(in_memory=True, **options), max_steps=9)
    first, second = Recorder(), Recorder()
    started = trainer(max_steps=4)
    started.fit(first, make(in_memory=in_memory, num_workers=workers, **options))
    started.save_checkpoint(tmp_path / "x.ckpt")
    torch.manual_seed(99)
    trainer(max_steps=9).fit(
        second, make(in_memory=not in_memory, num_workers=workers, **options), ckpt_path=tmp_path / "x.ckpt"
    )
    assert first.steps + second.steps == whole


def test_a_checkpoint_knows_classes_and_files(make, root, tmp_path, recwarn):
    started = trainer(max_steps=1)
    started.fit(Recorder(), make())
    started.save_checkpoint(tmp_path / "x.ckpt")
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)["ImageFolders"]
    assert saved["class_names"]["trees"] == ["elm", "oak"]
    recwarn.clear()
    moved = root.rename(tmp_path / "moved")
    trainer(max_steps=2).fit(Recorder(), make(moved), ckpt_path=tmp_path / "x.ckpt")
    assert not [w for w in recwarn if "in the checkpoint" in str(w.message)]
    (moved / "trees/oak/0.png").unlink()
    with pytest.warns(UserWarning, match="images was '75 files"):
        trainer(max_steps=2).fit(Recorder(), make(moved), ckpt_path=tmp_path / "x.ckpt")
    (moved / "trees/oak").rename(moved / "trees/ash")
    with pytest.raises(ValueError, match=r"'trees'.*elm, oak.*there are ash, elm"):
        trainer(max_steps=2).fit(Recorder(), make(moved), ckpt_path=tmp_path / "x.ckpt")


def test_the_fingerprint_is_that_of_the_images(make, root, tmp_path):
    whole = make(in_memory=True).digest
    assert whole == make(in_memory=False).digest == make(root.rename(tmp_path / "moved")).digest
    assert make(tmp_path / "moved", image_size=6).digest != whole
    tasks = {"birds": {"crow": 5, "owl": 5}}
    folds = [write_folders(tmp_path / f"fold{seed}", tasks, seed=seed) for seed in (0, 1)]  # the same names and numbers
    assert make(folds[0]).digest != make(folds[1]).digest


def test_the_command(lws, root, tmp_path):
    lws(
        "fit", "--data", "ImageFolders", "--data.root", root, "--data.image_size", "[8, 10]", "--data.channels", 1,
        "--data.augmentation", json.dumps([CROP | {"size": [8, 10]}, "RandomHorizontalFlip"]), "--data.batch_size", 2,
        "--data.normalization", '{"mean": [0.5], "std": [0.25]}', "--data.cache_dir", tmp_path / "cache",
        "--model", "LearnedWeightSharing", "--model.network", "digits_convnet", "--model.nes_samples", 2,
        "--model.sgd_samples", 2, "--trainer.max_steps", 2, "--trainer.val_check_interval", 1,
        "--trainer.check_val_every_n_epoch", "null", *QUIET,
    )  # fmt: skip
    (checkpoint,) = Path().rglob("*.ckpt")
    lws("test", "--ckpt_path", checkpoint, *QUIET)
    (record,) = Path().rglob("result.json")
    result = json.loads(record.read_text())
    assert result["status"] == "finished"
    assert set(result["test"]["tasks"]) == {"birds", "cars", "trees"}
    assert len(result["data_digest"]) == 16


def test_the_python_run_streams_to_the_same_weights(make, quiet_trainer):
    weights = []
    for in_memory in (True, False):
        data = make(in_memory=in_memory, num_workers=0, augmentation=[CROP], normalization="imagenet", seed=0)
        module = FixedSharing(network="digits_convnet", sharing="none", seed=0, **data.task_info)
        quiet_trainer(max_steps=3).fit(module, datamodule=data)
        weights.append(module.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_augmented_images_are_sent_and_the_others_lie_on_the_device(make):
    runs = [
        steps_of(make(images_on_device=kept, augmentation=[CROP], num_workers=0, seed=0), max_steps=4)
        for kept in (True, False)
    ]
    assert runs[0] == runs[1]


def test_streamed_images_cannot_lie_on_the_device(make):
    with pytest.raises(ValueError, match="images_on_device: true needs the images in memory"):
        steps_of(make(images_on_device=True, in_memory=False, num_workers=0), max_steps=1)
    steps_of(make(in_memory=False, num_workers=0), max_steps=1)
