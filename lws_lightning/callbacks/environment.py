"""On what a run ran, its data and its options, as plain values that JSON can hold."""

import importlib.metadata
import math
import os
import platform
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["data_digest", "hardware", "plain", "versions"]

_MAX_NUMBERS = 1000


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    for package in ("torch", "lightning", "lws_lightning"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "unknown"
    return found


def hardware(device: torch.device) -> dict[str, Any]:
    """Describes the machine.

    Args:
        device: Where the networks run.

    Returns:
        `cpu` (model name), `cores` (that this process may use), `threads` (of torch) and `gpu` (name, or None).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = None
    if device.type == "cuda":
        gpu = torch.cuda.get_device_name(device)
    elif device.type != "cpu":
        gpu = device.type
    return {"cpu": _cpu_name(), "cores": cores, "threads": torch.get_num_threads(), "gpu": gpu}


def data_digest(data: Any) -> str | None:
    """Returns the fingerprint of a DataModule's images; None without one, or if they cannot be read."""
    try:
        return getattr(data, "digest", None)
    except (ValueError, OSError):  # which is why a start fails that is to be recorded
        return None


def plain(value: Any) -> Any:
    """Turns a value into what JSON can hold.

    Numbers that are not finite become `"nan"`, `"inf"` or `"-inf"`, which `float` reads; functions and classes
    become their import path; what has no plain form becomes its `repr`, cut at 200 characters.
    """
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        count = value.numel() if isinstance(value, torch.Tensor) else value.size
        return plain(value.tolist()) if count <= _MAX_NUMBERS else f"{type(value).__name__} {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Collection) and not isinstance(value, bytes):
        return [plain(item) for item in value]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)[:200]


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
