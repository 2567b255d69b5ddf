"""Facts and options of a data module: before setup, on the command line, in checkpoints."""

from dataclasses import replace

import pytest
from fakes import Tiny
from lightning.pytorch.cli import LightningCLI
from recording import Recorder, trainer

from lws_lightning.data import DKLMNIST, Digits, Examples, MultiTaskDataModule

# Facts before setup, and options


def test_facts_before_setup_without_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    datamodule = Tiny(root="missing")
    assert datamodule.task_info == {
        "task_names": ["a", "b", "c"],
        "num_classes": [3, 4, 5],
        "image_shape": [1, 8, 8],
        "validation_prefix": "test_curve",
    }
    assert all(type(value) is int for value in datamodule.num_classes + datamodule.image_shape)
    assert datamodule.loads == 0
    assert list(tmp_path.iterdir()) == []


def test_facts_are_copies():
    datamodule = Tiny()
    datamodule.task_info["task_names"].clear()
    assert datamodule.task_names == ["a", "b", "c"]


def test_facts_set_by_a_constructor():
    class Sized(Tiny):
        def __init__(self, size, **options):
            self.image_size = (1, size, size)
            self.class_counts = {"a": 3}
            super().__init__(**options)

    assert Sized(8).image_shape == [1, 8, 8]
    assert Sized(8).task_names == ["a"]
    Sized(8).setup()
    with pytest.raises(ValueError, match=r"'a': training images of shape \[1, 9, 9\] declared, \[1, 8, 8\] loaded"):
        Sized(9).setup()


def test_tasks_are_chosen_by_name_in_the_order_given():
    datamodule = Tiny(tasks=["c", "a"])
    assert datamodule.task_names == ["c", "a"]
    assert datamodule.num_classes == [5, 3]
    assert [len(labels) for _, labels in datamodule.examples("train")] == [12, 40]


@pytest.mark.parametrize("validation", ["split", "unused"])
def test_images_of_a_task_do_not_depend_on_the_other_tasks(validation):
    options = {"validation": validation, "validation_fraction": 0.5}
    alone = Tiny(tasks=["b"], **options).examples("validation")[0][0]
    assert alone.equal(Tiny(**options).examples("validation")[1][0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ["a", "x"]}, "no task named 'x' .*there are: a, b, c"),
        ({"tasks": []}, "tasks must name"),
        ({"tasks": ["a", "a"]}, "tasks must name"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"evaluation_batch_size": 0}, "evaluation_batch_size must be at least 1"),
        ({"num_workers": -1}, "num_workers must be at least 0"),
        ({"validation": "some"}, "validation must be one of none, split, unused, got 'some'"),
        ({"validation_fraction": 0.0}, "validation_fraction must lie between 0 and 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie between 0 and 1"),
        ({"validation": "unused", "validation_images": 0}, "validation_images must be at least 1"),
        ({"validation_images": 5}, "validation_images only applies to validation: unused"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=f"^Tiny: .*{message}"):
        Tiny(**options)


def test_abstract():
    with pytest.raises(TypeError, match="load_tasks"):
        MultiTaskDataModule()


class Linked(Recorder):
    def __init__(self, task_names: list[str], num_classes: list[int], image_shape: list[int], validation_prefix: str):
        super().__init__()
        self.save_hyperparameters()


def command_line(*arguments):
    class CLI(LightningCLI):
        def add_arguments_to_parser(self, parser):
            for fact in ("task_names", "num_classes", "image_shape", "validation_prefix"):
                parser.link_arguments(f"data.{fact}", f"model.{fact}", apply_on="instantiate")

    quiet = ["--trainer.logger=false", "--trainer.accelerator=cpu", "--trainer.enable_checkpointing=false"]
    return CLI(
        Linked, MultiTaskDataModule, subclass_mode_data=True, run=False, save_config_callback=None,
        seed_everything_default=7, args=[*arguments, *quiet],
    )  # fmt: skip


