"""Reads `config.yaml` of run folders: what the command line was told."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lws_lightning.options import NEUTRAL_DATA_OPTIONS

__all__ = ["data_options", "flat_options", "read_config"]

_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where libyaml is there
# Seed and tasks are known from the record.
_NEUTRAL = NEUTRAL_DATA_OPTIONS | {"seed", "tasks"}


def read_config(folder: Path) -> Mapping[str, Any] | None:
    """Reads the configuration of a run.

    Args:
        folder: The run folder.

    Returns:
        The content of `config.yaml`, None if there is none or it cannot be read (runs that Python started).
    """
    try:
        content = yaml.load((folder / "config.yaml").read_text(encoding="utf-8"), _LOADER)
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return content if isinstance(content, dict) else None


def data_options(folder: Path) -> dict[str, Any] | None:
    """Returns the options of a run's data that matter for its result and were chosen, None if they are not recorded."""
    data = (read_config(folder) or {}).get("data")
    if not isinstance(data, dict) or not isinstance(data.get("init_args", {}), dict):
        return None
    options = data.get("init_args", {})
    return {name: value for name, value in options.items() if name not in _NEUTRAL and value is not None}


def flat_options(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested options as `{"data.init_args.batch_size": 16, ...}`, without those that are None."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= flat_options(value, f"{prefix}{name}.")
        elif value is not None:
            flat[f"{prefix}{name}"] = value
    return flat
