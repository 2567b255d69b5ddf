from dataclasses import replace

import pytest
import torch
from fakes import Tiny
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.cli import LightningCLI

from lws_lightning.data import DKLMNIST, Digits, MultiTaskDataModule


class Recorder(LightningModule):
    """Trains nothing and writes down what it sees."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.steps = []
        self.validated = []

    def training_step(self, batch, batch_idx):
        self.steps.append((batch.nes.labels.tolist(), batch.sgd.labels.tolist(), batch.sgd.images.tolist()))
        self.manual_backward(self.weight * 0)
        self.optimizers().step()

    def validation_step(self, batch, batch_idx):
        self.validated.append((batch.task, batch.images[:, 0, 0, 0].tolist()))

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(**options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(accelerator="cpu", devices=1, enable_model_summary=False, num_sanity_val_steps=0, **quiet | options)


def steps_of(datamodule, **options):
    recorder = Recorder()
    trainer(**options).fit(recorder, datamodule)
    return recorder.steps


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
    with pytest.raises(ValueError, match=r"task 'a': images of shape \[1, 9, 9\] declared, \[1, 8, 8\] loaded"):
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


# Loading and splitting


def test_setup_loads_once():
    datamodule = Tiny()
    datamodule.setup("fit")
    datamodule.setup("test")
    datamodule.train_dataloader()
    datamodule.val_dataloader()
    datamodule.test_dataloader()
    assert datamodule.class_names == [None, None, None]
    assert datamodule.loads == 1


def altered(**changes):
    class Altered(Tiny):
        def task(self, name):
            task = super().task(name)
            return replace(task, **{key: change(task) for key, change in changes.items()}) if name == "b" else task

    return Altered()


def test_setup_checks_the_tasks():
    with pytest.raises(ValueError, match="Altered, task 'b': training labels must lie in"):
        altered(train_labels=lambda task: task.train_labels + 1).setup()
    with pytest.raises(ValueError, match="Altered, task 'b': 4 classes declared, 5 loaded"):
        altered(num_classes=lambda task: 5).setup()
    with pytest.raises(ValueError, match="Altered, task 'b': load_tasks did not return it, only a, z, c"):
        altered(name=lambda task: "z").setup()


def test_task_without_test_images_is_said_and_skipped():
    nothing = {"test_images": lambda task: task.test_images[:0], "test_labels": lambda task: task.test_labels[:0]}
    datamodule = altered(**nothing)
    with pytest.warns(UserWarning, match="Altered: no test images in b; left out"):
        datamodule.setup()
    assert {batch.task for batch in datamodule.test_dataloader()} == {0, 2}


def test_no_test_images_at_all():
    class Untested(Tiny):
        sizes = {"a": (4, 0, 0), "b": (4, 0, 0), "c": (5, 0, 0)}  # noqa: RUF012

    with (
        pytest.raises(ValueError, match="Untested: none of the tasks has test images"),
        pytest.warns(UserWarning, match="no test images in a, b, c"),
    ):
        Untested().setup()


def numbers(examples):
    return [set(images[:, 0, 0, 0].tolist()) for images, _ in examples]


def test_no_validation_uses_the_test_images():
    datamodule = Tiny()
    assert datamodule.validation_prefix == "test_curve"
    assert [len(images) for images, _ in datamodule.examples("validation")] == [0, 0, 0]
    assert {int(n) for batch in datamodule.val_dataloader() for n in batch.images[:, 0, 0, 0]} == set(range(100, 111))


def test_validation_split_is_stratified_and_disjoint():
    datamodule = Tiny(validation="split", validation_fraction=0.25)
    assert datamodule.validation_prefix == "val"
    train, validation = datamodule.examples("train"), datamodule.examples("validation")
    assert [len(labels) for _, labels in validation] == [10, 16, 3]
    assert torch.bincount(validation[1][1]).tolist() == [4, 4, 4, 4]
    for kept, held_out, size in zip(numbers(train), numbers(validation), (40, 64, 12), strict=True):
        assert not kept & held_out
        assert kept | held_out == set(range(size))
    assert sum(len(batch.labels) for batch in datamodule.val_dataloader()) == 29
    assert sum(len(batch.labels) for batch in datamodule.test_dataloader()) == 21


def test_split_seed_alone_decides_the_split():
    def held_out(**options):
        return numbers(Tiny(validation="split", **options).examples("validation"))

    assert held_out() == held_out(seed=5, batch_size=3)
    assert held_out() != held_out(split_seed=1)


def test_validation_split_must_leave_every_class_an_image():
    datamodule = Tiny(validation="split", validation_fraction=0.9)
    with pytest.raises(ValueError, match=r"task 'c': .*validation_fraction 0.9 leaves no training image in class"):
        datamodule.setup()


def test_validation_unused():
    datamodule = Tiny(validation="unused")
    assert datamodule.validation_prefix == "val"
    assert numbers(datamodule.examples("validation")) == [set(range(200, 210))] * 3
    assert numbers(datamodule.examples("train"))[0] == set(range(40))
    capped = Tiny(validation="unused", validation_images=5).examples("validation")
    assert [len(labels) for _, labels in capped] == [5, 5, 5]
    assert torch.bincount(capped[2][1]).tolist() == [1] * 5


def test_validation_unused_with_nothing_unused():
    with pytest.raises(ValueError, match="Digits, task 'upright_digit': validation: unused needs"):
        Digits(validation="unused").setup()


# Loaders


def test_loader_batches():
    loader = Tiny().train_dataloader()
    batches = list(loader)
    assert len(batches) == len(loader) == 4
    assert batches[0].nes.images.shape == batches[0].sgd.images.shape == (3, 16, 1, 8, 8)
    assert batches[0].sgd.labels.dtype == torch.int64


def test_seed_comes_from_seed_everything_unless_given(monkeypatch):
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    assert Tiny().seed == 0
    monkeypatch.setenv("PL_GLOBAL_SEED", "11")
    seed_everything(11)
    assert Tiny().seed == 11
    assert Tiny(seed=4).seed == 4


def test_batches_do_not_depend_on_workers_and_go_on_over_epochs():
    runs = [steps_of(Tiny(num_workers=workers), max_epochs=3) for workers in (0, 2)]  # persistent
    assert runs[0] == runs[1]
    assert len(runs[0]) == 12
    epochs = [runs[0][0:4], runs[0][4:8], runs[0][8:12]]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    third = sorted(x for step in epochs[2] for x in step[1][1])
    assert third == sorted([0, 1, 2, 3] * 16)  # 64 images of task b, once each


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("done", [3, 4, 6])
def test_resumed_run_sees_the_same_batches(tmp_path, done, workers):
    whole = steps_of(Tiny(), max_steps=9)
    first, second = Recorder(), Recorder()
    started = trainer(max_steps=done)
    started.fit(first, Tiny(num_workers=workers))
    started.save_checkpoint(tmp_path / "x.ckpt")
    trainer(max_steps=9).fit(second, Tiny(num_workers=workers), ckpt_path=tmp_path / "x.ckpt")
    assert first.steps + second.steps == whole


def test_resuming_within_an_epoch_is_no_reason_to_warn(tmp_path, recwarn):
    started = trainer(max_steps=3)
    started.fit(Recorder(), Tiny())
    started.save_checkpoint(tmp_path / "x.ckpt")
    trainer(max_steps=9).fit(Recorder(), Tiny(), ckpt_path=tmp_path / "x.ckpt")
    assert not [str(w.message) for w in recwarn if "resum" in str(w.message)]


def test_overfit_batches_repeats_the_batch():
    steps = steps_of(Tiny(), max_epochs=3, overfit_batches=1)
    assert len(steps) == 3
    assert steps[0] == steps[1] == steps[2] == steps_of(Tiny(), max_steps=1)[0]


@pytest.mark.parametrize(
    ("options", "count"), [({"fast_dev_run": True}, 1), ({"limit_train_batches": 2, "max_epochs": 2}, 4)]
)
def test_short_runs_have_whole_batches(options, count):
    steps = steps_of(Tiny(), **options)
    assert len(steps) == count
    assert all(len(labels) == 16 for step in steps for labels in step[1])
    assert steps == steps_of(Tiny(), max_steps=count)  # the step counter goes on, epoch or not


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_validation_batches_reach_several_tasks(limit):
    recorder = Recorder()
    trainer(max_steps=1, limit_val_batches=limit).fit(recorder, Tiny(evaluation_batch_size=2))
    recorder.validated.clear()
    trainer(limit_val_batches=limit).validate(recorder, Tiny(evaluation_batch_size=2), verbose=False)
    assert [task for task, _ in recorder.validated] == [0, 1, 2][:limit]


def test_test_loop_sees_every_test_image_once():
    recorder = Recorder()
    trainer().test(recorder, Tiny(evaluation_batch_size=4, num_workers=2), verbose=False)
    seen = sorted((task, number) for task, images in recorder.validated for number in images)
    assert seen == [(t, 100 + n) for t, size in enumerate((11, 9, 1)) for n in range(size)]


def test_one_image_more_than_a_batch():
    class OneMore(Tiny):
        sizes = {"a": (17, 1, 0), "b": (4, 1, 0), "c": (5, 1, 0)}  # noqa: RUF012

    steps = steps_of(OneMore(), max_epochs=2)
    assert len(steps) == 4
    assert all(len(labels) == 16 for step in steps for labels in step[1])


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
