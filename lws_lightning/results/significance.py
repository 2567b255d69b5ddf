"""Mann-Whitney U tests: is the error of learned sharing less than that of another method?"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lws_lightning.results.grouping import Row, Section, training_differences

__all__ = [
    "AVERAGES",
    "Comparison",
    "compare",
    "comparison_rows",
    "fewest_runs",
    "holm",
    "least_p",
    "mann_whitney",
    "significance_cells",
]

AVERAGES = {"error": "all images", "error_task_mean": "task mean"}
LEVEL = 0.05
MIN_RUNS = 3
_MAX_EXACT = 50  # runs on a side; beyond, the normal distribution is as good
EXACT = "exact"
EXACT_TIES = "exact, over all arrangements of tied ranks"
NORMAL = "normal approximation with correction for ties"


@dataclass(frozen=True)
class Comparison:
    """A one-sided test of one learned row against another row.

    Attributes:
        learned: The row whose error may be less.
        baseline: The other row.
        average: `error` (over all images) or `error_task_mean`.
        least_p: The smallest p that so many runs can give (exact, no ties).
        u: The pairs of runs in which the learned one has the greater error, ties count half. None if refused.
        p: Probability of such a U or a smaller one if the methods were the same. None if refused.
        p_holm: p corrected by Holm for all tests of a section with the same average. None if refused.
        method: How p was computed, empty if refused.
        refused: Why there is no test, empty if there is one.
        remarks: What a reader of p should know.
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


def compare(section: Section) -> list[Comparison]:
    """Tests each learned row against each row of another method with the same network, and against the plain one.

    The plain learned row is the one that departs least from the default values of the options, which are the paper's;
    where several depart equally little there is none.

    Args:
        section: Rows of one data set.

    Returns:
        The tests of the error over all images, then those of the mean over tasks.
    """
    found = []
    plain = {network: _plain([row for row in section.rows if row.network == network]) for network in section.networks}
    for average in AVERAGES:
        tests = [
            _compare_rows(learned, baseline, average)
            for learned in section.rows
            for baseline in section.rows
            if learned.learned and learned.network == baseline.network and learned is not baseline
            if not baseline.learned or baseline is plain[learned.network]
        ]
        corrected = iter(holm([test.p for test in tests if test.p is not None]))
        found += [test if test.p is None else replace(test, p_holm=next(corrected)) for test in tests]
    return found


def _plain(rows: Sequence[Row]) -> Row | None:
    changes = {row.letter: len(row.changed_options) for row in rows if row.learned}
    fewest = min(changes.values(), default=0)
    plain = [row for row in rows if changes.get(row.letter) == fewest]
    return plain[0] if len(plain) == 1 else None


def mann_whitney(less: Sequence[float], than: Sequence[float]) -> tuple[float, float, str]:
    """Tests whether the values of one sample tend to be less than those of another.

    Args:
        less: n finite values.
        than: m finite values.

    Returns:
        U (the pairs in which the first value is greater, ties count half), p, and how p was computed: exact up to
        50 values a side, with ties over all arrangements of the tied ranks; otherwise by the normal distribution with
        corrections for ties and continuity.

    Raises:
        ValueError: If a value is not finite or a sample is empty.
    """
    from scipy.stats import mannwhitneyu, rankdata  # takes a second to import

    values = [*less, *than]
    if not less or not than or not all(map(math.isfinite, values)):
        raise ValueError("Both samples need values, all of them finite.")
    small = max(len(less), len(than)) <= _MAX_EXACT
    tied = len(set(values)) < len(values)
    if small and tied:
        doubled = [round(2 * rank) for rank in rankdata(values)]  # mean ranks are halves at most
        surplus = sum(doubled[: len(less)]) - len(less) * (len(less) + 1)
        return surplus / 2, _share_of_small_sums(doubled, len(less)), EXACT_TIES
    result = mannwhitneyu(less, than, alternative="less", method="exact" if small else "asymptotic")
    return float(result.statistic), float(result.pvalue), EXACT if small else NORMAL


def _share_of_small_sums(ranks: Sequence[int], size: int) -> float:
    """Returns the share of all subsets of a size whose sum is at most that of the first `size` ranks.

    Counts them by size and sum, one rank after the other.
    """
    limit = sum(ranks[:size])
    subsets = np.zeros((size + 1, limit + 1))
    subsets[0, 0] = 1
    for rank in ranks:
        if rank <= limit:
            subsets[1:, rank:] += subsets[:-1, : limit + 1 - rank]
    return float(subsets[size].sum()) / math.comb(len(ranks), size)


