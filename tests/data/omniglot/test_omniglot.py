"""Omniglot's tasks: facts, images, splits, options."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from drawings import ALPHABETS, ANGELIC, BLACKFOOT, OJIBWE, character_and_drawer, one
from fakes import omniglot_folder
from PIL import Image

from lws_lightning.data import Omniglot
from lws_lightning.methods import DataRecord
from lws_lightning.predict.images import decoder_for


def test_facts_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    datamodule = Omniglot(download=True)
    assert len(datamodule.task_names) == 50
    assert datamodule.task_names[0] == "Alphabet_of_the_Magi"
    assert datamodule.task_names[30] == ANGELIC
    assert sum(datamodule.num_classes[:30]) == 964
    assert sum(datamodule.num_classes) == 1623
    assert datamodule.image_shape == [1, 105, 105]
    assert list(tmp_path.iterdir()) == []


def test_tasks(root):
    datamodule = Omniglot(str(root), tasks=ALPHABETS)
    for place, characters in enumerate((14, 14, 20)):
        drawers = []
        for split, size in (("train", 16), ("test", 4)):
            images, labels = datamodule.examples(split)[place]
            assert images.shape == (size * characters, 1, 105, 105)
            assert images.dtype == torch.uint8
            assert torch.bincount(labels).tolist() == [size] * characters
            character, drawer = character_and_drawer(images)
            assert character.equal(labels)
            drawers.append(drawer.view(characters, size))
        assert torch.cat(drawers, 1).sort(1).values.equal(torch.arange(20).expand(characters, 20))
        assert len(drawers[1].sort(1).values.unique(dim=0)) > 1  # not the same drawers for every character
    assert datamodule.class_names[0][0] == "character01"
    assert datamodule.class_names[2][19] == "character20"
    batch = next(iter(datamodule.train_dataloader()))
    assert batch.nes.images.shape == (3, 16, 1, 105, 105)


def test_images_are_as_torchvision_gives_them(root):
    images, labels = one(root).examples("train")[0]
    assert images.unique().tolist() == [0, 255]
    for index in (0, 100, 223):
        drawer = character_and_drawer(images)[1][index]
        name = f"character{labels[index] + 1:02d}/{labels[index] + 1:04d}_{drawer + 1:02d}.png"
        with Image.open(omniglot_folder(root, OJIBWE) / name) as image:
            assert images[index, 0].numpy().tolist() == np.asarray(image.convert("L")).tolist()


def test_the_split_depends_on_split_seed_alone(root):
    def drawers(place=0, split="test", **options):
        return character_and_drawer(one(root, **options).examples(split)[place][0])[1].view(14, -1)

    assert drawers().equal(drawers(seed=3, tasks=[ANGELIC, OJIBWE], place=1))
    assert not drawers().equal(drawers(split_seed=1))
    assert not drawers().equal(drawers(tasks=[BLACKFOOT]))
    assert drawers(train_drawings=15)[:, 1:].equal(drawers())


def test_the_split_does_not_depend_on_the_order_in_the_folder(root, tmp_path, monkeypatch):
    usual = one(root).examples("train")[0][0]
    genuine = Path.glob
    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", lambda self, pattern: reversed(list(genuine(self, pattern))))
        assert one(root, cache_dir=str(tmp_path / "other")).examples("train")[0][0].equal(usual)


def test_other_files_do_not_matter(own):
    usual = one(own).examples("train")[0][0]
    for name in ("Thumbs.db", "._0001_01.png", "notes.txt"):
        (omniglot_folder(own, OJIBWE) / "character01" / name).touch()
    assert one(own).examples("train")[0][0].equal(usual)


def test_validation_split(root):
    datamodule = one(root, validation="split", validation_fraction=0.25)
    assert torch.bincount(datamodule.examples("train")[0][1]).tolist() == [12] * 14
    assert torch.bincount(datamodule.examples("validation")[0][1]).tolist() == [4] * 14


def test_nothing_unused():
    with pytest.raises(ValueError, match=r"Omniglot: validation: unused .* use validation: split"):
        Omniglot(validation="unused")


@pytest.mark.parametrize("drawings", [0, 20])
def test_bad_train_drawings(drawings):
    with pytest.raises(ValueError, match=f"Omniglot: train_drawings must lie between 1 and 19, got {drawings}"):
        Omniglot(train_drawings=drawings)


def test_checkpoints_do_not_hold_the_cache_folder():
    state = Omniglot(cache_dir="here", train_drawings=12).state_dict()
    assert "cache_dir" not in state
    assert state["train_drawings"] == 12


@pytest.mark.real_data
@pytest.mark.skipif("LWS_DATA_ROOT" not in os.environ, reason="LWS_DATA_ROOT is not set")
def test_real_data():
    datamodule = Omniglot(os.environ["LWS_DATA_ROOT"])
    for split, drawings, total in (("train", 16, 25_968), ("test", 4, 6_492)):
        examples = datamodule.examples(split)
        assert sum(len(labels) for _, labels in examples) == total
        for classes, (images, labels) in zip(datamodule.num_classes, examples, strict=True):
            assert torch.bincount(labels).tolist() == [drawings] * classes
            assert images[0].unique().tolist() == [0, 255]
            assert images.float().mean() > 127  # black on white


def test_smaller_images_are_averages_over_areas(root):
    small, whole = one(root, image_size=21), one(root)
    assert small.image_shape == [1, 21, 21]
    for (images, labels), (full, full_labels) in zip(small.examples("test"), whole.examples("test"), strict=True):
        assert torch.equal(labels, full_labels)
        expected = full.double().view(len(full), 1, 21, 5, 21, 5).mean((3, 5))
        assert images.shape == (len(full), 1, 21, 21)
        assert float((images.double() - expected).abs().max()) <= 0.5 + 1e-9
    decoder = decoder_for(DataRecord.of(small, small.num_classes), small.image_shape)
    predicted = torch.stack([decoder(str(file)) for file in sorted(Path(root).rglob(f"{OJIBWE}/*/*.png"))])
    found = torch.cat([small.examples(split)[0][0] for split in ("train", "test")])
    assert sorted(predicted.flatten(1).tolist()) == sorted(found.flatten(1).tolist())
    assert small.digest != whole.digest
    assert one(root, image_size=21).digest == small.digest  # from the cache


@pytest.mark.parametrize("size", [0, 106])
def test_an_image_size_out_of_range_is_refused(root, size):
    with pytest.raises(ValueError, match="image_size must lie between 1 and 105"):
        one(root, image_size=size)
