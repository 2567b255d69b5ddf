"""Compares runs in a Markdown table that also reads well in a terminal."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from lws_lightning.results.runs import Measurement, Run

__all__ = ["comparison_table"]

_MAX_TASKS = 8  # with more tasks their columns do not fit a terminal
_METHODS = ("full", "none", "prior", "learned")
_LABELS = {"test_curve": "test curve", "val": "validation", "test": "test"}
_MARKS = "*†‡§¶"

Key = tuple[str, int, int]


def comparison_table(
    runs: Sequence[Run], problems: Iterable[str] = (), source: Literal["auto", "test", "curve"] = "auto"
) -> str:
    """Makes a table for each data set, with a row for each network and method over its seeds.

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
    by_data: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        by_data.setdefault((run.data, run.task_names), []).append(run)
    parts = [_data_table(members, source) for _, members in sorted(by_data.items(), key=lambda item: item[0])]
    if not parts:
        parts.append("No runs.\n")
    problems = list(problems)
    if problems:
        parts.append("Not read:\n\n" + "".join(f"- {problem}\n" for problem in problems))
    return "\n".join(parts)


def _data_table(runs: Sequence[Run], source: Literal["auto", "test", "curve"]) -> str:
    first = runs[0]
    finished = [run for run in runs if run.status == "finished"]
    if source == "auto":
        source = "test" if finished and all(run.test is not None for run in finished) else "curve"
    left_out = [f"{run.folder}: {_status(run)}." for run in runs if run.status != "finished"]
    measured: list[tuple[Run, Measurement]] = []
    for run in finished:
        measurement = run.test if source == "test" else run.evaluation
        if measurement is None:
            left_out.append(f"{run.folder}: finished, but has no {'test' if source == 'test' else 'evaluation'}.")
        else:
            measured.append((run, measurement))

    rows, row_keys = [], []
    for name, members in _rows(measured):
        alike, others = _alike(members)
        left_out += others
        rows.append((name, alike))
        row_keys.append(_key(alike[0][1]))
    title = f"### {first.data}, {len(first.task_names)} task{'s' * (len(first.task_names) != 1)}\n"
    notes = []
    if rows:
        common = _most_common(row_keys)
        odd = [key for key in dict.fromkeys(row_keys) if key != common]
        marks = {key: _MARKS[i % len(_MARKS)] * (i // len(_MARKS) + 1) for i, key in enumerate(odd)}
        notes = [f"{marks[key]} {_describe(key)}, not to be compared with the other rows." for key in odd]
        tasks = first.task_names if len(first.task_names) <= _MAX_TASKS else ()
        body = [_cells(name, members, tasks, marks.get(_key(members[0][1]), "")) for name, members in rows]
        header = ["network", "method", "n", *tasks, "task mean", "all images", "parameters", "seconds", "s/step"]
        error = f"Error in percent: {_describe(common)}. Mean ± standard deviation over n runs.\n"
        text = f"{title}\n{error}\n{_markdown([header, *body])}"
    else:
        text = f"{title}\nNo finished runs.\n"
    if notes:
        text += "\n" + "\n".join(notes) + "\n"
    if left_out:
        text += "\nLeft out:\n\n" + "".join(f"- {reason}\n" for reason in left_out)
    return text


def _status(run: Run) -> str:
    of = f" of {run.max_steps}" if run.max_steps >= 0 else ""
    message = str(run.record.get("message") or "")
    message = f" ({message})" if message and run.status == "failed" else ""
    unfinished = "running, or killed," if run.status == "running" else run.status
    return f"{unfinished} at step {run.step}{of}{message}"


def _rows(measured: Sequence[tuple[Run, Measurement]]) -> list[tuple[list[str], list[tuple[Run, Measurement]]]]:
    """Groups by network, method and options; the method's name says the options in which groups differ."""
    groups: dict[tuple[str, str], dict[str, list[tuple[Run, Measurement]]]] = {}
    for run, measurement in measured:
        variant = json.dumps(_options(run), sort_keys=True)
        groups.setdefault((run.network, run.method), {}).setdefault(variant, []).append((run, measurement))

    def order(key: tuple[str, str]) -> tuple[str, int, str]:
        return key[0], _METHODS.index(key[1]) if key[1] in _METHODS else len(_METHODS), key[1]

    rows = []
    for network, method in sorted(groups, key=order):
        variants = groups[network, method]
        decoded: list[dict[str, Any]] = [json.loads(text) for text in variants]
        names = sorted({name for options in decoded for name in options})
        differing = [name for name in names if len({json.dumps(options.get(name)) for options in decoded}) > 1]
        for options, members in zip(decoded, variants.values(), strict=True):
            suffix = ", ".join(f"{name}={options.get(name)}" for name in differing)
            rows.append(([network, f"{method} ({suffix})" if suffix else method], members))
    return rows


def _options(run: Run) -> dict[str, Any]:
    # Lightning's own entries begin with an underscore; they say how a run was started, not what it did.
    hparams = dict(run.record.get("hparams") or {})
    hidden = {name for name in hparams if name == "seed" or name.startswith("_")}
    # An option that is None is one that was not chosen, like one that an older version did not have.
    options = {name: value for name, value in hparams.items() if name not in hidden and value is not None}
    return {**options, "weights_per_layer": run.record.get("weights_per_layer")}


def _key(measurement: Measurement) -> Key:
    return measurement.prefix, measurement.step, measurement.images


def _describe(key: Key) -> str:
    prefix, step, images = key
    return f"{_LABELS.get(prefix, prefix)} at step {step:,}, {images:,} images"


def _most_common(keys: Sequence[Key]) -> Key:
    counts = Counter(keys)
    return max(counts, key=lambda key: (counts[key], key[1], key[2], key[0]))


def _alike(members: Sequence[tuple[Run, Measurement]]) -> tuple[list[tuple[Run, Measurement]], list[str]]:
    """Keeps the runs that were measured like most of them, one for each seed; says why the others go."""
    common = _most_common([_key(measurement) for _, measurement in members])
    reasons = []
    by_seed: dict[int, tuple[Run, Measurement]] = {}
    for run, measurement in sorted(members, key=lambda member: str(member[0].record.get("ended") or "")):
        if _key(measurement) != common:
            reasons.append(f"{run.folder}: {_describe(_key(measurement))}; the others: {_describe(common)}.")
            continue
        if run.seed in by_seed:
            reasons.append(f"{by_seed[run.seed][0].folder}: seed {run.seed} again in {run.folder}, which is later.")
        by_seed[run.seed] = run, measurement
    return list(by_seed.values()), reasons


def _cells(
    name: Sequence[str], members: Sequence[tuple[Run, Measurement]], tasks: Sequence[str], mark: str
) -> list[str]:
    measurements = [measurement for _, measurement in members]
    runs = [run for run, _ in members]
    return [
        name[0],
        f"{name[1]} {mark}".strip(),
        str(len(members)),
        *(_mean_deviation([each.task_errors.get(task) for each in measurements]) for task in tasks),
        _mean_deviation([each.error_task_mean for each in measurements]),
        _mean_deviation([each.error for each in measurements]),
        f"{statistics.fmean(run.parameters_in_use for run in runs):,.0f}",
        _mean([run.seconds for run in runs], "{:,.0f}"),
        _mean([run.seconds_per_step for run in runs], "{:.3g}"),
    ]


def _mean_deviation(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "-"
    mean = f"{statistics.fmean(known):.2f}"
    # Not `statistics.stdev`: it raises where a run diverged to nan.
    return mean if len(known) == 1 else f"{mean} ± {_deviation(known):.2f}"


def _deviation(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return float((sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5)


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(statistics.fmean(known)) if known and len(known) == len(values) else "-"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """Pads the columns; the first two are text, the others numbers to the right."""
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(3, *(len(row[column]) for row in escaped)) for column in range(len(escaped[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        return f"| {' | '.join(cells)} |\n"

    rule = ["-" * w if i < 2 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return line(escaped[0]) + line(rule) + "".join(map(line, escaped[1:]))
