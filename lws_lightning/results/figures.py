"""The figures of a report, with captions and alternative texts."""

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, get_args

from matplotlib.figure import Figure

from lws_lightning.drawing import affinity_figure, assignment_figure, picture_png, picture_svg
from lws_lightning.records import Run
from lws_lightning.results.affinity import Affinity, task_order
from lws_lightning.results.curves import Band, Curve, band, read_curves
from lws_lightning.results.drawing import Line, Style, entropy_figure, error_figure, group_sizes_figure
from lws_lightning.results.group_sizes import Assignment, group_shares, read_assignments, size_bins, sizes_text
from lws_lightning.results.rows import Row, Section
from lws_lightning.results.table import Column, Table
from lws_lightning.results.tradeoff import price_curves, tradeoff_figure, tradeoff_points

__all__ = ["FIGURE_KINDS", "Picture", "section_pictures"]

Kind = Literal["error", "entropy", "parameters", "groups", "affinity", "assignment"]
FIGURE_KINDS: tuple[str, ...] = get_args(Kind)
"""The prefixes of the figures' names."""


@dataclass(frozen=True)
class Picture:
    """A figure of a report.

    Attributes:
        name: File name without extension.
        caption: The caption.
        alt: Alternative text.
        png: The PNG file.
        svg: The SVG file.
        width: Inches.
        numbers: The numbers that it shows, None if there are too many.
    """

    name: str
    caption: str
    alt: str
    png: bytes
    svg: str
    width: float
    numbers: Table[Any] | None = None


def section_pictures(
    section: Section,
    styles: Mapping[str, Style],
    folder_name: Callable[[Path], str] = str,
    affinities: Sequence[Affinity] = (),
) -> tuple[list[Picture], list[str]]:
    """Draws the figures of one data set.

    Args:
        section: A section from `group_runs`.
        styles: The result of `row_styles` for all sections.
        folder_name: Returns the displayed name of a folder.
        affinities: The result of `section_affinities`.

    Returns:
        For each network: the test curves of all rows, the entropies of the learned ones, the error of all rows against
        their parameters, and for each learned row the sizes of the groups that share, the affinity of tasks and the
        assignment of its first run. And sentences about runs that are missing in a figure.
    """
    pictures = []
    problems = []
    for network in section.networks:
        rows = [row for row in section.rows if row.network == network]
        curves: dict[str, list[Curve]] = {}
        for row in rows:
            curves[row.letter], failed = read_curves(row)
            problems += [f"{folder_name(run.folder)}: {why}. The curves go on without it." for run, why in failed]
        pictures += _curve_pictures(section, rows, curves, styles)
        pictures += _tradeoff_pictures(section, rows, styles)
        for row in (row for row in rows if row.learned):
            found, failed = read_assignments(row)
            problems += [
                f"{folder_name(run.folder)}: {why}. The figures of the sharing go on without it." for run, why in failed
            ]
            if found:
                pictures.append(_groups_picture(section, row, found))
                pictures += [_affinity_picture(section, each) for each in affinities if each.row is row]
                pictures.append(_assignment_picture(section, row, *found[0], folder_name))
    return pictures, problems


