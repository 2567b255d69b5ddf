"""Features of frozen layers, computed once for each image: the same runs, to rounding."""

import errno
import os
from contextlib import nullcontext

import pytest
import torch
from fakes import write_folders
from small import assert_same, digits, fixed, learned, state_of, tiny_network

from lws_lightning import Digits, ImageFolders, LearnedWeightSharing
from lws_lightning.batches import StepBatch
from lws_lightning.data import features as features_module

FROZEN = {"frozen_layers": ["conv"], "weights_per_layer": 2}
FLIP = ["RandomHorizontalFlip", {"name": "RandomCrop", "size": 8, "padding": 1}]


def count_runs(module):
    """Counts the images that the frozen layer computes."""
    seen = []
    module.network.layers[0].copies[0].register_forward_hook(lambda part, inputs, outputs: seen.append(len(outputs)))
    return seen


def fit(quiet_trainer, data_options=None, precision="64-true", steps=3, **options):
    data = digits(**(data_options or {}))
    module = learned(data, **{**FROZEN, **options})
    seen = count_runs(module)
    trainer = quiet_trainer(max_steps=steps, precision=precision, limit_val_batches=0)
    trainer.fit(module, datamodule=data)
    return state_of(module, trainer), sum(seen), data


def assert_close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize(
    ("data_options", "options"),
    [
        ({}, {}),
        ({}, {"max_images_per_pass": 8, "running_stats": "per_task"}),
        ({"images_on_device": True}, {"ema_decay": 0.9}),
        ({"augmentation": FLIP, "augmentation_views": 2, "train_images_per_task": 5}, {}),
        ({"augmentation": FLIP, "augmentation_views": 2, "images_on_device": True}, {"nes_batch": "training"}),
        ({"num_workers": 1}, {"copies": "norm", "frozen_layers": None, "learned_layers": ["conv"]}),
    ],
)
def test_cached_steps_are_those_without_a_cache(data_options, options, quiet_trainer, tmp_path):
    without, _, _ = fit(quiet_trainer, data_options, feature_cache="off", **options)
    for place in ("memory", str(tmp_path / "cache"), str(tmp_path / "cache")):
        assert_close(fit(quiet_trainer, data_options, feature_cache=place, **options)[0], without)


def test_every_image_is_computed_once(quiet_trainer, tmp_path):
    folder = str(tmp_path / "cache")
    state, computed, data = fit(quiet_trainer, steps=40, feature_cache=folder)
    images = sum(len(labels) for _, labels in data.examples("train"))
    again, others, _ = fit(quiet_trainer, steps=40, feature_cache=folder)
    assert computed - others == images  # the others measure the cost of a prediction
    assert_same(state, again)
    (file,) = (tmp_path / "cache").iterdir()
    assert file.name.startswith("features-")
    fit(quiet_trainer, steps=1, feature_cache=folder, seed=5)  # other weights
    fit(quiet_trainer, {"train_images_per_task": 39}, steps=1, feature_cache=folder)  # other images
    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_a_damaged_file_is_replaced(quiet_trainer, tmp_path):
    folder = tmp_path / "cache"
    state, _, _ = fit(quiet_trainer, feature_cache=str(folder))
    (file,) = folder.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:100])
    (folder / f".{file.name}.1.part").write_bytes(content[:50])  # what a killed run leaves
    assert_same(fit(quiet_trainer, feature_cache=str(folder))[0], state)
    assert file.read_bytes() == content


@pytest.mark.parametrize("problem", ["full", "file", "read-only"])
def test_a_folder_that_cannot_be_written_gives_a_warning(problem, quiet_trainer, tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    if problem == "file":
        folder.write_text("")
    elif problem == "read-only":
        monkeypatch.setattr(
            features_module.Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "no"))
        )
    else:
        monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    with pytest.warns(UserWarning, match=r"cannot be kept in .*cache.*kept in memory"):
        state, _, _ = fit(quiet_trainer, feature_cache=str(folder))
    assert folder.is_file() or not folder.exists() or not list(folder.iterdir())
    monkeypatch.undo()
    assert_same(fit(quiet_trainer)[0], state)