def test_facts_are_linked_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")  # put back afterwards
    cli = command_line(
        "--data=DKLMNIST", "--data.tasks=[kuzushiji,letters]", "--data.upright=false", "--data.batch_size=4"
    )
    assert {key: cli.model.hparams[key] for key in cli.datamodule.task_info} == cli.datamodule.task_info
    assert (cli.datamodule.upright, cli.datamodule.batch_size, cli.datamodule.seed) == (False, 4, 7)
    state = cli.datamodule.state_dict()
    by_hand = DKLMNIST(tasks=["kuzushiji", "letters"], upright=False, batch_size=4, seed=7).state_dict()
    assert state == by_hand
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["DKLMNIST", "Digits"])
def test_print_config_without_data(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        command_line(f"--data={name}", "--print_config")
    assert caught.value.code in (0, None)
    assert "train_images_per_task" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


# Checkpoints


def test_state_round_trip(recwarn):
    Tiny().load_state_dict(Tiny().state_dict())
    Tiny(num_workers=2, root="x", evaluation_batch_size=7).load_state_dict(Tiny().state_dict())
    assert not recwarn.list


def test_state_is_plain_and_has_the_options_of_the_subclass():
    state = Digits(train_images_per_task=50, tasks=["upright_parity"], seed=3).state_dict()
    assert state["train_images_per_task"] == 50
    assert state["seed"] == 3
    assert state["tasks"] == ["upright_parity"]
    assert "root" not in state
    assert all(type(value) in (int, float, str, list, type(None)) for value in state.values())


@pytest.mark.parametrize(
    ("option", "value"), [("batch_size", 8), ("split_seed", 1), ("validation", "split"), ("validation_fraction", 0.5)]
)
def test_changed_option_is_obeyed_and_said(option, value):
    old = Tiny().state_dict()
    datamodule = Tiny(**{option: value})
    with pytest.warns(UserWarning, match=f"Tiny: {option} was {old[option]!r} in the checkpoint and is {value!r}"):
        datamodule.load_state_dict(old)
    assert getattr(datamodule, option) == value


class Other(Tiny):
    """The same names and numbers of images, other images."""

    def task(self, name):
        task = super().task(name)
        return replace(task, train=Examples(task.train.images + 1, task.train.labels))


def test_other_images_than_those_of_the_checkpoint_are_said(recwarn):
    """But not before the data are read, nor of a run that had not read them, or where an option explains it."""
    datamodules = [Tiny(), Tiny(), Other(), Other(batch_size=8)]
    for datamodule in datamodules:
        datamodule.setup()
    first, same, other, explained = datamodules
    saved = first.state_dict()
    same.load_state_dict(saved)
    Other().load_state_dict(saved)
    other.load_state_dict({key: value for key, value in saved.items() if key != "images_digest"})
    assert not recwarn.list
    with pytest.warns(UserWarning, match="Other: the images differ from those of the checkpoint's run"):
        other.load_state_dict(saved)
    recwarn.clear()
    explained.load_state_dict(saved)
    assert [str(w.message).split(" was ")[0] for w in recwarn] == ["Other: batch_size"]


@pytest.mark.parametrize(("option", "value"), [("seed", 9), ("tasks", ["b", "a", "c"])])
def test_changed_seed_or_tasks_are_refused(tmp_path, option, value):
    with pytest.raises(ValueError, match=f"made with {option} = .*Set --data.{option}"):
        Tiny(**{option: value}).load_state_dict(Tiny().state_dict())
    started = trainer(max_steps=2)
    started.fit(Recorder(), Tiny())
    started.save_checkpoint(tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=f"made with {option}"):
        trainer(max_steps=4).fit(Recorder(), Tiny(**{option: value}), ckpt_path=tmp_path / "x.ckpt")


def test_evaluation_of_a_checkpoint_does_not_ask_for_its_seed(tmp_path):
    started = trainer(max_steps=2)
    started.fit(Recorder(), Tiny())
    started.save_checkpoint(tmp_path / "x.ckpt")
    trainer().test(Recorder(), Tiny(seed=9), ckpt_path=tmp_path / "x.ckpt", verbose=False)


def test_datamodule_loads_from_a_checkpoint(tmp_path):
    started = trainer(max_steps=1)
    started.fit(Recorder(), Tiny(tasks=["c", "a"], seed=2))
    started.save_checkpoint(tmp_path / "x.ckpt")
    loaded = Tiny.load_from_checkpoint(tmp_path / "x.ckpt")
    assert (loaded.task_names, loaded.seed) == (["c", "a"], 2)