def _curve_pictures(
    section: Section,
    rows: Sequence[Row],
    curves: Mapping[str, Sequence[Curve]],
    styles: Mapping[str, Style],
) -> list[Picture]:
    pictures = []
    where = f"{section.title}, {rows[0].network}"
    errors = _lines(rows, styles, {row.letter: [curve.errors for curve in curves[row.letter]] for row in rows})
    if errors:
        figure, cut = error_figure([line for _, line in errors], _curve_title(rows), where)
        caption = (
            f"Error over all images during training, mean over runs (rows {_letters(rows)}). {_spread(errors)}"
            f"{' The first evaluations lie above the axis.' if cut else ''}"
        )
        ends = "; ".join(f"{row.label} {line.band.mean[-1]:.2f} %" for row, line in errors)
        alt = f"Line chart of the error against the training step on {where}. At the last common step: {ends}."
        pictures.append(_picture("error", section, rows[0], figure, caption, alt))

    entropies = {
        row.letter: [curve.entropies for curve in curves[row.letter] if curve.entropies] for row in rows if row.learned
    }
    lines = _lines([row for row in rows if row.learned], styles, entropies, thin=True)
    if lines:
        figure = entropy_figure(
            [line for _, line in lines], _uniform(lines), "Entropy of the search distribution", where
        )
        caption = (
            "Mean entropy over layers and tasks during training: each run thin, their mean thick "
            f"(row{'s' * (len(lines) > 1)} {_letters([row for row, _ in lines])}). Dashed: a uniform distribution."
        )
        ends = "; ".join(f"{row.label} {line.band.mean[0]:.3f} to {line.band.mean[-1]:.3f} nats" for row, line in lines)
        alt = f"Line chart of the mean entropy against the training step on {where}. From first to last: {ends}."
        pictures.append(_picture("entropy", section, rows[0], figure, caption, alt))
    return pictures


def _tradeoff_pictures(section: Section, rows: Sequence[Row], styles: Mapping[str, Style]) -> list[Picture]:
    points = tradeoff_points(rows)
    if not points:
        return []
    where = f"{section.title}, {rows[0].network}"
    figure = tradeoff_figure(points, styles, "Error against parameters", where)
    caption = (
        f"Error over all images against the distinct parameters that the networks of all tasks use, mean over runs "
        f"(rows {_letters([point.row for point in points])})."
        f"{' Bars: one standard deviation (n - 1).' if any(len(point.row.runs) > 1 for point in points) else ''}"
        f"{' Lines join what differs in weight_price alone.' if price_curves(points) else ''}"
    )
    ends = "; ".join(f"{point.row.label} {point.parameters:,.0f}, {point.error:.2f} %" for point in points)
    alt = f"Points of parameters and error on {where}: {ends}."
    return [_picture("parameters", section, rows[0], figure, caption, alt)]


def _lines(
    rows: Sequence[Row],
    styles: Mapping[str, Style],
    values: Mapping[str, Sequence[dict[int, float]]],
    thin: bool = False,
) -> list[tuple[Row, Line]]:
    lines = []
    for row in rows:
        average: Band | None = band(values[row.letter])
        if average is not None:
            label = f"{row.letter} {row.label}, n = {average.runs}"
            lines.append((row, Line(label, styles[row.letter], average, values[row.letter] if thin else ())))
    return lines


def _curve_title(rows: Sequence[Row]) -> str:
    prefixes = {run.evaluation.prefix for row in rows for run in row.runs if run.evaluation}
    return {"test_curve": "Test error during training", "val": "Validation error during training"}.get(
        prefixes.pop() if len(prefixes) == 1 else "", "Error during training"
    )


def _spread(lines: Sequence[tuple[Row, Line]]) -> str:
    many = any(line.band.runs > 2 for _, line in lines)
    two = any(line.band.runs == 2 for _, line in lines)
    texts = ["one standard deviation (n - 1) to both sides"] * many + ["the range of two runs"] * two
    return f"Shaded: {' or '.join(texts)}." if texts else ""


def _uniform(lines: Sequence[tuple[Row, Line]]) -> dict[str, float]:
    levels: dict[str, float] = {}
    for row, _ in lines:
        sizes = row.runs[0].weights_per_layer
        levels[f"uniform, K = {sizes[0]}" if len(set(sizes)) == 1 else "uniform"] = statistics.fmean(map(log, sizes))
    return levels


