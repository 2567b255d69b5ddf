"""Says which runs are averaged with which, and why the others are not. Tables, tests and figures all use it."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lws_lightning.callbacks import copy_letter
from lws_lightning.results.data_variants import data_variants
from lws_lightning.results.options import differences, method_options, settle, training_differences
from lws_lightning.results.runs import Measurement, Run

__all__ = ["Key", "LeftOut", "Member", "Row", "Section", "Source", "deviation", "group_runs", "seeds_text"]

Source = Literal["auto", "test", "curve"]
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
    """A run of a row and what the row takes from it."""

    run: Run
    measurement: Measurement


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

    def text(self, name: Callable[[Path], str] = str) -> str:
        """Returns a sentence; `name` says how a folder is called."""
        place = f" in {name(self.other.folder)}, which is later" if self.other else ""
        return f"{name(self.run.folder)}: {self.reason}{place}."


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but the seed.

    Attributes:
        letter: A, B, ..., each once in a report.
        network: Name of the base network.
        method: Name of the method.
        variant: The options in which the rows of this method differ, as text, empty if there is one row only.
        options: Options of the method that were chosen.
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
        return tuple(run for run, measured in self.members if not math.isfinite(measured.error))

    def errors(self, average: str) -> list[float]:
        """Returns each run's `error` or `error_task_mean` in percent, in the order of members."""
        return [float(getattr(measurement, average)) for _, measurement in self.members]

    def task_errors(self, task: str) -> list[float | None]:
        """Returns each run's error of a task in percent, None where it had no images."""
        return [measurement.task_errors.get(task) for _, measurement in self.members]


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
    kind of evaluation, step and number of images), one for each seed. What a rule such as early stopping ended counts
    as measured at the step that it could have gone to. Of runs with the same seed only the last
    one counts. Every other run is left out with a reason.

    Args:
        runs: What `load_runs` returned.
        source: `test` for what `test` measured, `curve` for the last evaluation of the training; `auto` is `test`
            where all finished runs of a data set have one, otherwise `curve`.

    Returns:
        A section for each data set, tasks, options of the data (as far as a `config.yaml` tells them) and images.
    """
    by_data: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        by_data.setdefault((run.data, run.task_names), []).append(run)
    sections = []
    letter = 0
    for (data, tasks), members in sorted(by_data.items(), key=lambda item: item[0]):
        for variant, same, notes in data_variants(members):
            rows, left_out, filled = _section_rows(same, source, letter)
            letter += len(rows)
            key = _most_common([row.key for row in rows]) if rows else None
            sections.append(Section(data, variant, tasks, rows, key, left_out, (*notes, *filled, *_notes(rows))))
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


def _section_rows(
    runs: Sequence[Run], source: Source, letter: int
) -> tuple[tuple[Row, ...], tuple[LeftOut, ...], list[str]]:
    finished = [run for run in runs if run.status == "finished"]
    if source == "auto":
        source = "test" if finished and all(run.test is not None for run in finished) else "curve"
    left_out = [LeftOut(run, _status(run)) for run in runs if run.status != "finished"]
    groups: dict[tuple[str, str], list[Member]] = {}
    for run in finished:
        measurement = run.test if source == "test" else run.evaluation
        if measurement is None:
            left_out.append(LeftOut(run, f"finished, but has no {'test' if source == 'test' else 'evaluation'}"))
            continue
        groups.setdefault((run.network, run.method), []).append(Member(run, measurement))

    def order(key: tuple[str, str]) -> tuple[str, int, str]:
        return key[0], _METHODS.index(key[1]) if key[1] in _METHODS else len(_METHODS), key[1]

    rows: list[Row] = []
    notes = []
    for network, method in sorted(groups, key=order):
        variants, filled = _variants(groups[network, method])
        if filled:
            notes.append(f"Some runs of {method} do not tell {', '.join(filled)}; they are taken to have it, too.")
        for name, options, members in variants:
            alike, others = _alike(members)
            left_out += others
            rows.append(Row(copy_letter(letter + len(rows)), network, method, name, options, tuple(alike)))
    return tuple(rows), tuple(left_out), notes


def _variants(members: Sequence[Member]) -> tuple[list[tuple[str, dict[str, Any], list[Member]]], list[str]]:
    """Splits runs of a method by its options, each part with the values in which it differs from the others."""
    options, filled = settle([method_options(member.run) for member in members])
    parts: dict[str, list[Member]] = {}
    for member, each in zip(members, options, strict=True):
        parts.setdefault(json.dumps(each, sort_keys=True), []).append(member)
    decoded = [json.loads(text) for text in parts]
    return list(zip(differences(decoded), decoded, parts.values(), strict=True)), filled


def _status(run: Run) -> str:
    of = f" of {run.max_steps:,}" if run.max_steps >= 0 else ""
    message = str(run.record.get("message") or "")
    message = f" ({message})" if message and run.status == "failed" else ""
    unfinished = "running, or killed," if run.status == "running" else run.status
    return f"{unfinished} at step {run.step:,}{of}{message}"


def _key(member: Member) -> Key:
    run, measurement = member
    at_its_end = run.stopped_early and measurement.step == run.step
    return Key(measurement.prefix, run.max_steps if at_its_end else measurement.step, measurement.images)


def _most_common(keys: Sequence[Key]) -> Key:
    counts = Counter(keys)
    return max(counts, key=lambda key: (counts[key], key.step, key.images, key.prefix))


def _alike(members: Sequence[Member]) -> tuple[list[Member], list[LeftOut]]:
    """Keeps the runs that were measured like most of them, one for each seed; says why the others go."""
    common = _most_common([_key(member) for member in members])
    left_out = []
    by_seed: dict[int, Member] = {}
    for member in sorted(members, key=lambda each: str(each.run.record.get("ended") or "")):
        run = member.run
        if _key(member) != common:
            left_out.append(LeftOut(run, f"{_key(member)}; the others: {common}"))
            continue
        if run.seed in by_seed:
            left_out.append(LeftOut(by_seed[run.seed].run, f"seed {run.seed} again", run))
        by_seed[run.seed] = member
    return [by_seed[seed] for seed in sorted(by_seed)], left_out


def _notes(rows: Sequence[Row]) -> list[str]:
    """Names rows that were trained otherwise, of other seeds, or with runs that stopped early or diverged."""
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
            if run.stopped_early:
                ends.setdefault(run.stopped_by, []).append(run.step)
        for what, steps in sorted(ends.items()):
            at = ", ".join(f"{step:,}" for step in sorted(steps))
            notes.append(f"Row {row.letter}: {len(steps)} stopped early, by {what}, at step {at}.")
        if row.diverged:
            seeds = seeds_text(run.seed for run in row.diverged)
            notes.append(f"Row {row.letter}: {len(row.diverged)} diverged, the error is not a number (seed {seeds}).")
    return notes


def _training_note(network: str, rows: Sequence[Row]) -> str:
    """Says in which options of training the rows of a network differ, empty if in none."""
    parts = []
    for name, values in training_differences([row.options for row in rows]).items():
        letters: dict[str, list[str]] = {}
        for row, value in zip(rows, values, strict=True):
            letters.setdefault("none" if value is None else f"{value}", []).append(row.letter)
        values_of = [f"{value} ({', '.join(of)})" for value, of in letters.items()]
        parts.append(f"{name} {', '.join(values_of)}")
    return f"The rows of {network} are not trained alike: {'; '.join(parts)}." if parts else ""
