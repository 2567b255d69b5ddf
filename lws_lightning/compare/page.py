"""The page of a comparison: the verdict, and below it the report of all runs."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lws_lightning.compare.plan import Plan
from lws_lightning.compare.statistics import Comparison
from lws_lightning.compare.verdict import Facts, Verdict
from lws_lightning.records import Run, write_atomically
from lws_lightning.results import Column, Table, make_report, page_environment

__all__ = ["write_page"]

_FILE = "report.html"


def write_page(
    folder: Path,
    plan: Plan,
    verdict: Verdict,
    facts: Mapping[str, Facts],
    comparison: Comparison,
    runs: Sequence[Run],
    wrong_images: Path,
) -> Path:
    """Writes the page and returns its path.

    Args:
        folder: Of the comparison.
        plan: The plan.
        verdict: The verdict.
        facts: By contender.
        comparison: The errors.
        runs: All runs.
        wrong_images: The picture of wrongly classified images that the test of the best run has left, if it had any.
    """
    # Each was tested at the step with its lowest validation error; a report compares runs at equal steps.
    at_end = [replace(run, test=replace(run.test, step=run.step)) for run in runs if run.test is not None]
    report = make_report(at_end, folders=[folder])
    template = page_environment("lws_lightning.compare").get_template("comparison.html.j2")
    table = _table(plan, verdict, facts, comparison)
    picture = base64.b64encode(wrong_images.read_bytes()).decode() if wrong_images.is_file() else None
    html = template.render(report=report, verdict=verdict, plan=plan, contenders=table, wrong_images=picture)
    write_atomically(folder / _FILE, html)
    return folder / _FILE


def _table(plan: Plan, verdict: Verdict, facts: Mapping[str, Facts], comparison: Comparison) -> Table[str]:
    columns: list[Column[Any]] = [
        Column("contender", lambda name: name, "contender", text=True),
        Column("runs", lambda name: comparison.samples[name].runs, "runs"),
        Column("validation", lambda name: facts[name].validation, "validation error", "{:.2f}"),
        Column("test", lambda name: comparison.samples[name].error, "test error", "{:.2f}"),
        Column("worse_by", lambda name: _worse_by(verdict, name), "worse by (95 % interval)"),
        Column("parameters", lambda name: facts[name].parameters, "parameters", "{:,}"),
        Column("sharing", lambda name: facts[name].sharing, "shared, in its best run", text=True),
    ]
    order = sorted(facts, key=lambda name: (name != verdict.recommended, facts[name].validation))
    return Table(order, columns)


def _worse_by(verdict: Verdict, name: str) -> str:
    if name == verdict.recommended:
        return "recommended"
    each = verdict.differences[name]
    if each.low is None:
        return f"{each.points:+.2f} (one run each)"
    return f"{each.points:+.2f} ({each.low:.2f} to {each.high:.2f})"
