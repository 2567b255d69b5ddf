"""A comparison as Markdown that also reads well in a terminal."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lws_lightning.records import Run
from lws_lightning.results.grouping import Section, Source, group_runs
from lws_lightning.results.inference import INFERENCE_EXPLAINED, inference_cells
from lws_lightning.results.significance import Comparison, compare, significance_cells
from lws_lightning.results.table import caption, foot_notes, markdown_cell, markdown_table, table_cells

__all__ = ["TESTS_EXPLAINED", "bullets", "comparison_table", "holm_explained", "section_markdown"]

TESTS_EXPLAINED = (
    "Is the error of learned sharing less? One-sided Mann-Whitney U tests. U counts the pairs of runs in which the "
    "learned one has the greater error. Least p is the smallest that so many runs can give."
)


def comparison_table(runs: Sequence[Run], problems: Iterable[str] = (), source: Source = "auto") -> str:
    """Makes a table for each data set, with a row for each network and method over its seeds, and tests.

    Only finished runs that were measured alike (same kind of evaluation, step and number of images) are
    averaged. Every other run is named below the table, with the reason. Runs that differ in an option of the
    method are rows of their own. Of runs with the same seed and options only the last one counts.

    Args:
        runs: What `load_runs` returned.
        problems: Sentences of `load_runs`, repeated at the end.
        source: `test` for what `test` measured, `curve` for the last evaluation of the training; `auto` is `test`
            where all finished runs of a data set have one, otherwise `curve`.

    Returns:
        Markdown. Errors in percent, mean ± standard deviation (n - 1) over runs; one run shows just its value.
    """
    parts = [section_markdown(section, compare(section)) for section in group_runs(runs, source)] or ["No runs.\n"]
    problems = list(problems)
    if problems:
        parts.append(bullets("Not read", problems))
    return "\n".join(parts)


def section_markdown(section: Section, comparisons: Sequence[Comparison], name: Callable[[Path], str] = str) -> str:
    """Writes one data set's table, the runs in each row, the tests and the runs left out.

    Args:
        section: One of `group_runs`.
        comparisons: What `compare` returned for it.
        name: How a folder is called.
    """
    parts = [f"### {markdown_cell(section.title)}\n"]
    if section.rows:
        header, body = table_cells(section)
        parts += [f"{caption(section)}\n", markdown_table(header, body, range(3))]
        if notes := [*foot_notes(section), *section.notes]:
            parts.append("".join(f"{note}\n" for note in notes))
        sources = [f"{row.letter}: {', '.join(name(run.folder) for run in row.runs)}" for row in section.rows]
        parts.append(bullets("Runs in each row", sources))
        if costs := inference_cells(section):
            parts += [f"{INFERENCE_EXPLAINED}\n", markdown_table(*costs, range(2))]
        if comparisons:
            header, body = significance_cells(comparisons)
            text = TESTS_EXPLAINED + holm_explained(comparisons)
            parts += [f"{text}\n", markdown_table(header, body, (0, 1, 2, len(header) - 1))]
    else:
        parts.append("No finished runs.\n")
    if section.left_out:
        parts.append(bullets("Left out", [each.text(name) for each in section.left_out]))
    return "\n".join(parts)


def holm_explained(comparisons: Sequence[Comparison]) -> str:
    """Says what the p-values of Holm are corrected for, empty for a single test."""
    tested = [test for test in comparisons if test.p is not None]
    counts = sorted({sum(other.average == test.average for other in tested) for test in tested})
    if not counts or counts[-1] < 2:
        return ""
    return f" p (Holm) is corrected for the {counts[-1]} tests here of the same kind of error."


def bullets(title: str, items: Iterable[str]) -> str:
    """Writes a list with a line above it."""
    lines = "".join(f"- {item.replace('<', chr(92) + '<')}\n" for item in items)
    return f"{title}:\n\n{lines}"
