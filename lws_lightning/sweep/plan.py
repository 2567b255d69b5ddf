"""The runs of a sweep, and their folders."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

from lws_lightning.records import TRAINER_OPTIONS, changed_options, options_to_json, write_atomically

__all__ = ["CONFIG_FILE", "SweepRun", "parse_seeds", "plan_runs", "save_config"]

CONFIG_FILE = "run.yaml"
"""The complete options of a run, in its folder."""


@dataclass(frozen=True)
class SweepRun:
    """One configuration with one seed.

    Attributes:
        name: Name of the configuration, `folder/file` without extension, and `+file` for each overlay.
        seed: For `seed_everything`.
        folder: The run folder.
        config: All options, as `lws fit --config` reads them.
    """

    name: str
    seed: int
    folder: Path
    config: Mapping[str, Any]

    @property
    def max_steps(self) -> int | None:
        """Limit of training steps, None without one."""
        steps = self.config["trainer"].get("max_steps")
        return steps if steps is not None and steps >= 0 else None

    def __str__(self) -> str:
        return f"{self.name} seed {self.seed}"


def parse_seeds(text: str) -> list[int]:
    """Parses numbers and ranges separated by commas, such as `0-9` or `0,2,5-7`, and removes duplicates.

    Raises:
        ValueError: If the text has another form.
    """
    seeds: list[int] = []
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        try:
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            numbers = range(0)
        if not numbers:
            raise ValueError(f"--seeds {text!r}: {item!r} is neither a number nor a range such as 0-9.")
        seeds += numbers
    return list(dict.fromkeys(seeds))


def plan_runs(
    configs: Mapping[Path, Mapping[str, Any]] | Mapping[tuple[Path, ...], Mapping[str, Any]],
    seeds: Sequence[int],
    out: Path,
    overlays: Sequence[Path] = (),
) -> list[SweepRun]:
    """Lists the runs of a sweep, seed by seed, so that every configuration gets its first result early.

    Args:
        configs: The complete options of each configuration file, with those of the overlays. A file with overlays of
            its own is a tuple that begins with it.
        seeds: The seeds.
        out: Folder of the sweep.
        overlays: Files whose options replace those of each configuration.

    Returns:
        The runs; each has the folder `out/<name>/seed<seed>`.

    Raises:
        ValueError: If two configurations have the same name, an option conflicts with the sweep, or a folder holds a
            run with different options.
    """
    named: dict[str, Mapping[str, Any]] = {}
    for files, config in configs.items():
        path, *own = files if isinstance(files, tuple) else (files,)
        name = "+".join([f"{path.resolve().parent.name}/{path.stem}", *(overlay.stem for overlay in (*own, *overlays))])
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
    """Writes a run's options to its folder."""
    write_atomically(run.folder / CONFIG_FILE, yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True))


def _check(path: Path, config: Mapping[str, Any]) -> None:
    if not (config.get("model") and config.get("data")):
        raise ValueError(
            f"{path} does not say which model and data. A file that changes options of another is given after it: "
            f"lws sweep CONFIG... --config {path} for all, lws sweep CONFIG+{path} for one"
        )
    trainer = config["trainer"]
    for section in ("model", "data"):
        if (config[section].get("init_args") or {}).get("seed") is not None:
            raise ValueError(f"{path}: {section}.seed is fixed, so all seeds of the sweep would give the same run.")
    if trainer.get("logger"):
        raise ValueError(
            f"{path}: trainer.logger is set, but a sweep gives every run a TensorBoardLogger in the run's own folder. "
            "Leave the option out."
        )
    if trainer.get("enable_checkpointing") is False:
        raise ValueError(
            f"{path}: trainer.enable_checkpointing false leaves no checkpoint that a sweep could resume from, or test."
        )
    if trainer.get("fast_dev_run"):
        raise ValueError(f"{path}: trainer.fast_dev_run leaves no results that a sweep could collect.")
    if trainer.get("devices") not in (None, "auto", 1, "1", [0]) or trainer.get("num_nodes") not in (None, 1):
        raise ValueError(
            f"{path}: trainer.devices and trainer.num_nodes ask for more than one process, but a sweep trains each run "
            "in one. Leave them out, or start such runs one by one (docs/distributed.md)."
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
    if config["trainer"].get("devices") == "auto":  # would be all GPUs of the machine
        changed["devices"] = 1
    if callbacks := config["trainer"].get("callbacks"):
        callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
        changed["callbacks"] = [_with_own_dirpath(callback, Path(name) / f"seed{seed}") for callback in callbacks]
    trainer = {**config["trainer"], **changed, "logger": logger}
    return {**config, "seed_everything": seed, "trainer": trainer}


def _with_own_dirpath(callback: Any, run: Path) -> Any:
    """Appends the run to the `dirpath` of a checkpoint callback, if it has one."""
    options = callback.get("init_args") or {}
    if not options.get("dirpath"):
        return callback
    return {**callback, "init_args": {**options, "dirpath": os.fspath(Path(options["dirpath"]) / run)}}


def _refuse_other_options(run: SweepRun) -> None:
    path = run.folder / CONFIG_FILE
    if not path.is_file():
        return
    recorded = _identity(yaml.safe_load(path.read_text(encoding="utf-8")))
    for option, (old, new) in changed_options(recorded, _identity(run.config)).items():
        raise ValueError(
            f"{run.folder} holds a run with {option} {old}, not {new}. Choose another --out, or delete that folder."
        )


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a configuration that a result depends on."""
    identity = {f"trainer.{name}": config["trainer"].get(name) for name in TRAINER_OPTIONS}
    for section in ("model", "data"):
        class_path, options = config[section]["class_path"], config[section].get("init_args") or {}
        neutral = resolve_name(class_path).neutral_options
        identity |= {f"{section}.{name}": value for name, value in options_to_json(options, without=neutral).items()}
        identity[f"{section}.class_path"] = class_path
    return identity
