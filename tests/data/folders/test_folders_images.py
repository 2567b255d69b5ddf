"""Which images a task gets: splits, broken files, memory and disk."""

import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import write_folders
from PIL import Image

import lws_lightning.data.image_reading as image_reading
from lws_lightning.data import StepBatches, StreamedImages
from lws_lightning.data.streaming import read_images


def same(one, other):
    for split in ("train", "validation", "test"):
        for (images, labels), (others, their_labels) in zip(one.examples(split), other.examples(split), strict=True):
            assert images.equal(others)
            assert labels.equal(their_labels)


def pixels(folder):
    """Returns the images of a class, sorted by name, as an independent reader sees them."""
    files = sorted(folder.glob("*.png"), key=lambda path: path.name)
    return [torch.from_numpy(np.array(Image.open(file).convert("RGB"))).permute(2, 0, 1) for file in files]


def count(images, among):
    return [sum(int(image.equal(each)) for image in images) for each in among]


@pytest.mark.parametrize("in_memory", [True, False])
def test_every_image_once_with_its_label(make, root, in_memory):
    data = make(image_size=[12, 10], in_memory=in_memory, num_workers=0)
    train, test = data.examples("train"), data.examples("test")
    for task, name in enumerate(data.task_names):
        own_parts = (root / name / "train").exists()
        for number, class_name in enumerate(data.class_names[task]):
            in_train, in_test = (part[task][0][part[task][1] == number] for part in (train, test))
            if own_parts:
                assert count(in_train, pixels(root / name / "train" / class_name)) == [1] * len(in_train)
                assert count(in_test, pixels(root / name / "test" / class_name)) == [1] * len(in_test)
            else:
                files = pixels(root / name / class_name)
                assert count(torch.cat([in_train, in_test]), files) == [1] * len(files)
    assert torch.bincount(train[2][1]).tolist() == [16, 8]  # of 20 and 10, a fifth held out
    assert torch.bincount(test[2][1]).tolist() == [4, 2]
    assert (train[0][0].dtype, train[0][1].dtype) == (torch.uint8, torch.int64)


def test_the_split_is_a_function_of_names_and_seed(make, root, tmp_path, monkeypatch):
    data = make()
    kept = [labels for _, labels in data.examples("train")], [images for images, _ in data.examples("test")]
    listing = os.scandir

    class Reversed(list):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", lambda folder: Reversed(sorted(listing(folder), key=lambda e: e.name)[::-1]))
    copied = shutil.copytree(root, tmp_path / "copy")
    same(make(copied, cache=False), data)
    alone = make(tasks=["trees"]).examples("test")[0][0]
    assert alone.equal(kept[1][2])
    assert not make(split_seed=1).examples("test")[2][0].equal(kept[1][2])
    assert make(test_fraction=0.5).examples("test")[2][1].bincount().tolist() == [10, 5]


def test_validation_images_come_from_the_training_images(make):
    data, whole = make(validation="split", image_size=[12, 10]), make(image_size=[12, 10])
    assert data.validation_prefix == "val"
    for (train, _), (held_out, _), (images, _) in zip(
        data.examples("train"), data.examples("validation"), whole.examples("train"), strict=True
    ):
        assert len(held_out) == round(0.2 * len(images))
        assert count(torch.cat([train, held_out]), images) == [1] * len(images)


def test_small_tasks(make, tmp_path):
    root = write_folders(
        tmp_path / "small", {"a": {"x": 2, "y": 1}, "b": {"x": 10, "y": 10}, "c": {"x": 1, "y": 1, "z": 1}}
    )
    data = make(root)
    with pytest.warns(UserWarning, match="no test images in c"):
        train = data.examples("train")
    assert sorted(train[0][1].tolist()) == [0, 1]
    assert data.examples("test")[0][1].tolist() == [0]
    assert train[2][1].tolist() == [0, 1, 2]  # a class keeps its only image
    for batch, _ in zip(data.train_dataloader(), range(3), strict=False):
        assert batch.sgd.images.shape == (3, 4, 3, 8, 8)