def least_p(n: int, m: int) -> float:
    """Returns the smallest exact p of n against m runs: that of the one arrangement in which all n are less."""
    return 1 / math.comb(n + m, n)


def fewest_runs(n: int, m: int) -> tuple[int, int]:
    """Returns the fewest runs, none less than n against m or 3 against 3, that can give p < 0.05."""
    n, m = max(n, MIN_RUNS), max(m, MIN_RUNS)
    while least_p(n, m) >= LEVEL:
        n, m = (n + 1, m) if n < m else (n, m + 1)
    return n, m


def holm(ps: Sequence[float]) -> list[float]:
    """Corrects p-values for their number by Holm's step-down method, in the same order."""
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
    trained_otherwise = list(training_differences([learned, baseline]))
    if trained_otherwise:
        test = replace(test, remarks=(f"not trained alike: {', '.join(trained_otherwise)}",))
    if learned.key != baseline.key:
        return replace(test, refused=f"measured otherwise: {learned.key}, against {baseline.key}")
    if diverged:
        return replace(test, refused=f"{'; '.join(diverged)}; an error that is not a number has no rank")
    if min(n, m) < MIN_RUNS:
        wanted = "{} against {}".format(*fewest_runs(n, m))
        return replace(test, refused=f"too few runs: at least {wanted} needed for p < {LEVEL}")
    u, p, method = mann_whitney(first, second)
    remarks = list(test.remarks)
    if test.least_p >= LEVEL:
        wanted = "{} against {}".format(*fewest_runs(n, m))
        remarks.append(f"p cannot be below {LEVEL} with so few runs, at least {wanted} needed")
    if learned.seeds != baseline.seeds:
        remarks.append("different seeds")
    if other := sorted(set(_other_options(learned, baseline)) - set(trained_otherwise)):
        remarks.append(f"{'' if baseline.learned else 'also '}different: {', '.join(other)}")
    return replace(test, u=u, p=p, method=method, remarks=tuple(remarks))


def _other_options(one: Row, other: Row) -> list[str]:
    """Names options in which rows differ, of two methods those that both have. Weight sets differ by nature."""
    names = set(one.options) | set(other.options)
    if one.method != other.method:
        names = set(one.options) & set(other.options)
    return sorted(n for n in names - {"weights_per_layer"} if one.options.get(n) != other.options.get(n))


def significance_cells(comparisons: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the cells of a table of tests; p (Holm) only where there are several."""
    several = any(sum(c.p is not None for c in comparisons if c.average == average) > 1 for average in AVERAGES)
    header = ["learned", "against", "error", "n", "U", "p", *(["p (Holm)"] if several else []), "least p", "method"]
    body = []
    for test in comparisons:
        n, m = len(test.learned.members), len(test.baseline.members)
        body.append(
            [
                f"{test.learned.letter} {test.learned.method}",
                f"{test.baseline.letter} {test.baseline.method}",
                AVERAGES[test.average],
                f"{n}, {m}",
                "-" if test.u is None else f"{test.u:g} of {n * m}",
                _p(test.p),
                *([_p(test.p_holm)] if several else []),
                _p(test.least_p),
                "; ".join((test.refused or test.method, *test.remarks)),
            ]
        )
    return header, body


def comparison_rows(
    section: Section, comparisons: Sequence[Comparison], name: Callable[[Path], str] = str
) -> list[dict[str, Any]]:
    """Returns the tests of a section as the rows of a CSV table, unrounded; `name` says how a folder is called."""
    return [
        {
            "data": section.data,
            "data_options": section.variant,
            "network": test.learned.network,
            "learned_row": test.learned.letter,
            "learned": test.learned.label,
            "baseline_row": test.baseline.letter,
            "baseline": test.baseline.label,
            "average": test.average,
            "alternative": "learned less",
            "n_learned": len(test.learned.members),
            "n_baseline": len(test.baseline.members),
            "u": test.u,
            "p": test.p,
            "p_holm": test.p_holm,
            "holm_tests": sum(other.p is not None and other.average == test.average for other in comparisons),
            "least_p": test.least_p,
            "method": test.method,
            "refused": test.refused,
            "remarks": "; ".join(test.remarks),
            "learned_runs": [name(run.folder) for run in test.learned.runs],
            "baseline_runs": [name(run.folder) for run in test.baseline.runs],
        }
        for test in comparisons
    ]


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"
