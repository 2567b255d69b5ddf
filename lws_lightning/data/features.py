"""Features of the training images: the outputs of a network's frozen first layers, computed once for each image."""

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from lws_lightning.batches import FeatureBatch, FrozenPrefix, StepBatch
from lws_lightning.data.image_reading import usable_memory
from lws_lightning.data.sampler import Augment
from lws_lightning.data.streaming import StreamedImages, read_images
from lws_lightning.data.tasks import Examples

__all__ = ["reason_against_features", "training_features"]

_CHUNK = 64  # images computed at once
_SHARE_OF_MEMORY = 2


def reason_against_features(
    augment: Augment | None,
    views: int | None,
    prepare: Callable[[StepBatch], Any],
    image_shape: Sequence[int],
    layers: int,
) -> str | None:
    """Returns why features cannot take the place of a DataModule's training images, as a sentence; None if they can.

    Args:
        augment: The augmentation of training images.
        views: How many views of each image it makes; None: another one at every turn.
        prepare: The DataModule's hook `on_after_batch_transfer`, which must leave features as they are.
        image_shape: `(C, H, W)`.
        layers: The number of frozen layers.
    """
    if augment is not None and views is None:
        return (
            "augmentation makes other images at every step, so the frozen layers of the network run in every step. Set "
            "data.augmentation_views, for example 4, so that each image has that many augmented views, which are "
            "computed once."
        )
    probe = FeatureBatch(torch.rand(1, 1, *image_shape), torch.zeros(1, 1, dtype=torch.int64), layers)
    if not all(torch.equal(batch.images, probe.images) for batch in prepare(StepBatch(probe, probe))):
        return (
            "its on_after_batch_transfer changes a FeatureBatch, so the frozen layers run in every step. "
            "Let it return batches whose layer is not 0 as they are."
        )
    return None


def training_features(
    tasks: Sequence[Examples], prefix: FrozenPrefix, dataset: str, augment: Augment | None, views: int, variant: str
) -> list[Tensor] | None:
    """Returns the features of each task's images and, after them, of their augmented views.

    They are kept in memory, or in a file in the folder `prefix.cache` that is mapped into memory. A file is found again
    by the digests of images and weights, and is written under another name first, so that a file that is there is
    complete. If it cannot be written, the features are kept in memory, with a warning.

    Args:
        tasks: The training examples of each task.
        prefix: The frozen layers.
        dataset: Name of the data set, for messages.
        augment: Augments images; called with the number of the view in place of the step, and with the index of the
            first image as its position.
        views: V, the number of augmented views of each image.
        variant: The options that views depend on.

    Returns:
        For each task `(N_t * (1 + V), ...)`; None, with a warning, if they do not fit into memory.
    """
    rows = [len(task.labels) * (1 + views) for task in tasks]
    example = prefix.compute(read_images(tasks[0].images, torch.zeros(1, dtype=torch.int64)))
    shape = (sum(rows), *example.shape[1:])
    size = torch.Size(shape).numel() * example.dtype.itemsize
    features = None
    if prefix.cache != "memory":
        key = _key(tasks, prefix.digest, variant, shape, example.dtype)
        path = Path(prefix.cache).expanduser() / f"features-{key}.bin"
        try:
            if not path.is_file() or path.stat().st_size != size:
                _write(path, _compute(tasks, prefix, dataset, augment, views))
            features = torch.from_file(
                str(path), shared=False, size=size // example.dtype.itemsize, dtype=example.dtype
            )
        except (OSError, RuntimeError) as error:
            rank_zero_warn(
                f"{dataset}: the features of the images cannot be kept in {prefix.cache} ({error}), so they are kept "
                "in memory and computed again by the next run. Set model.feature_cache to another folder."
            )
    if features is None:
        free = usable_memory()
        if free is not None and size > free // _SHARE_OF_MEMORY:
            rank_zero_warn(
                f"{dataset}: the features of all images would take {size / 1e9:.1f} GB of memory, and {free / 1e9:.1f} "
                "GB are free, so the frozen layers run in every step. Freeze more layers, or set model.feature_cache "
                "to a folder."
            )
            return None
        features = torch.empty(shape, dtype=example.dtype)
        start = 0
        for chunk in _compute(tasks, prefix, dataset, augment, views):
            features[start : start + len(chunk)] = chunk
            start += len(chunk)
    return list(torch.split(features.view(shape), rows))


def _compute(
    tasks: Sequence[Examples], prefix: FrozenPrefix, dataset: str, augment: Augment | None, views: int
) -> Iterator[Tensor]:
    """Yields the features in their order, with a progress bar."""
    total = sum(len(task.labels) for task in tasks) * (1 + views)
    rank_zero_info(f"{dataset}: computing the outputs of {prefix.layers} frozen layers for {total:,} images.")
    with tqdm(total=total, desc="features", unit="image", disable=None) as progress:
        for number, task in enumerate(tasks):
            for view in range(-1, views):
                for start in range(0, len(task.labels), _CHUNK):
                    index = torch.arange(start, min(start + _CHUNK, len(task.labels)))
                    images = read_images(task.images, index)
                    if view >= 0:
                        assert augment is not None
                        images = augment(images, view, number, start)
                    yield prefix.compute(images)
                    progress.update(len(index))


def _key(tasks: Sequence[Examples], digest: str, variant: str, shape: Sequence[int], dtype: torch.dtype) -> str:
    """Returns a hash of everything that the features depend on, including every image."""
    hashed = blake2b(repr((digest, variant, tuple(shape), str(dtype))).encode(), digest_size=16)
    for task in tasks:
        if isinstance(task.images, StreamedImages):
            hashed.update(repr(getattr(task.images.decode, "variant", None)).encode())
            for file in task.images.files:
                status = Path(file).stat()
                line = f"{Path(file).resolve()}\0{status.st_size}\0{status.st_mtime_ns}\n"
                hashed.update(line.encode(errors="surrogateescape"))
        else:
            hashed.update(task.images.contiguous().numpy().data)
    return hashed.hexdigest()


def _write(path: Path, chunks: Iterator[Tensor]) -> None:
    # With `write`: on a full disk, writing to a mapped file would kill the process instead of raising an error.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("wb") as file:
            for chunk in chunks:
                file.write(chunk.contiguous().view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
