"""Mann-Whitney U tests: is the error of learned sharing smaller than that of another method?"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lws_lightning.results.rows import Row, Section, training_differences
from lws_lightning.results.table import Column, Table

__all__ = [
    "AVERAGES",
    "Comparison",
    "compare",
    "fewest_runs",
    "holm",
    "least_p",
    "mann_whitney",
    "significance_table",
]

AVERAGES = {"error": "all images", "error_task_mean": "task mean"}
LEVEL = 0.05
MIN_RUNS = 3
_MAX_EXACT = 50  # runs of a sample; for more, the normal approximation is as good
EXACT = "exact"
EXACT_TIES = "exact, over all arrangements of tied ranks"
NORMAL = "normal approximation with correction for ties"


@dataclass(frozen=True)
class Comparison:
    """A one-sided test of one learned row against another row.

    Attributes:
        learned: The row whose error may be smaller.
        baseline: The other row.
        average: `error` (over all images) or `error_task_mean`.
        least_p: The smallest p that is possible with these numbers of runs (exact, no ties).
        u: The number of pairs of runs in which the learned one has the larger error, ties count half. None if refused.
        p: Probability of a U at most as large under the null hypothesis. None if refused.
        p_holm: p with Holm's correction for all tests of a section with the same average. None if refused.
        method: How p was computed, empty if refused.
        refused: Why there is no test, empty if there is one.
        remarks: Caveats.
    """

    learned: Row
    baseline: Row
    average: str
    least_p: float
    u: float | None = None
    p: float | None = None
    p_holm: float | None = None
    method: str = ""
    refused: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[int, int]:
        """The numbers of runs of the learned row and the baseline."""
        return len(self.learned.members), len(self.baseline.members)


def compare(section: Section) -> list[Comparison]:
    """Tests each learned row against each row of a fixed method with the same network, and the standard learned row.

    The standard learned row is the one with the fewest options that differ from the defaults, which are the paper's; if
    this is not unique, there is none.

    Args:
        section: Rows of one data set.

    Returns:
        The tests of the error over all images, then those of the mean over tasks.
    """
    comparisons = []
    standard = {
        network: _standard_row([row for row in section.rows if row.network == network]) for network in section.networks
    }
    for average in AVERAGES:
        tests = [
            _compare_rows(learned, baseline, average)
            for learned in section.rows
            for baseline in section.rows
            if learned.learned and learned.network == baseline.network and learned is not baseline
            if not baseline.learned or baseline is standard[learned.network]
        ]
        corrected = iter(holm([test.p for test in tests if test.p is not None]))
        comparisons += [test if test.p is None else replace(test, p_holm=next(corrected)) for test in tests]
    return comparisons


def _standard_row(rows: Sequence[Row]) -> Row | None:
    changes = {row.letter: len(row.changed_options) for row in rows if row.learned}
    fewest = min(changes.values(), default=0)
    candidates = [row for row in rows if changes.get(row.letter) == fewest]
    return candidates[0] if len(candidates) == 1 else None


def mann_whitney(less: Sequence[float], than: Sequence[float]) -> tuple[float, float, str]:
    """Tests whether the values of one sample tend to be smaller than those of another.

    Args:
        less: n finite values.
        than: m finite values.

    Returns:
        U (the number of pairs in which the first value is larger, ties count half), p, and how p was computed: exactly
        for up to 50 values a sample, with ties over all arrangements of the tied ranks; otherwise by the normal
        approximation with corrections for ties and continuity.

    Raises:
        ValueError: If a value is not finite or a sample is empty.
    """
    values = [*less, *than]
    if not less or not than or not all(map(math.isfinite, values)):
        raise ValueError("Both samples need values, all of them finite.")
    if max(len(less), len(than)) <= _MAX_EXACT:
        # Twice the mean ranks, which are multiples of 1/2.
        doubled = [sum((other < value) + (other <= value) for other in values) + 1 for value in values]
        surplus = sum(doubled[: len(less)]) - len(less) * (len(less) + 1)
        tied = len(set(values)) < len(values)
        return surplus / 2, _share_of_small_sums(doubled, len(less)), EXACT_TIES if tied else EXACT
    from scipy.stats import mannwhitneyu  # takes a second to import

    result = mannwhitneyu(less, than, alternative="less", method="asymptotic")
    return float(result.statistic), float(result.pvalue), NORMAL


def _share_of_small_sums(ranks: Sequence[int], size: int) -> float:
    """Returns the fraction of all subsets of a size whose sum is at most that of the first `size` ranks.

    Counts subsets by size and sum, adding one rank at a time.
    """
    limit = sum(ranks[:size])
    subsets = np.zeros((size + 1, limit + 1))
    subsets[0, 0] = 1
    for rank in ranks:
        if rank <= limit:
            subsets[1:, rank:] += subsets[:-1, : limit + 1 - rank]
    return float(subsets[size].sum()) / math.comb(len(ranks), size)


def least_p(n: int, m: int) -> float:
    """Returns the smallest exact p of n against m runs, which results if all n are smaller."""
    return 1 / math.comb(n + m, n)


def fewest_runs(n: int, m: int) -> tuple[int, int]:
    """Returns the fewest runs that can give p < 0.05, at least n against m and 3 against 3."""
    n, m = max(n, MIN_RUNS), max(m, MIN_RUNS)
    while least_p(n, m) >= LEVEL:
        n, m = (n + 1, m) if n < m else (n, m + 1)
    return n, m


def holm(ps: Sequence[float]) -> list[float]:
    """Returns p-values with Holm's step-down correction, in the same order."""
    corrected = [0.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = largest
    return corrected


def _compare_rows(learned: Row, baseline: Row, average: str) -> Comparison:
    first, second = learned.errors(average), baseline.errors(average)
    n, m = len(first), len(second)
    test = Comparison(learned, baseline, average, least_p(n, m))
    diverged = [
        f"row {row.letter}: {count} diverged"
        for row, values in ((learned, first), (baseline, second))
        if (count := sum(not math.isfinite(value) for value in values))
    ]
    differences = list(training_differences([learned, baseline]))
    if differences:
        test = replace(test, remarks=(f"not trained alike: {', '.join(differences)}",))
    if learned.key != baseline.key:
        return replace(test, refused=f"measured otherwise: {learned.key}, against {baseline.key}")
    if diverged:
        return replace(test, refused=f"{'; '.join(diverged)}; an error that is not a number has no rank")
    needed = "{} against {}".format(*fewest_runs(n, m))
    if min(n, m) < MIN_RUNS:
        return replace(test, refused=f"too few runs: at least {needed} needed for p < {LEVEL}")
    u, p, method = mann_whitney(first, second)
    remarks = list(test.remarks)
    if test.least_p >= LEVEL:
        remarks.append(f"p cannot be below {LEVEL} with so few runs, at least {needed} needed")
    if learned.seeds != baseline.seeds:
        remarks.append("different seeds")
    if other := sorted(set(_differing_options(learned, baseline)) - set(differences)):
        remarks.append(f"{'' if baseline.learned else 'also '}different: {', '.join(other)}")
    return replace(test, u=u, p=p, method=method, remarks=tuple(remarks))


def _differing_options(one: Row, other: Row) -> list[str]:
    """Returns the options in which rows differ, if of two methods those that both have, without the weight sets."""
    names = set(one.options) | set(other.options)
    if one.method != other.method:
        names = set(one.options) & set(other.options)
    return [n for n in names - {"weights_per_layer"} if one.options.get(n) != other.options.get(n)]


def significance_table(
    section: Section, comparisons: Sequence[Comparison], folder_name: Callable[[Path], str] = str
) -> Table[Comparison]:
    """Returns the tests of a section as a table; readers see p (Holm) only if it corrects for more than one test.

    `comparisons` is the result of `compare`, `folder_name` returns the displayed name of a folder.
    """
    tests = Counter(test.average for test in comparisons if test.p is not None)
    most = max(tests.values(), default=0)
    caption = (
        "Is the error of learned sharing less? One-sided Mann-Whitney U tests. U counts the pairs of runs in which the "
        "learned one has the greater error. Least p is the smallest that so many runs can give."
    )
    if most > 1:
        caption += f" p (Holm) is corrected for the {most} tests here of the same kind of error."
    columns: list[Column[Comparison]] = [
        Column("data", lambda test: section.data),
        Column("data_options", lambda test: section.variant),
        Column("network", lambda test: test.learned.network),
        Column("learned_row", lambda test: test.learned.letter),
        Column("learned", lambda test: test.learned.label),
        Column("less", lambda test: f"{test.learned.letter} {test.learned.method}", "learned", text=True, csv=False),
        Column("baseline_row", lambda test: test.baseline.letter),
        Column("baseline", lambda test: test.baseline.label),
        Column("than", lambda test: f"{test.baseline.letter} {test.baseline.method}", "against", text=True, csv=False),
        Column("average", lambda test: test.average, "error", AVERAGES.__getitem__, text=True),
        Column("alternative", lambda test: "learned less"),
        Column("n_learned", lambda test: test.numbers[0]),
        Column("n_baseline", lambda test: test.numbers[1]),
        Column("n", lambda test: "{}, {}".format(*test.numbers), "n", csv=False),
        Column("u", lambda test: test.u),
        Column("u_of", _u_text, "U", csv=False),
        Column("p", lambda test: test.p, "p", _p_text),
        Column("p_holm", lambda test: test.p_holm, "p (Holm)" if most > 1 else "", _p_text),
        Column("holm_tests", lambda test: tests[test.average]),
        Column("least_p", lambda test: test.least_p, "least p", _p_text),
        Column("method", lambda test: test.method),
        Column("refused", lambda test: test.refused),
        Column("remarks", lambda test: "; ".join(test.remarks)),
        Column("how", _how, "method", text=True, csv=False),
        Column("learned_runs", lambda test: [folder_name(run.folder) for run in test.learned.runs]),
        Column("baseline_runs", lambda test: [folder_name(run.folder) for run in test.baseline.runs]),
    ]
    return Table(comparisons, columns, caption, keys=3)


def _u_text(test: Comparison) -> str | None:
    return None if test.u is None else f"{test.u:g} of {math.prod(test.numbers)}"


def _how(test: Comparison) -> str:
    return "; ".join((test.refused or test.method, *test.remarks))


def _p_text(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"
