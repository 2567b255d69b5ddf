"""Names of options that stand in lists are names of options."""

import inspect

import pytest
from lightning.pytorch import Trainer

from lws_lightning import data, methods
from lws_lightning.options import NEUTRAL_DATA_OPTIONS, NEUTRAL_METHOD_OPTIONS
from lws_lightning.results import options as results_options
from lws_lightning.sweep import plan


def options_of(package, base):
    kinds = [getattr(package, name) for name in package.__all__]
    parts = {part for kind in kinds if isinstance(kind, type) and issubclass(kind, base) for part in kind.__mro__}
    return {name for part in parts if "__init__" in vars(part) for name in inspect.signature(part.__init__).parameters}


@pytest.mark.parametrize(
    ("names", "package", "base"),
    [
        (NEUTRAL_DATA_OPTIONS, data, data.MultiTaskDataModule),
        (NEUTRAL_METHOD_OPTIONS | results_options._NOT_OF_TRAINING, methods, methods.MultiTaskMethod),
    ],
)
def test_every_option_that_is_named_exists(names, package, base):
    assert names <= options_of(package, base)


def test_every_option_of_the_trainer_that_a_sweep_compares_exists():
    assert set(plan._TRAINER) <= set(inspect.signature(Trainer.__init__).parameters)
