"""Checkpoints of whole runs: contents, resume, loading."""

import inspect
import re

import pytest
import torch
from locations import REPOSITORY
from saved_runs import Recorder, checkpointing, load
from small import assert_same, digits, fixed, learned, state_of, tiny_network

import lws_lightning
from lws_lightning import LearnedWeightSharing, MultiTaskDataModule, MultiTaskMethod


def test_default_checkpoint_of_one_epoch(tmp_path, quiet_trainer):
    data = digits()
    trainer = quiet_trainer(max_epochs=1, enable_checkpointing=True)
    trainer.fit(learned(data), datamodule=data)
    (path,) = tmp_path.rglob("*.ckpt")
    assert load(path)["global_step"] == trainer.global_step == 10


def test_checkpoint_holds_the_weights_right_after_its_step(tmp_path, quiet_trainer):
    data, recorder = digits(), Recorder()
    callback = checkpointing(tmp_path, every_n_train_steps=2)
    trainer = quiet_trainer(max_steps=6, callbacks=[recorder, callback], enable_checkpointing=True, limit_val_batches=0)
    trainer.fit(learned(data), datamodule=data)
    for step in (2, 4, 6):
        saved = load(tmp_path / f"ckpt/step={step}.ckpt")["state_dict"]
        assert_same(saved, {k: v for k, v in recorder.states[step].items() if not k.startswith("adam")})


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("method", [learned, fixed])
def test_a_run_resumed_from_any_checkpoint_is_the_unbroken_run(tmp_path, quiet_trainer, method, workers):
    options = {"val_check_interval": 3, "check_val_every_n_epoch": None, "enable_checkpointing": True}
    unbroken_data = digits(num_workers=workers)
    unbroken = method(unbroken_data, lr_schedule="cosine", warmup_steps=2)
    callback = checkpointing(tmp_path, every_n_epochs=1, save_on_train_epoch_end=False)
    trainer = quiet_trainer(max_steps=13, callbacks=[callback], **options)
    trainer.fit(unbroken, datamodule=unbroken_data)
    expected = state_of(unbroken, trainer)
    paths = sorted((tmp_path / "ckpt").iterdir())
    assert len(paths) == 5  # of 3, 6, 9, 12 and the last step
    for path in paths if workers == 0 else paths[:1]:
        data = digits(num_workers=workers)
        module = method(data, lr_schedule="cosine", warmup_steps=2)
        recorder = Recorder()
        resumed = quiet_trainer(max_steps=13, callbacks=[recorder], **(options | {"enable_checkpointing": False}))
        torch.manual_seed(999)  # the global generator must not matter
        resumed.fit(module, datamodule=data, ckpt_path=path)
        assert_same(state_of(module, resumed), expected)
        start = int(path.stem.split("=")[1])
        assert recorder.evaluations == [step for step in (3, 6, 9, 12, 13) if step > start]


def test_resume_obeys_new_step_sizes_aloud(tmp_path, quiet_trainer):
    data = digits()
    callback = checkpointing(tmp_path, every_n_train_steps=3)
    quiet_trainer(max_steps=3, callbacks=[callback], enable_checkpointing=True).fit(learned(data), datamodule=data)
    module = learned(data, lr=0.5, nes_lr=0.25)
    trainer = quiet_trainer(max_steps=4)
    with pytest.warns(UserWarning, match=r"model\.nes_lr 0\.25 instead of the checkpoint's 0\.1"):
        trainer.fit(module, datamodule=data, ckpt_path=tmp_path / "ckpt/step=3.ckpt")
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.5
    assert module.scheme.nes_lr == 0.25


@pytest.mark.parametrize(("options", "name"), [({"seed": 7}, "seed"), ({"weights_per_layer": 4}, "weights_per_layer")])
def test_resume_refuses_what_the_state_depends_on(tmp_path, quiet_trainer, options, name):
    data = digits()
    callback = checkpointing(tmp_path, every_n_train_steps=3)
    quiet_trainer(max_steps=3, callbacks=[callback], enable_checkpointing=True).fit(learned(data), datamodule=data)
    with pytest.raises(ValueError, match=rf"model\.{name}"):
        quiet_trainer(max_steps=4).fit(
            learned(data, **options), datamodule=data, ckpt_path=tmp_path / "ckpt/step=3.ckpt"
        )


