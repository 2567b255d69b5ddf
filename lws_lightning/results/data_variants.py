"""Which runs were made with the same data."""

import json
from collections.abc import Sequence

from lws_lightning.results.config import data_options
from lws_lightning.results.options import differences, settle
from lws_lightning.results.runs import Run

__all__ = ["Variant", "data_variants"]

Variant = tuple[str, list[Run], list[str]]
"""In what a part's data differ from those of the others, as text; its runs; sentences about them."""


def data_variants(runs: Sequence[Run]) -> list[Variant]:
    """Splits runs of one data set and the same tasks by the options of their data, and by the images themselves.

    So the folds of a cross-validation, or two folders with the same names in them, are not averaged.

    Args:
        runs: The runs.

    Returns:
        A part for each set of options and images.
    """
    return [part for variant in _by_options(runs) for part in _by_images(*variant)]


def _by_options(runs: Sequence[Run]) -> list[Variant]:
    """Splits runs by the options of their data; those that tell none go with the others where these agree."""
    variants: dict[str, list[Run]] = {}
    told = [(run, options) for run in runs if (options := data_options(run.folder)) is not None]
    silent = [run for run in runs if all(run is not other for other, _ in told)]
    settled, _ = settle([options for _, options in told])
    for (run, _), options in zip(told, settled, strict=True):
        variants.setdefault(json.dumps(options, sort_keys=True), []).append(run)
    if not variants:
        return [("", silent, [])]
    decoded = [json.loads(text) for text in variants]
    named = differences(decoded)
    ordered = sorted(zip(named, variants.values(), strict=True), key=lambda item: item[0])
    if not silent:
        return [(name, members, []) for name, members in ordered]
    if len(ordered) > 1:
        return [*((name, members, []) for name, members in ordered), ("options not recorded", silent, [])]
    count = f"{len(silent)} run{'s' * (len(silent) != 1)}"
    note = f"{count} without config.yaml: taken to have the same options of the data as the others."
    chosen = set(map(id, [*ordered[0][1], *silent]))
    return [("", [run for run in runs if id(run) in chosen], [note])]


def _by_images(name: str, runs: list[Run], notes: list[str]) -> list[Variant]:
    """Splits runs whose options agree; those of an older version, which tell no images, stay if there is one part."""
    digests = sorted({digest for run in runs if (digest := run.record.get("data_digest")) is not None})
    if len(digests) < 2:
        return [(name, runs, notes)]
    told = [
        (f"images {digest}", [run for run in runs if run.record.get("data_digest") == digest]) for digest in digests
    ]
    silent = [run for run in runs if run.record.get("data_digest") is None]
    parts = [*told, ("images not recorded", silent)] if silent else told
    return [(", ".join(filter(None, (name, images))), members, notes) for images, members in parts]
