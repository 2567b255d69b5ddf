"""Whether a search has decided: how many choices of a copy have one clearly most likely copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from lws_lightning.records.json_values import Record

__all__ = ["DECIDED", "Decisions", "probabilities_by_copy"]

DECIDED = 0.9
"""A choice is decided if one copy has at least this probability."""
_MAX_UNDECIDED = 0.1  # share of the choices


@dataclass(frozen=True)
class Decisions(Record):
    """How far a search has come, in choices: one for each task and each layer with more than one copy.

    Attributes:
        choices: Their number, at least one.
        undecided: Those whose most likely copy has a probability below 0.9.
    """

    choices: int
    undecided: int

    @classmethod
    def of(cls, probabilities: Sequence[Sequence[Sequence[float]]] | None) -> Self | None:
        """Counts the choices of a search distribution, by layer, task and copy; None if there is nothing to choose."""
        rows = [task for layer in probabilities or () for task in layer if len(task) > 1]
        return cls(len(rows), sum(max(row) < DECIDED for row in rows)) if rows else None

    @property
    def settled(self) -> bool:
        """Whether at most a tenth of the choices are undecided."""
        return self.undecided <= _MAX_UNDECIDED * self.choices

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values, and whether the search has settled for readers of the file."""
        return {**super().to_json(), "settled": self.settled}

    def __str__(self) -> str:
        if not self.undecided:
            return f"settled, all {self.choices} choices of a copy"
        counts = f"{self.undecided} of {self.choices} choices of a copy are open (most likely copy below {DECIDED})"
        return f"{'settled, but' if self.settled else 'not settled:'} {counts}"


def probabilities_by_copy(
    padded: Sequence[Sequence[Sequence[float]]], weights_per_layer: Sequence[int]
) -> list[list[list[float]]]:
    """Returns a search distribution `(L, T, max K)` as lists by layer, task and copy, without the padding."""
    by_layer = zip(padded, weights_per_layer, strict=True)
    return [[list(task[:size]) for task in tasks] for tasks, size in by_layer]
