"""In which options runs differ."""

import inspect
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lws_lightning import methods
from lws_lightning.options import NEUTRAL_METHOD_OPTIONS
from lws_lightning.results.runs import Run

__all__ = ["changed_options", "differences", "method_options", "settle", "training_differences"]

_NEUTRAL = NEUTRAL_METHOD_OPTIONS | {"seed"}
_OF_THE_RECORD = frozenset({"precision"})
_NOT_OF_TRAINING = frozenset({"validation_prefix", "learned_layers"})


def method_options(run: Run) -> dict[str, Any]:
    """Returns the options of a run's method that matter, and its precision.

    Options that were not chosen are None. One that a run does not tell, because the package did not have it then, has
    its default value, which says what the package did.
    """
    # Lightning's own entries begin with an underscore; they say how a run was started, not what it did.
    hparams = {
        name: value
        for name, value in (run.record.get("hparams") or {}).items()
        if name not in _NEUTRAL and not name.startswith("_")
    }
    precision = run.record.get("precision")
    added = {"weights_per_layer": run.record.get("weights_per_layer")}
    told = {**hparams, **added, **({"precision": precision} if precision else {})}
    return {**_defaults(run.method), **told} if hparams else told


def changed_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those options of a row that have another value than by default, or none by default."""
    defaults = {**_defaults(method), "weights_per_layer": options.get("weights_per_layer")}
    names = defaults.keys() & options.keys() - {"validation_prefix"}  # the data say that
    return {name: options[name] for name in sorted(names) if options[name] != defaults[name]}


def training_differences(options: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Names the options of training in which rows differ, whatever their methods.

    That are those which every method has, such as `lr` and `weight_decay`, and the precision.

    Args:
        options: Of each row, without those that are None.

    Returns:
        By option its values, one for each row.
    """
    every = {p.name for p in _parameters(methods.MultiTaskMethod) if p.default is not p.empty}
    found = {}
    for name in sorted((every | _OF_THE_RECORD) - _NEUTRAL - _NOT_OF_TRAINING):
        values = [each.get(name) for each in options]
        untold = name == "precision" and None in values  # records of older versions do not tell it
        if len({_text(value) for value in values}) > 1 and not untold:
            found[name] = values
    return found


@cache
def _defaults(method: str) -> dict[str, Any]:
    """Returns the default values of a method's options, none for a method that is not of this package."""
    kinds: dict[str, type] = dict.fromkeys(("full", "none", "prior"), methods.FixedSharing)
    for exported in (getattr(methods, name) for name in methods.__all__):
        if isinstance(exported, type) and isinstance(name := getattr(exported, "method_name", None), str):
            kinds[name] = exported
    kind = kinds.get(method)
    parameters = [p for part in reversed(kind.__mro__ if kind else ()) for p in _parameters(part)]
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name not in _NEUTRAL}


def _parameters(kind: type) -> list[inspect.Parameter]:
    made_here = kind.__module__.startswith("lws_lightning.methods") and "__init__" in vars(kind)
    return list(inspect.signature(kind.__init__).parameters.values()) if made_here else []  # type: ignore[misc]


def settle(options: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Fills in what some runs do not tell, as those of a version of this package that did not have the option.

    Args:
        options: Of each run.

    Returns:
        The options of each run without those that are None, and the options that were filled in, `name=value`: those
        that all runs that tell them have in common. Where these differ, an option that is not told counts as None.
    """
    filled: dict[str, Any] = {}
    for name in sorted({name for each in options for name in each}):
        told = [each[name] for each in options if name in each]
        if len(told) < len(options) and len({_text(value) for value in told}) == 1 and told[0] is not None:
            filled[name] = told[0]
    settled = [{name: value for name, value in {**filled, **each}.items() if value is not None} for each in options]
    return settled, [f"{name}={value}" for name, value in filled.items()]


def differences(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names for each set of options the values in which the sets differ."""
    names = sorted({name for each in options for name in each})
    differing = [name for name in names if len({_text(each.get(name)) for each in options}) > 1]
    return [", ".join(f"{name}={each.get(name)}" for name in differing) for each in options]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