def break_some(root):
    """Makes broken files of five kinds; returns their paths."""
    whole = (root / "birds/crow/0.png").read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(root / "cut.jpg")
    photograph = (root / "cut.jpg").read_bytes()
    (root / "cut.jpg").unlink()
    broken = {
        "birds/crow/cut.png": whole[: len(whole) // 2],
        "birds/crow/empty.png": b"",
        "birds/owl/text.PNG": b"This is no picture.\n",
        "cars/test/red/cut.jpg": photograph[: len(photograph) // 2],
    }
    for name, content in broken.items():
        (root / name).write_bytes(content)
    (root / "trees/oak/gone.png").symlink_to(root / "nowhere.png")
    return [str(root / name) for name in (*broken, "trees/oak/gone.png")]


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("cache", [True, False])
def test_broken_images_are_named_and_refused(make, root, in_memory, cache):
    broken = break_some(root)
    for _ in range(2):  # the second time from the cache, if there is one
        with pytest.raises(ValueError, match=r"5 files cannot be read.*(?s:.)*broken_images skip") as error:
            make(in_memory=in_memory, cache=cache).setup()
        assert all(f"{path}: " in str(error.value) for path in broken)
        assert "an empty file" in str(error.value)
        assert "not an image" in str(error.value)


@pytest.mark.parametrize("in_memory", [True, False])
def test_broken_images_are_skipped_as_if_they_were_not_there(make, root, in_memory):
    sound = make(in_memory=True)
    sound.setup()
    broken = break_some(root)
    data = make(in_memory=in_memory, num_workers=0, broken_images="skip")
    with pytest.warns(UserWarning, match="5 files cannot be read") as caught:
        data.setup()
    assert all(any(path in str(warning.message) for warning in caught) for path in broken)
    same(data, sound)


def test_many_broken_images_are_counted(make, root):
    for number in range(15):
        (root / f"birds/owl/x{number:02d}.png").write_bytes(b"")
    with pytest.raises(ValueError, match="15 files") as error:
        make().setup()
    assert str(error.value).count(".png: ") == 10
    assert "and 5 more files" in str(error.value)


def test_a_class_whose_images_are_all_broken(make, root):
    for file in (root / "birds/owl").iterdir():
        file.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="7 files"),
        pytest.raises(ValueError, match=r"none of the training images of class owl"),
    ):
        make(broken_images="skip").setup()


def test_decoded_images_are_kept_until_a_file_changes(make, root, tmp_path, monkeypatch):
    data = make()
    data.setup()
    assert not list(root.rglob("*.npz"))
    monkeypatch.setattr(image_reading, "try_decoding", None)
    same(make(), data)  # nothing is decoded
    with pytest.raises(TypeError):
        make(image_size=9).setup()
    monkeypatch.undo()
    path = root / "trees/oak/3.png"
    Image.new("RGB", (10, 12), (1, 2, 3)).save(path)
    os.utime(path, ns=(1, 1))
    changed = make(test_fraction=0.99)
    assert any(bool((image == torch.tensor([1, 2, 3]).view(3, 1, 1)).all()) for image in changed.examples("test")[2][0])
    for file in (tmp_path / "cache").rglob("*.npz"):
        file.write_bytes(b"damaged")
    same(make(test_fraction=0.99), changed)


def test_without_cache_nothing_is_written(make, tmp_path):
    make(cache=False).setup()
    assert not (tmp_path / "cache").exists()


def test_images_that_do_not_fit_stream(make, monkeypatch):
    bytes_needed = (19 + 26 + 30) * 3 * 8 * 8
    for limit, streams in ((bytes_needed / 1e9, False), ((bytes_needed - 1) / 1e9, True)):
        data = make(memory_limit_gb=limit)
        data.setup()
        assert isinstance(data._sources("train")[0][0], StreamedImages) == streams
        assert (data.num_workers > 0) == streams
    for free, streams in ((3 * bytes_needed, False), (3 * bytes_needed - 3, True), (None, False)):
        monkeypatch.setattr("lws_lightning.data.folders.usable_memory", lambda free=free: free)
        data = make(num_workers=0)
        data.setup()
        assert isinstance(data._sources("train")[0][0], StreamedImages) == streams
        assert data.num_workers == 0


