"""Groups runs into rows for tables, tests and figures, with the reason for every run that is left out."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from lws_lightning.drawing import copy_letter
from lws_lightning.records import DECIDED, Run
from lws_lightning.results.rows import Key, LeftOut, Member, Row, Section, seeds_text, training_differences

__all__ = ["Source", "group_runs"]

Source = Literal["auto", "test", "curve"]
T = TypeVar("T")
_METHODS = ("full", "none", "prior", "learned")
_LABELS = {"test_curve": "test curve", "val": "validation", "test": "test"}


def group_runs(runs: Sequence[Run], source: Source = "auto") -> list[Section]:
    """Groups runs.

    A row contains the finished runs of one data set, network, method and set of options that were evaluated in the same
    way (kind of evaluation, step and number of images), one for each seed. A run that stopped early counts as
    evaluated at its `max_steps`. Of runs with the same seed only the last one is used. Every other run is left out with
    a reason.

    Args:
        runs: The result of `load_runs`.
        source: `test` for the result of `test`, `curve` for the last evaluation during training; `auto` is `test` if
            all finished runs of a data set have one, otherwise `curve`.

    Returns:
        A section for each combination of data set, tasks, options of the data that a result depends on, and images.
    """
    by_data: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        by_data.setdefault((run.data or "-", tuple(run.task_names)), []).append(run)
    sections = []
    letter = 0
    for (data, tasks), members in sorted(by_data.items(), key=lambda item: item[0]):
        for variant, same in _data_variants(members):
            rows, left_out = _section_rows(same, source, letter)
            letter += len(rows)
            key = _most_common([row.key for row in rows]) if rows else None
            sections.append(Section(data, variant, tasks, rows, key, left_out, tuple(_notes(rows))))
    return sections


def _data_variants(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Splits runs of one data set and the same tasks by the options of their data, and by their images.

    So the folds of a cross-validation, or folders with different images, are not averaged.

    Returns:
        For each set of options and images, how it differs from the others, as text, and its runs.
    """
    by_options = _group_by_options(runs, [_set_options(run.identity.data, "tasks") for run in runs])
    return [
        (", ".join(filter(None, (options, images))), runs_with_images)
        for options, _, runs_with_options in sorted(by_options, key=lambda group: group[0])
        for images, runs_with_images in _by_images(runs_with_options)
    ]


