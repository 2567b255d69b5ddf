"""Which runs a sweep consists of, and where each of them lives."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

from lws_lightning.records import TRAINER_OPTIONS, changed_options, plain_options, write_atomically

__all__ = ["CONFIG_FILE", "SweepRun", "parse_seeds", "plan_runs", "save_config"]

CONFIG_FILE = "run.yaml"
"""The complete options of a run of a sweep, in its folder."""


@dataclass(frozen=True)
class SweepRun:
    """One configuration with one seed.

    Attributes:
        name: Of the configuration, `folder/file` without its ending, and `+file` for each overlay.
        seed: For `seed_everything`.
        folder: Of the run.
        config: All options, as `lws fit --config` reads them.
    """

    name: str
    seed: int
    folder: Path
    config: Mapping[str, Any]

    @property
    def max_steps(self) -> int | None:
        """Training steps that are wanted, None without a limit."""
        steps = self.config["trainer"].get("max_steps")
        return steps if steps is not None and steps >= 0 else None

    def __str__(self) -> str:
        return f"{self.name} seed {self.seed}"


def parse_seeds(text: str) -> list[int]:
    """Reads a list of seeds.

    Args:
        text: Numbers and ranges, separated by commas: `0-9` or `0,2,5-7`.

    Returns:
        The seeds in the order given, each once.

    Raises:
        ValueError: If it cannot be read.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            seeds += range(int(first), int(last if dash else first) + 1)
            empty = dash and int(last) < int(first)
        except ValueError:
            empty = True
        if empty:
            raise ValueError(f"--seeds {text!r}: {part!r} is neither a number nor a range such as 0-9.")
    return list(dict.fromkeys(seeds))


def plan_runs(
    configs: Mapping[Path, Mapping[str, Any]], seeds: Sequence[int], out: Path, overlays: Sequence[Path] = ()
) -> list[SweepRun]:
    """Lists the runs of a sweep, seed by seed, so that every configuration gets its first result early.

    Args:
        configs: The complete options of each configuration file, with those of the overlays.
        seeds: The seeds.
        out: Folder of the sweep.
        overlays: Files whose options replace those of each configuration.

    Returns:
        The runs; each has the folder `out/<name>/seed<seed>`.

    Raises:
        ValueError: If two configurations have the same name, an option contradicts the sweep, or a folder holds a run
            of other options.
    """
    named: dict[str, Mapping[str, Any]] = {}
    for path, config in configs.items():
        name = "+".join([f"{path.resolve().parent.name}/{path.stem}", *(overlay.stem for overlay in overlays)])
        if name in named:
            raise ValueError(f"Two configurations are called {name}: give them in two sweeps, or rename a file.")
        _check(path, config)
        named[name] = config
    runs = []
    for seed in seeds:
        for name, config in named.items():
            folder = out / name / f"seed{seed}"
            runs.append(SweepRun(name, seed, folder, _config_of_run(name, config, seed, folder)))
    for run in runs:
        _refuse_other_options(run)
    return runs


def save_config(run: SweepRun) -> None:
    """Writes a run's options into its folder."""
    write_atomically(run.folder / CONFIG_FILE, yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True))


def _check(path: Path, config: Mapping[str, Any]) -> None:
    if not (config.get("model") and config.get("data")):
        raise ValueError(
            f"{path} does not say which model and data. A file that changes options of another is given after it: "
            f"lws sweep CONFIG... --config {path}"
        )
    trainer = config["trainer"]
    for section in ("model", "data"):
        if (config[section].get("init_args") or {}).get("seed") is not None:
            raise ValueError(f"{path}: {section}.seed is fixed, so that all seeds of the sweep would be the same run.")
    if trainer.get("logger"):
        raise ValueError(
            f"{path}: trainer.logger is set, but a sweep gives every run a TensorBoardLogger in the run's own folder. "
            "Leave the option out."
        )
    if trainer.get("enable_checkpointing") is False:
        raise ValueError(
            f"{path}: trainer.enable_checkpointing false leaves no checkpoint that a sweep could go on from, or test."
        )
    if trainer.get("fast_dev_run"):
        raise ValueError(f"{path}: trainer.fast_dev_run leaves nothing behind that a sweep could collect.")
    if trainer.get("devices") not in (None, "auto", 1, "1", [0]) or trainer.get("num_nodes") not in (None, 1):
        raise ValueError(
            f"{path}: trainer.devices and trainer.num_nodes ask for several processes, but a sweep trains each run in "
            "one. Leave them out, or start such runs one by one (docs/distributed.md)."
        )


def _config_of_run(name: str, config: Mapping[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    logger = {
        "class_path": "TensorBoardLogger",
        "init_args": {"save_dir": os.fspath(folder.parent), "name": folder.name, "version": ""},
    }
    changed: dict[str, Any] = {
        "default_root_dir": os.fspath(folder),
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    if config["trainer"].get("devices") == "auto":  # all GPUs of the machine, each with a batch of its own
        changed["devices"] = 1
    if callbacks := config["trainer"].get("callbacks"):
        changed["callbacks"] = [_own_dirpath(each, Path(name) / f"seed{seed}") for each in _as_list(callbacks)]
    trainer = {**config["trainer"], **changed, "logger": logger}
    return {**config, "seed_everything": seed, "trainer": trainer}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _own_dirpath(callback: Any, run: Path) -> Any:
    """Gives the checkpoints of a callback with a `dirpath` a folder of the run's own in it."""
    options = callback.get("init_args") or {}
    if not options.get("dirpath"):
        return callback
    return {**callback, "init_args": {**options, "dirpath": os.fspath(Path(options["dirpath"]) / run)}}


def _refuse_other_options(run: SweepRun) -> None:
    path = run.folder / CONFIG_FILE
    if not path.is_file():
        return
    before = _identity(yaml.safe_load(path.read_text(encoding="utf-8")))
    for option, (old, new) in changed_options(before, _identity(run.config)).items():
        raise ValueError(
            f"{run.folder} holds a run with {option} {old}, not {new}. Choose another --out, or delete that folder."
        )


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a configuration that a result depends on."""
    found = {f"trainer.{name}": config["trainer"].get(name) for name in TRAINER_OPTIONS}
    for section in ("model", "data"):
        class_path, options = config[section]["class_path"], config[section].get("init_args") or {}
        neutral = resolve_name(class_path).neutral_options
        found |= {f"{section}.{name}": value for name, value in plain_options(options, without=neutral).items()}
        found[f"{section}.class_path"] = class_path
    return found
