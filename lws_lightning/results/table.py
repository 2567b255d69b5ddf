"""The rows of a comparison as the cells of a table, in Markdown and as CSV."""

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lws_lightning.results.cells import mean_cell, mean_deviation_cell
from lws_lightning.results.grouping import Row, Section, deviation
from lws_lightning.results.inference import inference_quantities

__all__ = [
    "caption",
    "csv_text",
    "foot_notes",
    "markdown_cell",
    "markdown_table",
    "run_rows",
    "table_cells",
    "table_rows",
]

MAX_TASKS = 8  # with more tasks their columns do not fit a terminal
_MARKS = "*†‡§¶"


def caption(section: Section) -> str:
    """Says what the numbers of a table are."""
    return f"Error in percent: {section.key}. Mean ± standard deviation (n - 1) over n runs."


def table_cells(section: Section) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the cells of a section's table, the first three columns being text.

    Each task has a column where there are at most 8. One run shows just its value; a value that not all runs of a
    row have is a dash.
    """
    tasks = section.task_names if len(section.task_names) <= MAX_TASKS else ()
    header = [
        *("row", "network", "method", "n", *tasks),
        *("task mean", "all images", "parameters", "seconds", "s/step"),
    ]
    marks = _marks(section)
    return header, [_cells(row, tasks, marks.get(row.letter, "")) for row in section.rows]


def foot_notes(section: Section) -> list[str]:
    """Explains the marks in a section's table: rows that were measured otherwise than most."""
    marks = _marks(section)
    texts = {mark: str(row.key) for row in section.rows if (mark := marks.get(row.letter))}
    return [f"{mark} {text}, not to be compared with the other rows." for mark, text in texts.items()]


def _marks(section: Section) -> dict[str, str]:
    odd = [key for key in dict.fromkeys(row.key for row in section.rows) if key != section.key]
    marks = {key: _MARKS[i % len(_MARKS)] * (i // len(_MARKS) + 1) for i, key in enumerate(odd)}
    return {row.letter: marks[row.key] for row in section.rows if row.key in marks}


def _cells(row: Row, tasks: Sequence[str], mark: str) -> list[str]:
    return [
        row.letter,
        row.network,
        f"{row.label} {mark}".strip(),
        str(len(row.members)),
        *(mean_deviation_cell(row.task_errors(task)) for task in tasks),
        mean_deviation_cell(row.errors("error_task_mean")),
        mean_deviation_cell(row.errors("error")),
        f"{statistics.fmean(run.parameters_in_use for run in row.runs):,.0f}",
        mean_cell([run.seconds for run in row.runs], "{:,.0f}"),
        mean_cell([run.seconds_per_step for run in row.runs], "{:.3g}"),
    ]


def markdown_table(header: Sequence[str], body: Sequence[Sequence[str]], texts: Iterable[int]) -> str:
    """Writes a Markdown table whose columns line up.

    Args:
        header: Names of the columns.
        body: Rows of cells.
        texts: Which columns are text; the others are numbers, to the right.
    """
    left = set(texts)
    escaped = [[markdown_cell(cell) for cell in row] for row in (header, *body)]
    widths = [max(3, *(len(row[column]) for row in escaped)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        pairs = enumerate(zip(row, widths, strict=True))
        return f"| {' | '.join(cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in pairs)} |\n"

    rule = ["-" * w if i in left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return line(escaped[0]) + f"| {' | '.join(rule)} |\n" + "".join(map(line, escaped[1:]))


def markdown_cell(text: str) -> str:
    """Escapes what would end a cell or begin HTML."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")


def table_rows(sections: Sequence[Section], name: Callable[[Path], str] = str) -> list[dict[str, Any]]:
    """Returns all rows as those of a CSV table, unrounded.

    Args:
        sections: What `group_runs` returned.
        name: How a folder is called.

    Returns:
        For each quantity its mean, deviation (n - 1, None for one run) and n, the number of runs that have it.
    """
    found = []
    for section in sections:
        for row in section.rows:
            values = _quantities(section, row)
            found.append(
                {
                    **_origin(section, row),
                    "measured": row.key.prefix,
                    "step": row.key.step,
                    "images": row.key.images,
                    "n": len(row.members),
                    "diverged": len(row.diverged),
                    "seeds": list(row.seeds),
                    "runs": [name(run.folder) for run in row.runs],
                    **{k: v for quantity, of in values.items() for k, v in _summary(quantity, of).items()},
                }
            )
    return found


def run_rows(sections: Sequence[Section], name: Callable[[Path], str] = str) -> list[dict[str, Any]]:
    """Returns the runs behind the rows as those of a CSV table, unrounded, for statistics of one's own.

    Args:
        sections: What `group_runs` returned.
        name: How a folder is called.

    Returns:
        For each run its row, seed and folder, and the quantities of which `table_rows` has the mean.
    """
    found = []
    for section in sections:
        for row in section.rows:
            values = _quantities(section, row)
            for index, (run, measured) in enumerate(row.members):
                found.append(
                    {
                        **_origin(section, row),
                        "seed": run.seed,
                        "run": name(run.folder),
                        "measured": measured.prefix,
                        "step": measured.step,
                        "images": measured.images,
                        **{quantity: of[index] for quantity, of in values.items()},
                    }
                )
    return found


def _origin(section: Section, row: Row) -> dict[str, Any]:
    changed = row.changed_options.items()
    return {
        "row": row.letter,
        "data": section.data,
        "data_options": section.variant,
        "network": row.network,
        "method": row.method,
        "options": ", ".join(f"{name}={value}" for name, value in changed),
    }


def _quantities(section: Section, row: Row) -> dict[str, Sequence[float | None]]:
    """Returns what is measured of a row's runs, in their order; None where a run does not have it."""
    return {
        "error": row.errors("error"),
        "error_task_mean": row.errors("error_task_mean"),
        "parameters_in_use": [run.parameters_in_use for run in row.runs],
        "seconds": [run.seconds for run in row.runs],
        "seconds_per_step": [run.seconds_per_step for run in row.runs],
        **inference_quantities(row),
        **{f"error/{task}": row.task_errors(task) for task in section.task_names},
    }


def _summary(quantity: str, values: Sequence[float | None]) -> dict[str, float | int | None]:
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    return {f"{quantity}/mean": mean, f"{quantity}/deviation": deviation(known), f"{quantity}/n": len(known)}


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Writes rows as CSV: all their columns, numbers not rounded, lists as JSON, None empty. No rows give no text."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        plain = {k: json.dumps(v, ensure_ascii=False) if isinstance(v, list) else v for k, v in row.items()}
        writer.writerow(plain)
    return text.getvalue()
