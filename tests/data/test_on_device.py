"""Training images that stay on the device: the same batches, images or not on their way."""

import pytest
import torch
from fakes import Tiny, write_folders
from lightning.pytorch.callbacks import Callback
from recording import Recorder, steps_of
from recording import trainer as trainer_of

from lws_lightning import ImageFolders
from lws_lightning.data import on_device
from lws_lightning.data.on_device import fits_on


@pytest.fixture
def sent(monkeypatch):
    """The batches whose images were taken on the device, two a step."""
    seen = []
    take = on_device.DeviceImages.take

    def spy(self, batch, device):
        seen.append(batch)
        return take(self, batch, device)

    monkeypatch.setattr(on_device.DeviceImages, "take", spy)
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_are_the_same_bit_for_bit(sent, workers):
    kept = steps_of(Tiny(num_workers=workers, images_on_device=True), max_epochs=3)
    assert len(sent) == 2 * 12
    assert all(batch.indices.shape == (3, 16) for batch in sent)
    assert kept == steps_of(Tiny(images_on_device=False), max_epochs=3)
    assert len(sent) == 2 * 12


def test_on_the_cpu_a_copy_is_made_only_if_asked_for(sent):
    steps_of(Tiny(), max_steps=2)
    assert sent == []


def test_a_run_goes_on_the_other_way(tmp_path, recwarn):
    whole = steps_of(Tiny(), max_steps=9)
    first, second = Recorder(), Recorder()
    started = trainer_of(max_steps=6)
    started.fit(first, Tiny(images_on_device=True))
    started.save_checkpoint(tmp_path / "x.ckpt")
    trainer_of(max_steps=9).fit(second, Tiny(images_on_device=False), ckpt_path=tmp_path / "x.ckpt")
    assert first.steps + second.steps == whole
    assert not [str(w.message) for w in recwarn if "images_on_device" in str(w.message)]


def test_a_loader_by_hand_has_images_before_and_after_a_run():
    data = Tiny(images_on_device=True)
    before = next(iter(data.train_dataloader()))
    trainer_of(max_steps=2).fit(Recorder(), data)
    after = next(iter(data.train_dataloader()))
    assert before.sgd.images.shape == after.sgd.images.shape == (3, 16, 1, 8, 8)


def test_the_copy_is_gone_when_the_run_is_over():
    data = Tiny(images_on_device=True)
    trainer_of(max_steps=2).fit(Recorder(), data)
    assert data._device_images._copies == {}


def test_the_same_trainer_goes_on_with_a_new_copy(sent):
    data, recorder, runner = Tiny(images_on_device=True), Recorder(), trainer_of(max_steps=2)
    runner.fit(recorder, data)
    runner.fit_loop.epoch_loop.max_steps = 5
    runner.fit(recorder, data)
    assert len(sent) == 2 * 5
    assert recorder.steps == steps_of(Tiny(), max_steps=5)


def test_a_gpu_keeps_what_fits_in_a_quarter_of_its_free_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4000, 8000))
    images = [torch.zeros(n, 1, 10, 10, dtype=torch.uint8) for n in (7, 3)]
    assert fits_on(torch.device("cuda", 0), images)
    assert not fits_on(torch.device("cuda", 0), [*images, images[0][:1]])
    assert not fits_on(torch.device("cpu"), images)


def test_another_value_is_refused():
    with pytest.raises(ValueError, match="images_on_device must be one of"):
        Tiny(images_on_device="gpu")


def test_indices_start_at_step_zero():
    data = Tiny()
    steps = data.train_dataloader().dataset
    indexed = on_device.IndexedSteps(steps)
    assert len(indexed) == len(steps)
    with pytest.raises(ValueError, match="must not be negative"):
        indexed[-1]
    images = on_device.DeviceImages([x for x, _ in data.examples("train")])
    for indices, theirs in zip(indexed[5], steps[5], strict=True):
        mine = images.take(indices, torch.device("cpu"))
        assert torch.equal(mine.images, theirs.images)
        assert torch.equal(mine.labels, theirs.labels)


class Peeking(Callback):
    """Looks at training batches within a run, and trains something else on the same data."""

    def __init__(self, nested):
        self.nested, self.seen, self.inner = nested, [], Recorder()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step != 2:
            return
        for loader in (trainer.datamodule.train_dataloader(), trainer.train_dataloader):
            self.seen.append(next(iter(loader)))
        if self.nested:
            trainer_of(max_steps=3).fit(self.inner, datamodule=trainer.datamodule)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_a_callback_may_use_the_same_data_within_a_run(kept, nested):
    data, recorder, peeking = Tiny(images_on_device=kept), Recorder(), Peeking(nested)
    trainer_of(max_steps=9, callbacks=[peeking]).fit(recorder, data)
    assert recorder.steps == steps_of(Tiny(), max_steps=9)
    assert peeking.inner.steps == (steps_of(Tiny(), max_steps=3) if nested else [])
    wanted = Tiny().train_dataloader().dataset[2]
    for step in peeking.seen:
        for part, expected in zip(step, wanted, strict=True):
            assert torch.equal(part.images, expected.images)
            assert torch.equal(part.labels, expected.labels)


def test_augmented_images_are_there_within_a_run(tmp_path):
    root = write_folders(tmp_path / "root", {"a": {"x": 5, "y": 5}, "b": {"x": 9, "y": 3}})
    options = {"image_size": 8, "batch_size": 4, "cache": False, "augmentation": ["RandomHorizontalFlip"]}
    data, peeking = ImageFolders(str(root), images_on_device=True, **options), Peeking(nested=False)
    trainer_of(max_steps=3, callbacks=[peeking]).fit(Recorder(), data)
    wanted = ImageFolders(str(root), **options).train_dataloader().dataset[2]
    assert torch.equal(peeking.seen[0].nes.images, wanted.nes.images)
    assert torch.equal(peeking.seen[0].sgd.images, wanted.sgd.images)


def test_a_run_that_repeats_a_few_batches_keeps_images_too(sent):
    kept = steps_of(Tiny(images_on_device=True), max_steps=4, overfit_batches=1)
    assert len(sent) == 2 * 4
    assert kept == steps_of(Tiny(images_on_device=False), max_steps=4, overfit_batches=1)