def _groups_picture(section: Section, row: Row, found: Sequence[tuple[Run, Assignment]]) -> Picture:
    layers, tasks = found[0][0].layer_names, len(section.task_names)
    shares = group_shares([assignment for _, assignment in found])
    bins = size_bins(tasks)
    cells = [(name, *(sum(of[low - 1 : high]) for low, high in bins)) for name, of in zip(layers, shares, strict=True)]
    headings = ["layer", *(sizes_text(each, tasks) for each in bins)]
    where = f"{section.title}, {row.network}: {row.letter} {row.label}, n = {len(found)}"
    figure = group_sizes_figure(shares, layers, "How many tasks share a layer", where)
    caption = (
        f"Share of tasks that share a layer's weights within a group of exactly t tasks, over the final assignments of "
        f"{len(found)} run{'s' * (len(found) != 1)} (row {row.letter})."
    )
    alone = "; ".join(f"{name} {value:.0f} %" for name, value, *_ in cells)
    alt = f"Stacked bars by layer for {where}. Tasks that share with no other: {alone}. All numbers are below."
    columns: list[Column[Any]] = [
        Column(heading, itemgetter(place), heading, "{:.1f} %" if place else "{}", text=not place)
        for place, heading in enumerate(headings)
    ]
    return _picture("groups", section, row, figure, caption, alt, Table(cells, columns))


def _assignment_picture(
    section: Section, row: Row, run: Run, assignment: Assignment, folder_name: Callable[[Path], str]
) -> Picture:
    layers, sizes = run.layer_names, run.weights_per_layer
    title = f"Which tasks share weights: {row.letter}, seed {run.seed}"
    likely = None if run.probabilities is None else [[max(task) for task in layer] for layer in run.probabilities]
    figure = assignment_figure(assignment, layers, section.task_names, sizes, title, likely)
    distinct = "; ".join(f"{layer} {len(set(copies))}" for layer, copies in zip(layers, assignment, strict=True))
    caption = f"The final assignment of one run, seed {run.seed} of row {row.letter} ({folder_name(run.folder)})."
    size = f"{len(layers)} layers by {len(section.task_names)} tasks"
    alt = f"Grid of {size}, a letter for each copy. Distinct copies in use: {distinct}."
    return _picture("assignment", section, row, figure, caption, alt)


def _affinity_picture(section: Section, affinity: Affinity) -> Picture:
    row, runs = affinity.row, len(affinity.runs)
    order = task_order(affinity)
    names = [affinity.tasks[task] for task in order]
    ordered = affinity.shares[:, order][:, :, order]
    where = f"{section.title}, {row.network}: {row.letter} {row.label}, n = {runs}"
    seeds = f"{runs} seed{'s' * (runs != 1)}"
    figure = affinity_figure(ordered, affinity.layers, names, f"How often two tasks share a layer, {seeds}", where)
    arranged = "" if order == sorted(order) else " Tasks that share much stand together (average linkage)."
    caption = (
        f"Share of {seeds} in which two tasks use the same weights in the final assignment, by layer and as the mean "
        f"over layers, in which each counts alike (row {row.letter}).{arranged} "
        "The affinity.csv of lws report holds all numbers."
    )
    mean = affinity.shares.mean(0)
    most = "; ".join(
        f"{affinity.tasks[a]} and {affinity.tasks[b]} {100 * mean[a, b]:.0f} %" for a, b in affinity.pairs()[:3]
    )
    size = f"{len(names)} by {len(names)} tasks"
    alt = f"Matrices of {size} for {where}. The pairs that share most, mean over layers: {most}."
    return _picture("affinity", section, row, figure, caption, alt)


def _picture(
    kind: Kind, section: Section, row: Row, figure: Figure, caption: str, alt: str, numbers: Table[Any] | None = None
) -> Picture:
    name = f"{kind}_{row.letter}_{_slug(section.data)}_{_slug(row.network)}"
    png, svg = picture_png(figure, dpi=150), picture_svg(figure)
    return Picture(name, caption, alt, png, svg, float(figure.get_figwidth()), numbers)


def _letters(rows: Sequence[Row]) -> str:
    return ", ".join(row.letter for row in rows)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:40] or "data"