def _by_images(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    by_digest: dict[str, list[Run]] = {}
    for run in runs:
        by_digest.setdefault(run.data_digest or "not recorded", []).append(run)
    return [(f"images {digest}" if len(by_digest) > 1 else "", group) for digest, group in sorted(by_digest.items())]


def _group_by_options(
    items: Sequence[T], options: Sequence[dict[str, Any]]
) -> list[tuple[str, dict[str, Any], list[T]]]:
    """Groups items by their options.

    Returns:
        For each group, the values in which the groups differ, as text; its options; its items.
    """
    groups: dict[str, tuple[dict[str, Any], list[T]]] = {}
    for item, item_options in zip(items, options, strict=True):
        groups.setdefault(json.dumps(item_options, sort_keys=True), (item_options, []))[1].append(item)
    all_options = [group_options for group_options, _ in groups.values()]
    names = sorted({name for group_options in all_options for name in group_options})
    first = all_options[0]
    differing = [name for name in names if any(other.get(name) != first.get(name) for other in all_options)]
    return [
        (", ".join(f"{name}={group_options.get(name)}" for name in differing), group_options, members)
        for group_options, members in groups.values()
    ]


def _set_options(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Returns the options that are not None, without the seed and those named."""
    return {name: value for name, value in options.items() if value is not None and name not in ("seed", *names)}


def _section_rows(runs: Sequence[Run], source: Source, letter: int) -> tuple[tuple[Row, ...], tuple[LeftOut, ...]]:
    finished = [run for run in runs if run.status == "finished"]
    if source == "auto":
        source = "test" if finished and all(run.test is not None for run in finished) else "curve"
    left_out = [LeftOut(run, _status(run)) for run in runs if run.status != "finished"]
    groups: dict[tuple[str, str], list[Member]] = {}
    for run in finished:
        evaluation = run.test if source == "test" else run.evaluation
        if evaluation is None:
            left_out.append(LeftOut(run, f"finished, but has no {'test' if source == 'test' else 'evaluation'}"))
            continue
        groups.setdefault((run.network, run.method), []).append(Member(run, evaluation))

    def order(key: tuple[str, str]) -> tuple[str, int, str]:
        return key[0], _METHODS.index(key[1]) if key[1] in _METHODS else len(_METHODS), key[1]

    rows: list[Row] = []
    for network, method in sorted(groups, key=order):
        method_members = groups[network, method]
        method_options = [
            {**_set_options(member.run.identity.method), "precision": member.run.identity.precision}
            for member in method_members
        ]
        for variant, options, members in _group_by_options(method_members, method_options):
            comparable, others = _comparable(members)
            left_out += others
            rows.append(Row(copy_letter(letter + len(rows)), network, method, variant, options, tuple(comparable)))
    return tuple(rows), tuple(left_out)


def _status(run: Run) -> str:
    limit = f" of {run.max_steps:,}" if run.max_steps >= 0 else ""
    message = f" ({run.message})" if run.message and run.status == "failed" else ""
    unfinished = "running, or killed," if run.status == "running" else run.status
    return f"{unfinished} at step {run.step:,}{limit}{message}"


def _most_common(keys: Sequence[Key]) -> Key:
    counts = Counter(keys)
    return max(counts, key=lambda key: (counts[key], key.step, key.images, key.prefix))


def _comparable(members: Sequence[Member]) -> tuple[list[Member], list[LeftOut]]:
    """Keeps the runs with the most common key, one for each seed, and gives reasons for the others."""
    common = _most_common([member.key for member in members])
    left_out = []
    by_seed: dict[int, Member] = {}
    for member in sorted(members, key=lambda member: member.run.ended or ""):
        run = member.run
        if member.key != common:
            left_out.append(LeftOut(run, f"{member.key}; the others: {common}"))
            continue
        if run.seed in by_seed:
            left_out.append(LeftOut(by_seed[run.seed].run, f"seed {run.seed} again", run))
        by_seed[run.seed] = member
    return [by_seed[seed] for seed in sorted(by_seed)], left_out


def _notes(rows: Sequence[Row]) -> list[str]:
    """Lists rows whose training or seeds differ, and runs that stopped early or diverged."""
    notes = [
        _training_note(network, [row for row in rows if row.network == network])
        for network in dict.fromkeys(row.network for row in rows)
    ]
    notes = [note for note in notes if note]
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for row in rows:
        by_seeds.setdefault(row.seeds, []).append(row.letter)
    if len(by_seeds) > 1:
        seeds_of_rows = [f"{', '.join(letters)}: {seeds_text(seeds)}" for seeds, letters in by_seeds.items()]
        notes.append(f"The rows have different seeds ({'; '.join(seeds_of_rows)}).")
    for row in rows:
        stops: dict[str, list[int]] = {}
        for run in row.runs:
            if run.stopped_by is not None:
                stops.setdefault(run.stopped_by, []).append(run.step)
        for cause, steps in sorted(stops.items()):
            steps_text = ", ".join(f"{step:,}" for step in sorted(steps))
            notes.append(f"Row {row.letter}: {len(steps)} stopped early, by {cause}, at step {steps_text}.")
        notes += _settling_note(row)
        if row.diverged:
            seeds = seeds_text(run.seed for run in row.diverged)
            notes.append(f"Row {row.letter}: {len(row.diverged)} diverged, the error is not a number (seed {seeds}).")
    return notes


def _settling_note(row: Row) -> list[str]:
    """Says how many runs of a row ended before their search had decided."""
    decisions = [run.decisions for run in row.runs]
    opened = [each for each in decisions if each is not None and not each.settled]
    if not opened:
        return []
    choices, undecided = sum(each.choices for each in opened), sum(each.undecided for each in opened)
    share = f"{100 * undecided / choices:.0f} % of their choices of a copy"
    return [
        f"Row {row.letter}: the search of {len(opened)} of {len(row.runs)} runs has not settled ({share} are below a "
        f"probability of {DECIDED}), so which weights their tasks share is partly chance."
    ]


def _training_note(network: str, rows: Sequence[Row]) -> str:
    """Lists the training options in which the rows of a network differ, empty if there are none."""
    differences = []
    for name, values in training_differences(rows).items():
        letters: dict[str, list[str]] = {}
        for row, value in zip(rows, values, strict=True):
            letters.setdefault("none" if value is None else f"{value}", []).append(row.letter)
        values_text = [f"{value} ({', '.join(of_value)})" for value, of_value in letters.items()]
        differences.append(f"{name} {', '.join(values_text)}")
    return f"The rows of {network} are not trained alike: {'; '.join(differences)}." if differences else ""
