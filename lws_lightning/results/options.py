"""In which options runs differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lws_lightning.options import NEUTRAL_METHOD_OPTIONS
from lws_lightning.results.runs import Run

__all__ = ["differences", "method_options", "settle"]


def method_options(run: Run) -> dict[str, Any]:
    """Returns the options of a run's method that matter, and its precision; options that were not chosen are None."""
    # Lightning's own entries begin with an underscore; they say how a run was started, not what it did.
    hparams = {
        name: value
        for name, value in (run.record.get("hparams") or {}).items()
        if name not in NEUTRAL_METHOD_OPTIONS | {"seed"} and not name.startswith("_")
    }
    precision = run.record.get("precision")
    added = {"weights_per_layer": run.record.get("weights_per_layer")} | ({"precision": precision} if precision else {})
    return {**hparams, **added}


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
