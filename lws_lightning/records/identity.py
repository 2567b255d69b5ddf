"""Which options a result depends on, and in which of them two runs differ."""

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lws_lightning.records.plain import Record, to_plain

__all__ = ["TRAINER_OPTIONS", "Identity", "changed_options", "default_options", "plain_options"]

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
    """What makes a run the one it is: two runs of the same data and identity have the same result.

    Attributes:
        method: The method's `identity`: all its options but those that it declares neutral.
        data: The DataModule's.
        precision: The Trainer's.
    """

    method: dict[str, Any]
    data: dict[str, Any]
    precision: str


def plain_options(options: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Returns options as plain values, without some of them and without Lightning's own, which begin with `_`."""
    return {
        name: to_plain(value) for name, value in options.items() if name not in without and not name.startswith("_")
    }


def changed_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the options that differ, each with both values; an option that one side lacks counts as None."""
    return {
        name: (before.get(name), now.get(name))
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    }


def default_options(kind: type, base: type) -> dict[str, Any]:
    """Returns the default values of the options of a class and its bases.

    Args:
        kind: The class.
        base: The last of its bases that is looked at.

    Returns:
        Plain values, as far as the constructors name the options; those without a default are left out.
    """
    classes = [each for each in reversed(kind.__mro__) if issubclass(each, base) and "__init__" in vars(each)]
    parameters = [each for of in classes for each in inspect.signature(of.__init__).parameters.values()]
    return {each.name: to_plain(each.default) for each in parameters if each.default is not each.empty}
