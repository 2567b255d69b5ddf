"""Task affinity as the cells of tables and as rows of CSV files."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lws_lightning.results.affinity import ALL_LAYERS, Affinity
from lws_lightning.results.grouping import Section, seeds_text

__all__ = [
    "AFFINITY_EXPLAINED",
    "STABILITY_EXPLAINED",
    "affinity_rows",
    "pair_cells",
    "stability_cells",
    "stability_rows",
]

_MOST = 5  # pairs of a row
_MAX_LAYERS = 8  # with more layers their columns do not fit
AFFINITY_EXPLAINED = (
    f"The pairs of tasks that share most, at most {_MOST} a row: percent of the seeds in which both use the same "
    "weights, as the mean over layers (each counts alike) and by layer. Under pi: the probability by the final search "
    "distribution, mean over layers and seeds."
)
STABILITY_EXPLAINED = (
    "Do the seeds agree on which tasks share? Pairs that share: percent of the pairs of tasks; uniform: the "
    "same if every task drew its copies without any preference. Rand: the share of the "
    "pairs of tasks on which two seeds agree (share, or do not), mean over all couples of seeds. By chance: its "
    "expectation if every seed had its sizes of groups, but chance chose the tasks. Adjusted: 1 is full agreement, 0 "
    "chance. p: of such a Rand or a greater one by chance."
)


def stability_cells(affinities: Sequence[Affinity]) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the table of stability, the first three columns being text.

    With more than 8 layers a row has its line for all layers only.
    """
    header = ["row", "method", "layer", "n", "pairs that share", "uniform", "Rand", "by chance", "adjusted", "p"]
    body = [
        [
            *(each.row.letter, each.row.label, at.layer, str(len(each.runs)), f"{at.sharing:.1f} %"),
            "-" if at.uniform is None else f"{at.uniform:.1f} %",
            *(_number(at.rand), _number(at.chance), _number(at.adjusted), _number(at.p, 3)),
        ]
        for each in affinities
        for at in (each.stability if len(each.layers) <= _MAX_LAYERS else each.stability[-1:])
    ]
    return header, body


def pair_cells(affinities: Sequence[Affinity]) -> tuple[list[str], list[list[str]]]:
    """Returns header and cells of the pairs of tasks that share most, the first three columns being text.

    Layers have columns where all rows have the same, at most 8.
    """
    layers = {each.layers for each in affinities}
    shown = layers.pop() if len(layers) == 1 else ()
    shown = shown if len(shown) <= _MAX_LAYERS else ()
    body = []
    for each in affinities:
        mean = each.shares.mean(0)
        for pair in each.pairs()[:_MOST]:
            names = " and ".join(each.tasks[task] for task in pair)
            by_layer = [f"{100 * each.shares[layer][pair]:.0f} %" for layer in range(len(shown))]
            probable = "-" if each.probable is None else f"{100 * each.probable.mean(0)[pair]:.1f} %"
            cells = [each.row.letter, each.row.label, names, str(len(each.runs)), f"{100 * mean[pair]:.1f} %"]
            body.append([*cells, *by_layer, probable])
    return ["row", "method", "tasks", "n", "mean", *shown, "under pi"], body


def affinity_rows(section: Section, affinities: Sequence[Affinity]) -> list[dict[str, Any]]:
    """Returns all pairs of tasks at all layers, and the mean over layers, as rows of a CSV table, unrounded."""
    found = []
    for each in affinities:
        names = [*each.layers, ALL_LAYERS]
        shares = [*each.shares, each.shares.mean(0)]
        probable = [None] * len(names) if each.probable is None else [*each.probable, each.probable.mean(0)]
        for first, second in zip(*np.triu_indices(len(each.tasks), 1), strict=True):
            for layer, share, likely in zip(names, shares, probable, strict=True):
                found.append(
                    {
                        **_row(section, each),
                        "task": each.tasks[first],
                        "other_task": each.tasks[second],
                        "layer": layer,
                        "share_of_seeds": float(share[first, second]),
                        "probability": None if likely is None else float(likely[first, second]),
                    }
                )
    return found


def stability_rows(section: Section, affinities: Sequence[Affinity]) -> list[dict[str, Any]]:
    """Returns the stability as rows of a CSV table, unrounded."""
    return [
        {
            **_row(section, each),
            "layer": at.layer,
            "pairs_that_share": at.sharing,
            "pairs_that_share_uniform": at.uniform,
            "rand": at.rand,
            "rand_by_chance": at.chance,
            "adjusted": at.adjusted,
            "p": at.p,
        }
        for each in affinities
        for at in each.stability
    ]


def _row(section: Section, affinity: Affinity) -> dict[str, Any]:
    return {
        "row": affinity.row.letter,
        "data": section.data,
        "data_options": section.variant,
        "network": affinity.row.network,
        "method": affinity.row.method,
        "options": affinity.row.variant,
        "n": len(affinity.runs),
        "seeds": seeds_text(run.seed for run in affinity.runs),
    }


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
