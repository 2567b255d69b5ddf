"""What of learned sharing's gain over no sharing is the search's, by the control that shares undirected."""

import statistics
from collections.abc import Iterator, Sequence

from lws_lightning.results.rows import Row, Section, training_differences
from lws_lightning.results.significance import Comparison

__all__ = ["gain_sentences"]


def gain_sentences(section: Section, comparisons: Sequence[Comparison]) -> list[str]:
    """Splits the gain of each learned row over no sharing into that of the control and that of the search.

    Args:
        section: Rows of one data set.
        comparisons: The tests of its rows.

    Returns:
        A sentence for each learned row, row without sharing and row of `UndirectedSharing` that ends without sharing,
        if they have the same network, the same training options and comparable evaluations.
    """
    tests = {(test.learned.letter, test.baseline.letter): test.p for test in comparisons if test.average == "error"}
    sentences = []
    for learned, none, control in _triples(section.rows):
        error, without, undirected = (statistics.fmean(row.errors("error")) for row in (learned, none, control))
        word = "better" if error <= without else "worse"
        p = tests.get((learned.letter, control.letter))
        sentences.append(
            f"{learned.letter} {learned.method} is {abs(without - error):.2f} points {word} than {none.letter} none: "
            f"{without - undirected:+.2f} by training under changing sharing that nothing directs ({control.letter} "
            f"undirected), {undirected - error:+.2f} by the search; plus is better"
            + (f" (p = {p:.2g} for the latter)." if p is not None else " (too few runs for a test).")
        )
    return sentences


def _triples(rows: Sequence[Row]) -> Iterator[tuple[Row, Row, Row]]:
    for learned in (row for row in rows if row.learned):
        alike = [
            row
            for row in rows
            if row.network == learned.network and row.key == learned.key and not training_differences([learned, row])
        ]
        for none in (row for row in alike if row.method == "none"):
            for control in (row for row in alike if row.method == "undirected" and row.options["then"] == "none"):
                if not any(row.diverged for row in (learned, none, control)):
                    yield learned, none, control