class ShortSignature(LearnedWeightSharing):
    """A user's subclass with few options of its own."""

    def __init__(self, task_names: list, num_classes: list, image_shape: list, width: int = 2, **options):
        super().__init__(
            weights_per_layer=width,
            network="digits_convnet",
            task_names=task_names,
            num_classes=num_classes,
            image_shape=image_shape,
            **options,
        )


def test_a_subclass_loads_from_its_checkpoint_without_arguments(tmp_path, quiet_trainer):
    data = digits()
    module = ShortSignature(**data.task_info)
    callback = checkpointing(tmp_path, every_n_train_steps=2)
    quiet_trainer(max_steps=2, callbacks=[callback], enable_checkpointing=True).fit(module, datamodule=data)
    loaded = ShortSignature.load_from_checkpoint(tmp_path / "ckpt/step=2.ckpt")
    assert_same(state_of(loaded), state_of(module))
    images = data.examples("test")[1][0]
    module.eval(), loaded.eval()
    torch.testing.assert_close(loaded(images, "upright_parity"), module(images, 1), rtol=0, atol=0)


def test_a_callable_network_is_handed_over_again(tmp_path, quiet_trainer):
    data = digits()
    module = learned(data)
    callback = checkpointing(tmp_path, every_n_train_steps=2)
    quiet_trainer(max_steps=2, callbacks=[callback], enable_checkpointing=True).fit(module, datamodule=data)
    path = tmp_path / "ckpt/step=2.ckpt"
    assert "network" not in load(path)["hyper_parameters"]
    assert_same(state_of(LearnedWeightSharing.load_from_checkpoint(path, network=tiny_network)), state_of(module))


def test_a_checkpoint_does_not_import_code_by_itself(tmp_path, quiet_trainer, monkeypatch):
    (tmp_path / "someones_network.py").write_text("from small import tiny_network as build\n")
    monkeypatch.syspath_prepend(tmp_path)
    data = digits()
    module = learned(data, network="someones_network:build")
    callback = checkpointing(tmp_path, every_n_train_steps=2)
    quiet_trainer(max_steps=2, callbacks=[callback], enable_checkpointing=True).fit(module, datamodule=data)
    path = tmp_path / "ckpt/step=2.ckpt"
    with pytest.raises(ValueError, match=r"someones_network:build.*trust_network=True"):
        LearnedWeightSharing.load_from_checkpoint(path)
    for allowed in ({"trust_network": True}, {"network": tiny_network}):
        assert_same(state_of(LearnedWeightSharing.load_from_checkpoint(path, **allowed)), state_of(module))


def options_of(base):
    """Names of all options of this package's subclasses of `base`."""
    public = [getattr(lws_lightning, name) for name in lws_lightning.__all__]
    names = set()
    for kind in (kind for kind in public if isinstance(kind, type) and issubclass(kind, base)):
        for part in kind.__mro__:
            if part.__module__.startswith("lws_lightning.") and "__init__" in vars(part):
                parameters = list(inspect.signature(part.__init__).parameters.values())[1:]
                names |= {each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}
    return names - {"design"}


@pytest.mark.parametrize(("base", "section"), [(MultiTaskMethod, "model"), (MultiTaskDataModule, "data")])
def test_the_documentation_says_of_every_option_what_a_change_does_on_resume(base, section):
    page = (REPOSITORY / "docs/resume.md").read_text(encoding="utf-8")
    table = page[page.index("## Changed options") :]
    named = {name.split(".")[-1] for name in re.findall(r"`([\w.]+)`", table)}
    assert not options_of(base) - named, f"{section} options without a line"


@pytest.mark.parametrize(
    ("name", "value"), [("initialization", "torch"), ("perturb_copies", 0.1), ("initial_probs", [[[1.0]] * 4] * 2)]
)
def test_an_option_of_the_start_that_changes_on_resume_is_said_to_have_no_effect(tmp_path, quiet_trainer, name, value):
    data, options = digits(), {"weights_per_layer": 1}
    trainer = quiet_trainer(max_steps=2)
    trainer.fit(learned(data, **options), datamodule=data)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    again = learned(data, **options, **{name: value})
    with pytest.warns(UserWarning, match=rf"model\.{name} has no effect here"):
        quiet_trainer(max_steps=3).fit(again, datamodule=data, ckpt_path=tmp_path / "half.ckpt")