def test_usable_memory_is_that_of_the_machine():
    free = image_reading.usable_memory()
    if Path("/proc/meminfo").exists():
        assert 1e6 < free < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_batches_are_those_in_memory(make, workers):
    options = {"augmentation": [{"name": "RandomCrop", "size": 8, "padding": 2}, "RandomHorizontalFlip"]}
    memory = make(in_memory=True, **options)
    streamed = make(in_memory=False, num_workers=workers, validation="none", **options)
    for one, other in zip(memory.train_dataloader(), streamed.train_dataloader(), strict=True):
        for part, theirs in zip(one, other, strict=True):
            assert part.images.equal(theirs.images)
            assert part.labels.equal(theirs.labels)
    for one, other in zip(memory.test_dataloader(), streamed.test_dataloader(), strict=True):
        assert one.task == other.task
        assert one.images.equal(other.images)
        assert one.labels.equal(other.labels)
    split = [make(in_memory=m, num_workers=0, validation="split") for m in (True, False)]
    same(*split)


def test_a_streamed_image_that_vanishes_is_named(make, root):
    data = make(in_memory=False, num_workers=0, tasks=["birds"])
    data.setup()
    for file in (root / "birds").rglob("*.png"):
        file.unlink()
    with pytest.raises(RuntimeError, match=r"birds/\w+/\d+\.png: the image cannot be read"):
        next(iter(data.train_dataloader()))


def test_augmentation_is_for_the_sgd_batch_alone(make):
    plain = make(image_size=[12, 10])
    changed = make(image_size=[12, 10], augmentation=[{"name": "RandomInvert", "p": 1.0}])
    for one, other in zip(plain.train_dataloader(), changed.train_dataloader(), strict=True):
        assert other.nes.images.equal(one.nes.images)
        assert other.sgd.images.equal(255 - one.sgd.images)
    for one, other in zip(plain.test_dataloader(), changed.test_dataloader(), strict=True):
        assert one.images.equal(other.images)


def test_augmentation_depends_on_step_and_task(make):
    data = make(augmentation=[{"name": "RandomAffine", "degrees": 90}], tasks=["trees"], batch_size=30)
    first, second = [batch for batch, _ in zip(data.train_dataloader().dataset, range(2), strict=False)]
    assert not first.sgd.images.equal(second.sgd.images)
    assert math.ceil(24 / 30) == len(data.train_dataloader())


def test_a_read_only_root(make, root):
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o555)
    before = sorted(root.rglob("*"))
    make().setup()
    assert sorted(root.rglob("*")) == before
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)


def test_two_processes_see_the_images_of_one_with_twice_the_batch(make):
    augment = [{"name": "RandomAffine", "degrees": 90}]
    data = make(augmentation=augment, batch_size=8)
    whole = data.train_dataloader().dataset[3]
    ranks = [StepBatches(data._sources("train"), 4, data.seed, data.augmentation(), rank, 2)[3] for rank in (0, 1)]
    for part, theirs in zip(whole, zip(*ranks, strict=True), strict=True):
        assert torch.cat([each.images for each in theirs], dim=1).equal(part.images)
        assert torch.cat([each.labels for each in theirs], dim=1).equal(part.labels)


def test_streamed_images_select_without_reading():
    def decode(file):
        assert file != "unread"
        return torch.full((1, 2, 3), int(file), dtype=torch.uint8)

    images = StreamedImages(["0", "unread", "2", "3"], decode, (1, 2, 3))
    chosen = images[torch.tensor([3, 0, 1])]
    assert chosen.shape == (3, 1, 2, 3)
    assert chosen[:2].read()[:, 0, 0, 0].tolist() == [3, 0]
    assert read_images(images, torch.tensor([2, 2]))[:, 0, 0, 0].tolist() == [2, 2]
    assert len(images[:0].read()) == 0
    with pytest.raises(RuntimeError, match=r"^0: an image of shape \(1, 2, 3\) instead of \(1, 2, 2\)"):
        StreamedImages(["0"], decode, (1, 2, 2)).read()
