"""How the runs of a report were made: commands, options, versions, hardware."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lws_lightning.records import Hardware, Run
from lws_lightning.results.grouping import Row, Section, seeds_text

__all__ = ["Origin", "machines", "row_origin", "when"]

_CONFIG = "config.yaml"
# Facts of the data, and what differs between the runs of a row by nature.
_NOT_SHOWN = frozenset(
    {"method.task_names", "method.num_classes", "method.image_shape", "method.validation_prefix"}
    | {"method.seed", "data.seed", "data.tasks", "data.root"}
)


@dataclass(frozen=True)
class Origin:
    """How the runs of a row were made.

    Attributes:
        letter: The row's letter.
        label: Its method.
        network: Its network.
        config: Name of the configuration, empty if the folders are not those of a sweep.
        folders: What its run folders are called.
        seeds: Their seeds, as text.
        command: Repeats one of its runs, empty if Python started all of them.
        options: `name = value` of method, data and Trainer, as in the first run.
        remarks: Sentences about how the runs of the row differ.
    """

    letter: str
    label: str
    network: str
    config: str
    folders: tuple[str, ...]
    seeds: str
    command: str
    options: tuple[str, ...]
    remarks: tuple[str, ...]


def row_origin(row: Row, folder_name: Callable[[Path], str] = str) -> Origin:
    """Collects how the runs of a row were made.

    Args:
        row: The row.
        folder_name: Names a folder.
    """
    with_config = [run for run in row.runs if (run.folder / _CONFIG).is_file()]
    remarks = []
    command = ""
    if with_config:
        path = shlex.quote(f"{folder_name(with_config[0].folder)}/{_CONFIG}")
        command = f"lws fit --config {path} --seed_everything SEED"
        if len(with_config) < len(row.runs):
            others = seeds_text(run.seed for run in row.runs if run not in with_config)
            remarks.append(f"Seed {others}: started from Python, without {_CONFIG}.")
    else:
        remarks.append(f"Started from Python: no {_CONFIG}.")
    options = [_options(run) for run in row.runs]
    names = sorted({option for of_run in options for option in of_run})
    if differing := [each for each in names if any(of_run.get(each) != options[0].get(each) for of_run in options)]:
        remarks.append(f"The runs differ in {', '.join(differing)}.")
    return Origin(
        row.letter,
        row.label,
        row.network,
        _config_name([run.folder for run in row.runs]),
        tuple(folder_name(run.folder) for run in row.runs),
        seeds_text(row.seeds),
        command,
        tuple(f"{option} = {_value(value)}" for option, value in options[0].items()),
        tuple(remarks),
    )


def machines(sections: Sequence[Section]) -> list[str]:
    """Says with which versions and on which hardware the averaged runs were made, and whether they differ.

    Args:
        sections: What `group_runs` returned.

    Returns:
        A sentence each for versions and hardware, with the rows if not all runs agree; none without rows.
    """
    sentences = []
    rows = [row for section in sections for row in section.rows]
    descriptions: tuple[tuple[str, Callable[[Run], str]], ...] = (
        ("Versions", lambda run: ", ".join(f"{name} {version}" for name, version in run.versions.items())),
        ("Hardware", lambda run: _hardware(run.hardware)),
    )
    for title, describe in descriptions:
        found: dict[str, list[str]] = {}
        for row in rows:
            counts = Counter(map(describe, row.runs))
            for text, count in counts.items():
                part = row.letter if len(counts) == 1 else f"{count} of {len(row.runs)} in {row.letter}"
                found.setdefault(text, []).append(part)
        if len(found) == 1:
            sentences.append(f"{title}: {next(iter(found))}.")
        elif len(found) > 1:
            parts = "; ".join(f"{text} ({', '.join(letters)})" for text, letters in found.items())
            warning = " Do not compare their seconds." if title == "Hardware" else ""
            sentences.append(f"{title}, not the same for all runs (rows in brackets): {parts}.{warning}")
    return sentences


def when(runs: Iterable[Run]) -> str:
    """Returns the days of the first start and the last end, empty if none is known."""
    days = sorted(time[:10] for run in runs for time in (run.started, run.ended) if time is not None)
    if not days:
        return ""
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def _options(run: Run) -> dict[str, Any]:
    """Returns all options of a run that were chosen, those of the data as `data.NAME`, the Trainer's `trainer.NAME`."""
    method = {**run.identity.method, **run.neutral["method"]}
    data = {**run.identity.data, **run.neutral["data"]}
    options = {
        **{f"method.{name}": value for name, value in method.items()},
        **{f"data.{name}": value for name, value in data.items()},
        **{f"trainer.{name}": value for name, value in run.trainer.items()},
    }
    return {
        name.removeprefix("method."): value
        for name, value in options.items()
        if value is not None and name not in _NOT_SHOWN
    }


def _config_name(folders: Sequence[Path]) -> str:
    """Finds the folder above `seed<k>` (where a sweep puts the name of the configuration), if all runs agree."""
    names = set()
    for folder in folders:
        seeds = [part for part in (folder, *folder.parents) if part.name.startswith("seed") and part.name[4:].isdigit()]
        names.add(seeds[0].parent.name if seeds else "")
    return names.pop() if len(names) == 1 else ""


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _hardware(hardware: Hardware) -> str:
    gpu = f"{hardware.gpu}, " if hardware.gpu else "no GPU, "
    threads = f"{hardware.threads} thread{'s' * (hardware.threads != 1)}"
    return f"{hardware.cpu or 'unknown CPU'}, {gpu}{hardware.cores} cores, {threads}"
