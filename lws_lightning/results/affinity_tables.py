"""Tables of which tasks share, and how far the seeds agree."""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

from lws_lightning.results.affinity import ALL_LAYERS, Affinity, Stability
from lws_lightning.results.rows import Section, seeds_text
from lws_lightning.results.table import Column, Table

__all__ = ["MAX_LAYERS", "affinity_table", "pair_table", "stability_table"]

MAX_LAYERS = 8  # columns or lines of more layers are too many to read
_MAX_PAIRS = 5  # of a row


class _Agreement(NamedTuple):
    """The agreement of a row's seeds at one layer."""

    affinity: Affinity
    stability: Stability


class _Pair(NamedTuple):
    """Two tasks of a row at one layer; None: mean over layers."""

    affinity: Affinity
    tasks: tuple[int, int]
    layer: int | None = None

    def share(self, layer: int | None) -> float:
        """Returns the fraction of seeds in which both use the same weights at a layer; None: mean over layers."""
        shares = self.affinity.shares
        return float((shares.mean(0) if layer is None else shares[layer])[self.tasks])

    def probability(self) -> float | None:
        """Returns the probability of that under the final search distributions, None if it is unknown."""
        probabilities = self.affinity.probabilities
        if probabilities is None:
            return None
        return float((probabilities.mean(0) if self.layer is None else probabilities[self.layer])[self.tasks])


def stability_table(
    section: Section, affinities: Sequence[Affinity], max_layers: int | None = None
) -> Table[_Agreement]:
    """Returns how far the seeds agree by layer; rows with more than `max_layers` layers have one line for all."""
    caption = (
        "Do the seeds agree on which tasks share? Pairs that share: percent of the pairs of tasks; uniform: the same "
        "if every task drew its copies without any preference. Rand: the share of the pairs of tasks on which two "
        "seeds agree (share, or do not), mean over all couples of seeds. By chance: its expectation if every seed had "
        "its sizes of groups, but chance chose the tasks. Adjusted: 1 is full agreement, 0 chance. p: of such a Rand "
        "or a greater one by chance."
    )
    items = []
    for affinity in affinities:
        by_layer = max_layers is None or len(affinity.layers) <= max_layers
        items += [_Agreement(affinity, entry) for entry in affinity.stability[0 if by_layer else -1 :]]
    columns: list[Column[_Agreement]] = [
        *_row_columns(section),
        Column("layer", lambda item: item.stability.layer, "layer", text=True),
        Column("pairs_that_share", lambda item: item.stability.sharing, "pairs that share", "{:.1f} %"),
        Column("pairs_that_share_uniform", lambda item: item.stability.uniform, "uniform", "{:.1f} %"),
        Column("rand", lambda item: item.stability.rand, "Rand", "{:.2f}"),
        Column("rand_by_chance", lambda item: item.stability.chance, "by chance", "{:.2f}"),
        Column("adjusted", lambda item: item.stability.adjusted, "adjusted", "{:.2f}"),
        Column("p", lambda item: item.stability.p, "p", "{:.3f}"),
    ]
    return Table(items, columns, caption, keys=4)


def pair_table(section: Section, affinities: Sequence[Affinity]) -> Table[_Pair]:
    """Returns the pairs of tasks that share most; layers have columns if they are few and the same in all rows."""
    caption = (
        f"The pairs of tasks that share most, at most {_MAX_PAIRS} a row: percent of the seeds in which both use the "
        "same weights, as the mean over layers (each counts alike) and by layer. Under pi: the probability by the "
        "final search distribution, mean over layers and seeds."
    )
    names = {affinity.layers for affinity in affinities}
    layers = names.pop() if len(names) == 1 else ()
    columns: list[Column[_Pair]] = [
        *_row_columns(section),
        Column("tasks", lambda pair: " and ".join(pair.affinity.tasks[t] for t in pair.tasks), "tasks", text=True),
        Column("mean", partial(_percent, layer=None), "mean", "{:.1f} %"),
        *(
            Column(f"layer {layer}", partial(_percent, layer=layer), name, "{:.0f} %")
            for layer, name in enumerate(layers if len(layers) <= MAX_LAYERS else ())
        ),
        Column("under_pi", lambda pair: pair.probability(), "under pi", lambda value: f"{100 * value:.1f} %"),
    ]
    items = [_Pair(affinity, pair) for affinity in affinities for pair in affinity.pairs()[:_MAX_PAIRS]]
    return Table(items, columns, caption, keys=4)


def affinity_table(section: Section, affinities: Sequence[Affinity]) -> Table[_Pair]:
    """Returns all pairs of tasks at all layers and as the mean over layers, for CSV."""
    columns: list[Column[_Pair]] = [
        *_row_columns(section),
        Column("task", lambda pair: pair.affinity.tasks[pair.tasks[0]]),
        Column("other_task", lambda pair: pair.affinity.tasks[pair.tasks[1]]),
        Column("layer", lambda pair: ALL_LAYERS if pair.layer is None else pair.affinity.layers[pair.layer]),
        Column("share_of_seeds", lambda pair: pair.share(pair.layer)),
        Column("probability", lambda pair: pair.probability()),
    ]
    items = [
        _Pair(affinity, tasks, layer)
        for affinity in affinities
        for tasks in combinations(range(len(affinity.tasks)), 2)
        for layer in (*range(len(affinity.layers)), None)
    ]
    return Table(items, columns)


def _row_columns(section: Section) -> list[Column[Any]]:
    """Returns the columns that describe the row of an item."""
    return [
        Column("row", lambda item: item.affinity.row.letter, "row", text=True),
        Column("data", lambda item: section.data),
        Column("data_options", lambda item: section.variant),
        Column("network", lambda item: item.affinity.row.network),
        Column("method", lambda item: item.affinity.row.method),
        Column("label", lambda item: item.affinity.row.label, "method", text=True, csv=False),
        Column("options", lambda item: item.affinity.row.variant),
        Column("n", lambda item: len(item.affinity.runs), "n"),
        Column("seeds", lambda item: seeds_text(run.seed for run in item.affinity.runs)),
    ]


def _percent(pair: _Pair, layer: int | None) -> float:
    return 100 * pair.share(layer)
