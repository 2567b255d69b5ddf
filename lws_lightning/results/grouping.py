"""Decides which runs are averaged, and why the others are not; tables, tests and figures all use it."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from lws_lightning.drawing import copy_letter
from lws_lightning.records import Evaluation, Run

__all__ = [
    "Key",
    "LeftOut",
    "Member",
    "Row",
    "Section",
    "Source",
    "deviation",
    "group_runs",
    "seeds_text",
    "training_differences",
]

Source = Literal["auto", "test", "curve"]
T = TypeVar("T")
_METHODS = ("full", "none", "prior", "learned")
_LABELS = {"test_curve": "test curve", "val": "validation", "test": "test"}


class Key(NamedTuple):
    """How a run was measured; only runs with the same key are averaged."""

    prefix: str
    step: int
    images: int

    def __str__(self) -> str:
        return f"{_LABELS.get(self.prefix, self.prefix)} at step {self.step:,}, {self.images:,} images"


class Member(NamedTuple):
    """A run of a row and the evaluation that the row takes from it."""

    run: Run
    evaluation: Evaluation


@dataclass(frozen=True)
class LeftOut:
    """A run that no row averages.

    Attributes:
        run: The run.
        reason: Why, as the rest of a sentence.
        other: The run that takes its place, None if there is none.
    """

    run: Run
    reason: str
    other: Run | None = None

    def text(self, folder_name: Callable[[Path], str] = str) -> str:
        """Returns a sentence, in which folders are called by `folder_name`."""
        place = f" in {folder_name(self.other.folder)}, which is later" if self.other else ""
        return f"{folder_name(self.run.folder)}: {self.reason}{place}."


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but the seed.

    Attributes:
        letter: A, B, ..., each once in a report.
        network: Name of the base network.
        method: Name of the method.
        variant: The options in which the rows of this method differ, as text, empty if there is one row only.
        options: The options of the method that a result depends on, without those that are None, and the precision.
        members: One run for each seed, in the order of seeds.
    """

    letter: str
    network: str
    method: str
    variant: str
    options: Mapping[str, Any]
    members: tuple[Member, ...]

    @property
    def label(self) -> str:
        """The method with its variant."""
        return f"{self.method} ({self.variant})" if self.variant else self.method

    @property
    def changed_options(self) -> dict[str, Any]:
        """Those of the options that have another value than by default; K_l counts as its own default."""
        defaults = self.runs[0].defaults
        names = self.options.keys() & defaults.keys() - {"weights_per_layer"}
        return {name: self.options[name] for name in sorted(names) if self.options[name] != defaults[name]}

    @property
    def learned(self) -> bool:
        """Whether the method searches for the sharing."""
        return self.method.startswith("learned")

    @property
    def key(self) -> Key:
        """How its runs were measured."""
        return _key(self.members[0])

    @property
    def runs(self) -> tuple[Run, ...]:
        """Its runs."""
        return tuple(member.run for member in self.members)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Their seeds, rising."""
        return tuple(run.seed for run in self.runs)

    @property
    def diverged(self) -> tuple[Run, ...]:
        """The runs whose error is not a finite number."""
        return tuple(run for run, evaluation in self.members if not math.isfinite(evaluation.error))

    def errors(self, average: str) -> list[float]:
        """Returns each run's `error` or `error_task_mean` in percent, in the order of members."""
        return [float(getattr(evaluation, average)) for _, evaluation in self.members]


@dataclass(frozen=True)
class Section:
    """The rows of one data set.

    Attributes:
        data: Name of the DataModule's class.
        variant: The options of the data in which the sections of this data set differ, as text.
        task_names: Names of the tasks.
        rows: Rows in the order network, method, options; empty if no run is finished.
        key: How most rows were measured, None without rows.
        left_out: The runs in no row.
        notes: Sentences about the runs as a whole.
    """

    data: str
    variant: str
    task_names: tuple[str, ...]
    rows: tuple[Row, ...]
    key: Key | None
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """The data set, its variant and its number of tasks."""
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.data}{variant}, {len(self.task_names)} task{'s' * (len(self.task_names) != 1)}"

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks of the rows, each once."""
        return tuple(dict.fromkeys(row.network for row in self.rows))


def group_runs(runs: Sequence[Run], source: Source = "auto") -> list[Section]:
    """Groups runs.

    A row holds the finished runs of one data set, network, method and set of options that were measured alike (same
    kind of evaluation, step and number of images), one for each seed. A run that a rule such as early stopping ended
    counts as measured at its `max_steps`. Of runs with the same seed only the last one counts. Every other run is left
    out with a reason.

    Args:
        runs: What `load_runs` returned.
        source: `test` for what `test` measured, `curve` for the last evaluation of the training; `auto` is `test`
            where all finished runs of a data set have one, otherwise `curve`.

    Returns:
        A section for each data set, tasks, options of the data that a result depends on, and images.
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


def seeds_text(seeds: Iterable[int]) -> str:
    """Writes seeds briefly: `0-4, 7`."""
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and seed == spans[-1][1] + 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ", ".join(str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in spans)


