"""From a method to a model file of one task, proven equal before it is there."""

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
from lws_lightning.export.source import source_of
from lws_lightning.methods import MultiTaskMethod

__all__ = ["ExportError", "Exported", "export_task"]

_TOLERANCE = 1e-4  # of the largest logit; float32 sums in another order differ by far less, wrong weights by far more
_FLOOR = 1e-6  # where all logits are nearly zero, as of an untrained network
_BATCHES = (2, 5, 1)


class ExportError(RuntimeError):
    """The file that was written does not compute what the checkpoint's network does; it has been removed."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: The file.
        task: Name of the task.
        parameters: How many the network has.
        difference: The largest difference between its logits and the checkpoint's network's, on random images.
        rebuilds: Whether the metadata hold code (`code`) that builds the network out of `torch.nn`.
    """

    path: Path
    task: str
    parameters: int
    difference: float
    rebuilds: bool


def export_task(
    method: MultiTaskMethod, task: int | str, format: str, path: str | Path, checkpoint: str | Path | None = None
) -> Exported:
    """Writes a task's own network to a file (see `task_network`).

    The file is written under another name, read again, and compared with the method's own prediction on random images,
    in batches of several sizes. Then it takes the place of what was at `path`.

    Args:
        method: A trained method.
        task: Its index or name.
        format: One of `FORMATS`.
        path: The file. Its folder is made.
        checkpoint: What the metadata should name as the source.

    Raises:
        ValueError: If there is no such task or format.
        MissingPackageError: If the format needs a package that is not installed.
        NotImplementedError: If the method's predictions need more than one network.
        ExportError: If the network cannot be written in this format, or the file gives other predictions.
    """
    if format not in FORMATS:
        raise ValueError(f"There is no format {format!r}; there are: {', '.join(FORMATS)}.")
    chosen = FORMATS[format]
    chosen.require_packages(format)
    index = method.task_index(task)
    name = method.task_names[index]
    network = task_network(method, index)
    batches = [_random_images(size, method.image_shape) for size in _BATCHES]
    wanted = _own_predictions(method, index, batches)
    _compare("The plain network", name, [network(images).detach() for images in batches], wanted)
    metadata = _metadata(method, index, network, checkpoint)
    code = source_of(network, batches[0])
    metadata["code"] = code
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        written = Path(folder) / f"network{chosen.suffix}"
        try:
            chosen.write(network, metadata, batches[0], written)
        except Exception as error:  # torch.export and onnx have errors of their own, many of them
            raise ExportError(
                f"The network of task {name!r} cannot be written as {format}: {type(error).__name__}: {error}"
            ) from error
        predict, read = chosen.read(written, network)
        with torch.no_grad():
            found = [predict(images) for images in batches]
        difference = _compare("The file", name, found, wanted)
        if read != metadata:
            raise ExportError(f"The metadata of task {name!r} cannot be read again from the {format} file.")
        written.chmod(0o666 & ~_umask())  # safetensors' own files are for their owner alone
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
def _own_predictions(method: MultiTaskMethod, task: int, batches: Sequence[Tensor]) -> list[Tensor]:
    """Computes logits with the method's own networks, from images in [0, 1].

    In float32 on the CPU, as the file will: after a training in half precision or on a GPU the networks as they lie
    there round by far more than what is compared.
    """
    networks, assignment = method.inference_network(task)
    networks = copy.deepcopy(networks).cpu().float()
    with networks.evaluating():
        inputs = [method.data_record.normalized(images) for images in batches]
        return [networks.forward_task(images, assignment, task) for images in inputs]


def _compare(what: str, task: str, found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Returns the largest difference of logits; raises ExportError if it is more than rounding."""
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        if one.shape != other.shape:
            raise ExportError(f"{what} of task {task!r} gives {tuple(one.shape)} instead of {tuple(other.shape)}.")
        difference = float((one - other).abs().max())
        if not difference <= _TOLERANCE * float(other.abs().max()) + _FLOOR:
            raise ExportError(
                f"{what} of task {task!r} gives other logits than the checkpoint's network: they differ by "
                f"{difference:g}. Nothing was written."
            )
        worst = max(worst, difference)
    return worst


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
