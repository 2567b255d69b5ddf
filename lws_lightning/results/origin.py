"""How the runs of a report were made: commands, options, versions, hardware."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lws_lightning.records import Hardware, Run
from lws_lightning.results.rows import Row, Section, seeds_text

__all__ = ["Origin", "environments", "row_origin", "training_dates"]

_CONFIG = "config.yaml"
# Properties of the data, and options that always differ between the runs of a row.
_HIDDEN = frozenset(
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
        folders: Displayed names of its run folders.
        seeds: Their seeds, as text.
        command: Command that repeats a run, empty if all were started from Python.
        options: `name = value` of method, data and Trainer, from the first run.
        remarks: Sentences about differences between the runs.
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
    """Collects how the runs of a row were made; `folder_name` returns the displayed name of a folder."""
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
    names = sorted({name for of_run in options for name in of_run})
    if differing := [name for name in names if any(of_run.get(name) != options[0].get(name) for of_run in options)]:
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


def environments(sections: Sequence[Section]) -> list[str]:
    """Returns a sentence each on the versions and the hardware of the averaged runs, with the rows if they differ."""
    sentences = []
    rows = [row for section in sections for row in section.rows]
    descriptions: tuple[tuple[str, Callable[[Run], str]], ...] = (
        ("Versions", lambda run: ", ".join(f"{name} {version}" for name, version in run.versions.items())),
        ("Hardware", lambda run: _hardware(run.hardware)),
    )
    for title, describe in descriptions:
        runs_by_text: dict[str, list[str]] = {}
        for row in rows:
            counts = Counter(map(describe, row.runs))
            for text, count in counts.items():
                runs = row.letter if len(counts) == 1 else f"{count} of {len(row.runs)} in {row.letter}"
                runs_by_text.setdefault(text, []).append(runs)
        if len(runs_by_text) == 1:
            sentences.append(f"{title}: {next(iter(runs_by_text))}.")
        elif runs_by_text:
            variants = "; ".join(f"{text} ({', '.join(runs)})" for text, runs in runs_by_text.items())
            warning = " Do not compare their seconds." if title == "Hardware" else ""
            sentences.append(f"{title}, not the same for all runs (rows in brackets): {variants}.{warning}")
    return sentences


def training_dates(runs: Iterable[Run]) -> str:
    """Returns the days of the first start and the last end, empty if unknown."""
    days = sorted(time[:10] for run in runs for time in (run.started, run.ended) if time is not None)
    if not days:
        return ""
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def _options(run: Run) -> dict[str, Any]:
    """Returns the options of a run that are not None: `NAME` of the method, `data.NAME`, `trainer.NAME`."""
    sections = {
        "method": {**run.identity.method, **run.neutral["method"]},
        "data": {**run.identity.data, **run.neutral["data"]},
        "trainer": run.trainer,
    }
    options = {f"{section}.{name}": value for section, of in sections.items() for name, value in of.items()}
    return {
        name.removeprefix("method."): value
        for name, value in options.items()
        if value is not None and name not in _HIDDEN
    }


def _config_name(folders: Sequence[Path]) -> str:
    """Returns the folder above `seed<k>` (a sweep names it after the configuration) if all runs agree."""
    names = set()
    for folder in folders:
        seeds = (path for path in (folder, *folder.parents) if path.name.startswith("seed") and path.name[4:].isdigit())
        seed = next(seeds, None)
        names.add("" if seed is None else seed.parent.name)
    return names.pop() if len(names) == 1 else ""


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _hardware(hardware: Hardware) -> str:
    gpu = f"{hardware.gpu}, " if hardware.gpu else "no GPU, "
    threads = f"{hardware.threads} thread{'s' * (hardware.threads != 1)}"
    return f"{hardware.cpu or 'unknown CPU'}, {gpu}{hardware.cores} cores, {threads}"