def test_too_little_memory_switches_the_cache_off_aloud(quiet_trainer, monkeypatch):
    monkeypatch.setattr(features_module, "usable_memory", lambda: 1000)
    with pytest.warns(UserWarning, match="the frozen layers run in every step"):
        state, _, _ = fit(quiet_trainer)
    assert_same(fit(quiet_trainer, feature_cache="off")[0], state)


def test_augmentation_without_views_switches_the_cache_off_aloud(quiet_trainer):
    with pytest.warns(UserWarning, match=r"augmentation_views, for example 4"):
        state, _, _ = fit(quiet_trainer, {"augmentation": FLIP})
    assert_same(fit(quiet_trainer, {"augmentation": FLIP}, feature_cache="off")[0], state)


def test_own_data_that_would_change_features_switch_the_cache_off_aloud(quiet_trainer):
    class Normalised(Digits):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            if not isinstance(batch, StepBatch):
                return batch._replace(images=batch.images / 255 - 0.5)
            return StepBatch(*(part._replace(images=part.images / 255 - 0.5) for part in batch))

    states = []
    for cache in ("memory", "off"):
        data = Normalised(train_images_per_task=40, batch_size=4)
        module = learned(data, feature_cache=cache, **FROZEN)
        with pytest.warns(UserWarning, match="changes a FeatureBatch") if cache == "memory" else nullcontext():
            quiet_trainer(max_steps=2, limit_val_batches=0).fit(module, datamodule=data)
        states.append(state_of(module))
    assert_same(*states)


def test_an_images_turns_take_its_views_one_after_the_other():
    data = digits(
        augmentation=FLIP, augmentation_views=3, train_images_per_task=5, batch_size=5, tasks=["upright_parity"]
    )
    data.setup("fit")
    steps = data.train_dataloader().dataset
    ((images, _),) = data.examples("train")
    of_image = [[] for _ in images]
    for step in range(6):
        batch, indices = steps.batch("sgd", step), steps.indices("sgd", step)
        for image, index in zip(batch.images[0], indices[0], strict=True):
            of_image[int(index)].append(image)
    for views in of_image:
        assert len({tuple(view.flatten().tolist()) for view in views}) > 1
        assert all(torch.equal(one, other) for one, other in zip(views[:3], views[3:], strict=True))


def test_a_run_with_cached_features_resumes_bit_for_bit(quiet_trainer, tmp_path):
    def run(steps, **fit):
        data = digits(augmentation=FLIP, augmentation_views=2)
        module = learned(data, **FROZEN, ema_decay=0.9)
        trainer = quiet_trainer(max_steps=steps)
        trainer.fit(module, datamodule=data, **fit)
        return module, trainer

    whole = run(4)
    _, half = run(2)
    half.save_checkpoint(tmp_path / "half.ckpt")
    assert_same(state_of(*run(4, ckpt_path=tmp_path / "half.ckpt")), state_of(*whole))


def test_evaluations_run_the_whole_network(quiet_trainer):
    data = digits()
    module = fixed(data, frozen_layers=["conv"])
    trainer = quiet_trainer(max_steps=2)
    trainer.fit(module, datamodule=data)
    (images, labels), *_ = data.examples("test")
    wrong = float((module.eval()(images, 0).argmax(1) != labels).sum() * 100 / len(labels))
    assert module.evaluations["test_curve"].tasks[data.task_names[0]].error == pytest.approx(wrong)


@pytest.mark.parametrize("in_memory", [True, False])
def test_normalised_photographs_are_cached_as_the_network_sees_them(in_memory, quiet_trainer, tmp_path):
    write_folders(tmp_path / "photos", {"cars": {"red": 9, "blue": 6}, "trees": {"oak": 7, "elm": 5}})

    def run(cache):
        data = ImageFolders(
            str(tmp_path / "photos"), image_size=8, normalization="imagenet", in_memory=in_memory, num_workers=0,
            batch_size=4, cache=False,
        )  # fmt: skip
        module = LearnedWeightSharing(network=tiny_network, **FROZEN, feature_cache=cache, **data.task_info)
        quiet_trainer(max_steps=2, precision="64-true", limit_val_batches=0).fit(module, datamodule=data)
        return state_of(module)

    assert_close(run(str(tmp_path / "cache")), run("off"))
    assert_close(run(str(tmp_path / "cache")), run("off"))
