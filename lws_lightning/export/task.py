"""Writes the model file of one task and verifies it."""

import copy
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lws_lightning.export.formats import FORMATS
from lws_lightning.export.network import task_network
from lws_lightning.export.source import network_source
from lws_lightning.methods import MultiTaskMethod

__all__ = ["ExportError", "Exported", "export_task"]

# Relative to the largest logit: reordering float32 sums changes far less, wrong weights far more.
_TOLERANCE = 1e-4
_ABSOLUTE_TOLERANCE = 1e-6  # for logits near zero, as of an untrained network
_BATCHES = (2, 5, 1)


class ExportError(RuntimeError):
    """The written file does not compute the same as the checkpoint's network; it has been removed."""


@dataclass(frozen=True)
class Exported:
    """The written file.

    Attributes:
        path: The file.
        task: Name of the task.
        parameters: Number of the network's parameters.
        difference: The largest difference between its logits and those of the checkpoint's network, on random images.
        has_code: Whether the metadata contain code (`code`) that builds the network using `torch.nn`.
    """

    path: Path
    task: str
    parameters: int
    difference: float
    has_code: bool


def export_task(
    method: MultiTaskMethod, task: int | str, format: str, path: str | Path, checkpoint: str | Path | None = None
) -> Exported:
    """Writes a task's own network to a file (see `task_network`).

    The file is written under a temporary name, read back, and compared with the method's predictions on random images,
    in batches of different sizes. Then it is moved to `path`.

    Args:
        method: A trained method.
        task: Its index or name.
        format: One of `FORMATS`.
        path: The file. Its folder is created.
        checkpoint: The source to name in the metadata.

    Raises:
        ValueError: If there is no such task or format.
        MissingPackageError: If the format needs a package that is not installed.
        NotImplementedError: If the method's predictions need more than one network.
        ExportError: If the network cannot be written in this format, or the file gives different predictions.
    """
    if format not in FORMATS:
        raise ValueError(f"There is no format {format!r}; there are: {', '.join(FORMATS)}.")
    file_format = FORMATS[format]
    file_format.require_packages(format)
    index = method.task_index(task)
    name = method.task_names[index]
    network = task_network(method, index)
    batches = [_random_images(size, method.image_shape) for size in _BATCHES]
    expected = _reference_logits(method, index, batches)
    _compare("The exported network", name, [network(images).detach() for images in batches], expected)
    code = network_source(network, batches[0])
    metadata = {**_metadata(method, index, network, checkpoint), "code": code}
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        written = Path(folder) / f"network{file_format.suffix}"
        try:
            file_format.write(network, metadata, batches[0], written)
        except Exception as error:  # torch.export and onnx raise many kinds of errors
            raise ExportError(
                f"The network of task {name!r} cannot be written as {format}: {type(error).__name__}: {error}"
            ) from error
        predict, read_metadata = file_format.read(written, network)
        with torch.no_grad():
            actual = [predict(images) for images in batches]
        difference = _compare("The file", name, actual, expected)
        if read_metadata != metadata:
            raise ExportError(f"The metadata of task {name!r} cannot be read back from the {format} file.")
        written.chmod(0o666 & ~_umask())  # safetensors makes files readable for their owner only
        os.replace(written, target)  # noqa: PTH105 (Path.replace is the same)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return Exported(target, name, parameters, difference, code is not None)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _random_images(size: int, image_shape: Sequence[int]) -> Tensor:
    return torch.rand(size, *image_shape, generator=torch.Generator().manual_seed(size))


@torch.no_grad()
def _reference_logits(method: MultiTaskMethod, task: int, batches: Sequence[Tensor]) -> list[Tensor]:
    """Computes logits of images in [0, 1] with the method's own networks.

    In float32 on the CPU, as with the file: the rounding of half precision or a GPU exceeds the tolerance by far.
    """
    networks, assignment = method.inference_network(task)
    networks = copy.deepcopy(networks).cpu().float()
    with networks.evaluating():
        inputs = [method.data_record.normalized(images) for images in batches]
        return [networks.forward_task(images, assignment, task) for images in inputs]


def _compare(subject: str, task: str, actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Returns the largest difference between logits; raises ExportError if it is more than rounding."""
    largest = 0.0
    for one, other in zip(actual, expected, strict=True):
        if one.shape != other.shape:
            raise ExportError(f"{subject} of task {task!r} gives {tuple(one.shape)} instead of {tuple(other.shape)}.")
        difference = float((one - other).abs().max())
        if not difference <= _TOLERANCE * float(other.abs().max()) + _ABSOLUTE_TOLERANCE:
            raise ExportError(
                f"{subject} of task {task!r} gives different logits from the checkpoint's network: they differ by "
                f"{difference:g}. Nothing was written."
            )
        largest = max(largest, difference)
    return largest


def _metadata(
    method: MultiTaskMethod, task: int, network: torch.nn.Sequential, checkpoint: str | Path | None
) -> dict[str, Any]:
    from lws_lightning import __version__

    record = method.data_record
    return {
        "task": method.task_names[task],
        "class_names": record.class_names[task],
        "num_classes": method.num_classes[task],
        "input": {
            "shape": ["N", *method.image_shape],
            "dtype": "float32",
            "range": [0.0, 1.0],
            "normalization_included": "normalize" in dict(network.named_children()),
        },
        "output": "logits (N, num_classes); their softmax are the probabilities",
        "preprocessing": record.preprocessing,
        "method": type(method).__name__,
        "network": method.network_name,
        "package": "lws-lightning",
        "package_version": __version__,
        "torch_version": str(torch.__version__),
        "checkpoint": None if checkpoint is None else str(checkpoint),
    }