def deviation(values: Sequence[float]) -> float | None:
    """Returns the standard deviation with n - 1, None for one value, nan where a value is not finite."""
    if len(values) < 2:
        return None
    # Not `statistics.stdev`: it raises where a run diverged to nan.
    mean = statistics.fmean(values)
    return float((sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5)


def training_differences(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Names the options of training in which rows differ, whatever their methods.

    Returns:
        By option, such as `lr` or the precision, its values, one for each row.
    """
    names = {"precision"}.union(*(run.training_options for row in rows for run in row.runs))
    values = {name: [row.options.get(name) for row in rows] for name in sorted(names)}
    return {name: of_rows for name, of_rows in values.items() if any(value != of_rows[0] for value in of_rows)}


def _data_variants(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Splits runs of one data set and the same tasks by the options of their data, and by the images themselves.

    So the folds of a cross-validation, or two folders with the same names in them, are not averaged.

    Returns:
        For each set of options and images in what it differs from the others, as text, and its runs.
    """
    by_options = _split(runs, [_chosen(run.identity.data, "tasks") for run in runs])
    return [
        (", ".join(filter(None, (options, images))), of_images)
        for options, _, of_options in sorted(by_options, key=lambda each: each[0])
        for images, of_images in _by_images(of_options)
    ]


def _by_images(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    by_digest: dict[str, list[Run]] = {}
    for run in runs:
        by_digest.setdefault(run.data_digest or "not recorded", []).append(run)
    return [(f"images {digest}" if len(by_digest) > 1 else "", of) for digest, of in sorted(by_digest.items())]


def _split(items: Sequence[T], options: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any], list[T]]]:
    """Groups items by their options.

    Returns:
        For each group the values in which the groups differ, as text; its options; its items.
    """
    groups: dict[str, tuple[dict[str, Any], list[T]]] = {}
    for item, of_item in zip(items, options, strict=True):
        groups.setdefault(json.dumps(of_item, sort_keys=True), (of_item, []))[1].append(item)
    every = [of_group for of_group, _ in groups.values()]
    names = sorted({name for of_group in every for name in of_group})
    differing = [name for name in names if any(of_group.get(name) != every[0].get(name) for of_group in every)]
    return [
        (", ".join(f"{name}={of_group.get(name)}" for name in differing), of_group, members)
        for of_group, members in groups.values()
    ]


def _chosen(options: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """Returns the options that are not None, without the seed and some others."""
    return {name: value for name, value in options.items() if value is not None and name not in ("seed", *without)}


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
        of_method = groups[network, method]
        for variant, options, members in _split(of_method, [_row_options(member.run) for member in of_method]):
            alike, others = _alike(members)
            left_out += others
            rows.append(Row(copy_letter(letter + len(rows)), network, method, variant, options, tuple(alike)))
    return tuple(rows), tuple(left_out)


def _row_options(run: Run) -> dict[str, Any]:
    return {**_chosen(run.identity.method), "precision": run.identity.precision}


def _status(run: Run) -> str:
    of = f" of {run.max_steps:,}" if run.max_steps >= 0 else ""
    message = f" ({run.message})" if run.message and run.status == "failed" else ""
    unfinished = "running, or killed," if run.status == "running" else run.status
    return f"{unfinished} at step {run.step:,}{of}{message}"


def _key(member: Member) -> Key:
    run, evaluation = member
    at_its_end = run.stopped_by is not None and evaluation.step == run.step
    return Key(evaluation.prefix, run.max_steps if at_its_end else evaluation.step, evaluation.images)


def _most_common(keys: Sequence[Key]) -> Key:
    counts = Counter(keys)
    return max(counts, key=lambda key: (counts[key], key.step, key.images, key.prefix))


def _alike(members: Sequence[Member]) -> tuple[list[Member], list[LeftOut]]:
    """Keeps the runs that were measured like most of them, one for each seed, and gives reasons for the others."""
    common = _most_common([_key(member) for member in members])
    left_out = []
    by_seed: dict[int, Member] = {}
    for member in sorted(members, key=lambda each: each.run.ended or ""):
        run = member.run
        if _key(member) != common:
            left_out.append(LeftOut(run, f"{_key(member)}; the others: {common}"))
            continue
        if run.seed in by_seed:
            left_out.append(LeftOut(by_seed[run.seed].run, f"seed {run.seed} again", run))
        by_seed[run.seed] = member
    return [by_seed[seed] for seed in sorted(by_seed)], left_out


def _notes(rows: Sequence[Row]) -> list[str]:
    """Names rows whose training or seeds differ, and runs that stopped early or diverged."""
    notes = [
        _training_note(network, [row for row in rows if row.network == network])
        for network in dict.fromkeys(row.network for row in rows)
    ]
    notes = [note for note in notes if note]
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for row in rows:
        by_seeds.setdefault(row.seeds, []).append(row.letter)
    if len(by_seeds) > 1:
        parts = [f"{', '.join(letters)}: {seeds_text(seeds)}" for seeds, letters in by_seeds.items()]
        notes.append(f"The rows have different seeds ({'; '.join(parts)}).")
    for row in rows:
        ends: dict[str, list[int]] = {}
        for run in row.runs:
            if run.stopped_by is not None:
                ends.setdefault(run.stopped_by, []).append(run.step)
        for what, steps in sorted(ends.items()):
            at = ", ".join(f"{step:,}" for step in sorted(steps))
            notes.append(f"Row {row.letter}: {len(steps)} stopped early, by {what}, at step {at}.")
        if row.diverged:
            seeds = seeds_text(run.seed for run in row.diverged)
            notes.append(f"Row {row.letter}: {len(row.diverged)} diverged, the error is not a number (seed {seeds}).")
    return notes


def _training_note(network: str, rows: Sequence[Row]) -> str:
    """Names the options of training in which the rows of a network differ, empty if there are none."""
    parts = []
    for name, values in training_differences(rows).items():
        letters: dict[str, list[str]] = {}
        for row, value in zip(rows, values, strict=True):
            letters.setdefault("none" if value is None else f"{value}", []).append(row.letter)
        values_of = [f"{value} ({', '.join(of)})" for value, of in letters.items()]
        parts.append(f"{name} {', '.join(values_of)}")
    return f"The rows of {network} are not trained alike: {'; '.join(parts)}." if parts else ""
