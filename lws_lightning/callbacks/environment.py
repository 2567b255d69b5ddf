"""The versions, hardware and data of a run."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import torch

from lws_lightning.records import Hardware

__all__ = ["data_digest", "hardware", "versions"]


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that a result depends on."""
    result = {"python": platform.python_version()}
    for package in ("torch", "lightning", "lws_lightning"):
        try:
            result[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            result[package] = "unknown"
    return result


def hardware(device: torch.device) -> Hardware:
    """Describes the machine; `device` is the one that the networks are on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = None
    if device.type == "cuda":
        gpu = torch.cuda.get_device_name(device)
    elif device.type != "cpu":
        gpu = device.type
    return Hardware(_cpu_name(), cores, torch.get_num_threads(), gpu)


def data_digest(data: Any) -> str | None:
    """Returns the fingerprint of a DataModule's images; None if it has none or they cannot be read."""
    try:
        return getattr(data, "digest", None)
    except (ValueError, OSError):  # a run that fails because of unreadable data is recorded, too
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
