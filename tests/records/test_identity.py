"""Which options a result depends on: declared by methods and data, compared by record, report, sweep and resume."""

import inspect
from typing import Any

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from small import tiny_network

from lws_lightning import Digits, LearnedWeightSharing, data, methods
from lws_lightning.callbacks import RunRecord
from lws_lightning.records import TRAINER_OPTIONS, changed_options, default_options, find_run, load_runs
from lws_lightning.results.grouping import group_runs
from lws_lightning.sweep.plan import plan_runs, save_config

METHODS = [getattr(methods, name) for name in methods.__all__]
DATA = [getattr(data, name) for name in data.__all__]


class Coloured(LearnedWeightSharing):
    """A user's method: `colour` has no consequence, `shape` is part of the state, `taste` of the start."""

    method_name = "coloured"
    neutral_options = LearnedWeightSharing.neutral_options | {"colour"}
    state_options = LearnedWeightSharing.state_options | {"shape"}
    start_options = LearnedWeightSharing.start_options | {"taste"}

    def __init__(self, colour="red", shape="round", taste="sour", spice=0, **options: Any):
        super().__init__(network=tiny_network, nes_samples=2, sgd_samples=2, **options)


class Stored(Digits):
    """A user's data: `shelf` says where they lie, `flipped` what they are."""

    neutral_options = Digits.neutral_options | {"shelf"}

    def __init__(self, shelf=0, flipped=False, **options: Any):
        super().__init__(train_images_per_task=20, batch_size=2, **options)


def options_of(kind):
    parts = [part for part in kind.__mro__ if "__init__" in vars(part)]
    return {name for part in parts for name in inspect.signature(part.__init__).parameters}


@pytest.mark.parametrize(
    "kind", [each for each in METHODS if isinstance(each, type) and hasattr(each, "state_options")]
)
def test_every_option_that_a_method_declares_exists(kind):
    declared = kind.neutral_options | kind.state_options | kind.start_options | kind.training_options
    resolved = {"weights_per_layer"}  # part of every identity, also where it is no option
    assert declared | kind.state_values.keys() <= options_of(kind) | resolved
    assert not kind.neutral_options & (kind.state_options | kind.start_options | kind.training_options)
    assert not kind.state_options & kind.start_options


@pytest.mark.parametrize("kind", [each for each in DATA if isinstance(each, type) and hasattr(each, "batch_options")])
def test_every_option_that_data_declare_exists(kind):
    assert kind.neutral_options | kind.batch_options <= options_of(kind)
    assert not kind.neutral_options & kind.batch_options


def test_every_option_of_the_trainer_exists():
    assert set(TRAINER_OPTIONS) <= set(inspect.signature(Trainer.__init__).parameters)


def test_defaults_are_those_of_the_class_and_its_bases():
    defaults = default_options(Coloured, methods.MultiTaskMethod)
    assert (defaults["colour"], defaults["spice"], defaults["nes_lr"], defaults["lr"]) == ("red", 0, 1e-2, 1e-3)
    assert "network" not in defaults


def test_changed_options():
    assert changed_options({"a": 1, "b": [2], "c": None}, {"a": 1, "b": [3], "d": 4}) == {
        "b": ([2], [3]),
        "d": (None, 4),
    }


@pytest.fixture
def fit(quiet_trainer, tmp_path):
    """Trains for two steps and saves; returns the checkpoint."""

    def run(name, data_options=None, seed=0, ckpt_path=None, **options):
        stored = Stored(seed=0, **(data_options or {}))
        method = Coloured(seed=seed, **options, **stored.task_info)
        save = ModelCheckpoint(tmp_path / name / "checkpoints", filename="last")
        place = {"default_root_dir": tmp_path / name, "callbacks": [save, RunRecord()], "enable_checkpointing": True}
        steps = 4 if ckpt_path else 2
        trainer = quiet_trainer(max_steps=steps, limit_val_batches=1, val_check_interval=2, **place)
        trainer.fit(method, datamodule=stored, ckpt_path=ckpt_path)
        return tmp_path / name / "checkpoints/last.ckpt"

    return run


@pytest.mark.filterwarnings("ignore")
def test_a_record_holds_the_identity_without_what_a_user_declares_neutral(fit, tmp_path):
    fit("a", colour="blue", spice=3, data_options={"shelf": 5})
    (run,), _ = load_runs([tmp_path])
    found = {name: run.identity.method[name] for name in ("shape", "taste", "spice")}
    assert found == {"shape": "round", "taste": "sour", "spice": 3}
    assert "colour" not in run.identity.method
    assert run.neutral["method"]["colour"] == "blue"
    assert (run.identity.data["flipped"], "shelf" in run.identity.data) == (False, False)
    assert run.neutral["data"]["shelf"] == 5
    assert run.identity.precision == "32-true"


@pytest.mark.filterwarnings("ignore")
def test_a_report_averages_over_what_a_user_declares_neutral(fit, tmp_path):
    fit("a")
    fit("b", seed=1, colour="blue", data_options={"shelf": 5})
    fit("c", spice=3)
    fit("d", data_options={"flipped": True})
    runs, _ = load_runs([tmp_path])
    first, second = group_runs(runs)
    assert (first.variant, second.variant) == ("flipped=False", "flipped=True")
    assert [(row.variant, row.seeds) for row in first.rows] == [("spice=0", (0, 1)), ("spice=3", (0,))]
    assert first.rows[1].changed_options == {"spice": 3}


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_resume_obeys_what_a_user_declares(fit, tmp_path):
    checkpoint = fit("a")
    with pytest.raises(ValueError, match=r"model\.shape is 'square', but the checkpoint was trained with 'round'"):
        fit("b", shape="square", ckpt_path=checkpoint)
    with pytest.warns(UserWarning, match=r"model\.taste has no effect here") as caught:
        fit(
            "c", colour="blue", taste="sweet", spice=1, data_options={"shelf": 5, "flipped": True}, ckpt_path=checkpoint
        )
    texts = "\n".join(str(each.message) for each in caught)
    assert "Resuming with model.spice 1 instead of the checkpoint's 0." in texts
    assert "Stored: flipped was False in the checkpoint and is True now" in texts
    assert "colour" not in texts
    assert "shelf" not in texts
    assert find_run(next((tmp_path / "c").rglob("result.json")).parent).step == 4


def test_a_sweep_lets_change_what_a_user_declares_neutral(tmp_path):
    def plan(method, stored):
        config = {
            "trainer": {"max_steps": 2},
            "model": {"class_path": f"{__name__}.Coloured", "init_args": method},
            "data": {"class_path": f"{__name__}.Stored", "init_args": stored},
        }
        return plan_runs({tmp_path / "mine/some.yaml": config}, [0], tmp_path / "out")

    (run,) = plan({"colour": "red", "spice": 0}, {"shelf": 0, "flipped": False})
    save_config(run)
    plan({"colour": "blue", "spice": 0}, {"shelf": 1, "flipped": False})
    with pytest.raises(ValueError, match=r"holds a run with model\.spice 0, not 3"):
        plan({"colour": "red", "spice": 3}, {"shelf": 0, "flipped": False})
    with pytest.raises(ValueError, match=r"holds a run with data\.flipped False, not True"):
        plan({"colour": "red", "spice": 0}, {"shelf": 0, "flipped": True})
