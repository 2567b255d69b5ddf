"""The options that a result depends on, and how they differ between two runs."""

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lws_lightning.records.json_values import Record, to_json_value

__all__ = ["TRAINER_OPTIONS", "Identity", "changed_options", "default_options", "options_to_json"]

TRAINER_OPTIONS = (
    "max_steps",
    "max_epochs",
    "val_check_interval",
    "limit_train_batches",
    "overfit_batches",
    "precision",
)
"""The options of the Trainer that a result depends on."""


@dataclass(frozen=True)
class Identity(Record):
    """The options that determine a run: two runs with the same data and identity have the same result.

    Attributes:
        method: The method's `identity`: all its options except those that it declares neutral.
        data: The DataModule's `identity`.
        precision: The Trainer's precision.
    """

    method: dict[str, Any]
    data: dict[str, Any]
    precision: str


def options_to_json(options: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Returns options as JSON values, except those in `without` and Lightning's own, which begin with `_`."""
    return {
        name: to_json_value(value)
        for name, value in options.items()
        if name not in without and not name.startswith("_")
    }


def changed_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the options that differ, with both values; a missing option counts as None."""
    return {
        name: (before.get(name), now.get(name))
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    }


def default_options(cls: type, base: type) -> dict[str, Any]:
    """Returns the defaults of the constructor arguments of a class and its bases up to `base`, as JSON values.

    Arguments without a default are omitted.
    """
    constructors = [
        vars(parent)["__init__"]
        for parent in reversed(cls.__mro__)
        if issubclass(parent, base) and "__init__" in vars(parent)
    ]
    parameters = [
        parameter for constructor in constructors for parameter in inspect.signature(constructor).parameters.values()
    ]
    return {
        parameter.name: to_json_value(parameter.default)
        for parameter in parameters
        if parameter.default is not parameter.empty
    }
