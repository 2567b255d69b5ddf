"""How the runs of a report were made: commands, options, versions, hardware, as far as their records tell."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lws_lightning.results.config import flat_options, read_config
from lws_lightning.results.grouping import Row, Section, seeds_text
from lws_lightning.results.runs import Run

__all__ = ["Origin", "machines", "row_origin", "when"]

# What differs between the runs of one row by nature, or where they lie.
_NEUTRAL = ("seed_everything", "trainer.default_root_dir", "data.init_args.root", "ckpt_path")
_FROM_THE_DATA = ("task_names", "num_classes", "image_shape", "validation_prefix")


@dataclass(frozen=True)
class Origin:
    """How the runs of a row were made.

    Attributes:
        letter: The row's letter.
        label: Its method.
        network: Its network.
        config: Name of the configuration, empty if the folders do not tell.
        folders: What its run folders are called.
        seeds: Their seeds, as text.
        command: Repeats one of its runs, empty if Python started all of them.
        options: `name = value` of method, data and training, as in the first run.
        remarks: Sentences about runs of the row that were made otherwise.
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


def row_origin(row: Row, name: Callable[[Path], str] = str) -> Origin:
    """Collects how the runs of a row were made.

    Args:
        row: The row.
        name: How a folder is called.
    """
    configs = [(run, read_config(run.folder)) for run in row.runs]
    told = [(run, config) for run, config in configs if config is not None]
    remarks = []
    command = ""
    if told:
        command = f"lws fit --config {_quoted(f'{name(told[0][0].folder)}/config.yaml')} --seed_everything SEED"
        if len(told) < len(configs):
            silent = seeds_text(run.seed for run, config in configs if config is None)
            remarks.append(f"Seed {silent}: started from Python, without config.yaml.")
        flat = [{k: v for k, v in flat_options(config).items() if k not in _NEUTRAL} for _, config in told]
        differing = sorted({key for each in flat for key in each if any(o.get(key) != each[key] for o in flat)})
        if differing:
            remarks.append(f"The runs' config.yaml differ in {', '.join(differing)}.")
    else:
        remarks.append("Started from Python: no config.yaml.")
    return Origin(
        row.letter,
        row.label,
        row.network,
        _config_name([run.folder for run in row.runs]),
        tuple(name(run.folder) for run in row.runs),
        seeds_text(row.seeds),
        command,
        tuple(f"{key} = {_value(value)}" for key, value in _options(row.runs[0]).items()),
        tuple(remarks),
    )


def machines(sections: Sequence[Section]) -> list[str]:
    """Says with which versions and on which hardware the averaged runs were made, and whether they differ.

    Args:
        sections: What `group_runs` returned.

    Returns:
        A sentence each for versions and hardware, with the rows if not all runs agree; none where nothing is recorded.
    """
    sentences = []
    rows = [row for section in sections for row in section.rows]
    for key, title, describe in (("versions", "Versions", _versions), ("hardware", "Hardware", _hardware)):
        found: dict[str, list[str]] = {}
        for row in rows:
            counts = Counter(describe(run.record.get(key)) for run in row.runs)
            for text, count in counts.items():
                part = row.letter if len(counts) == 1 else f"{count} of {len(row.runs)} in {row.letter}"
                found.setdefault(text, []).append(part)
        if len(found) == 1 and "not recorded" not in found:
            sentences.append(f"{title}: {next(iter(found))}.")
        elif len(found) > 1:
            parts = "; ".join(f"{text} ({', '.join(letters)})" for text, letters in found.items())
            warning = " Do not compare their seconds." if key == "hardware" else ""
            sentences.append(f"{title}, not the same for all runs (rows in brackets): {parts}.{warning}")
    return sentences


def when(runs: Iterable[Run]) -> str:
    """Returns the days of the first start and the last end, as recorded, empty if none is."""
    days = sorted(str(run.record[key])[:10] for run in runs for key in ("started", "ended") if run.record.get(key))
    if not days:
        return ""
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def _options(run: Run) -> dict[str, Any]:
    hparams = run.record.get("hparams") or {}
    options = {k: v for k, v in hparams.items() if k not in (*_FROM_THE_DATA, "seed") and not k.startswith("_")}
    config = flat_options(read_config(run.folder) or {})
    options |= {k.replace("init_args.", ""): v for k, v in config.items() if k.startswith("data.init_args.")}
    options |= {"max_steps": run.max_steps, "precision": run.record.get("precision")}
    return {key: value for key, value in options.items() if value is not None and key != "data.root"}


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


def _quoted(path: str) -> str:
    return (
        path
        if not any(character in path for character in " '\"$&;()<>|*?\\")
        else "'" + path.replace("'", "'\\''") + "'"
    )


def _versions(record: Any) -> str:
    if not isinstance(record, dict) or not record:
        return "not recorded"
    return ", ".join(f"{name} {version}" for name, version in record.items())


def _hardware(record: Any) -> str:
    if not isinstance(record, dict) or not record:
        return "not recorded"
    gpu = f"{record['gpu']}, " if record.get("gpu") else "no GPU, "
    cores, threads = record.get("cores"), record.get("threads")
    return f"{record.get('cpu') or 'unknown CPU'}, {gpu}{cores} cores, {threads} thread{'s' * (threads != 1)}"
