"""A fingerprint of the images of a run."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import torch

from lws_lightning.data.streaming import read_images
from lws_lightning.data.tasks import Examples

__all__ = ["images_digest"]

_SAMPLED = 8  # images of a task and split; streamed images have to be decoded


def images_digest(splits: Iterable[Sequence[Examples]]) -> str:
    """Computes a fingerprint of images and labels.

    It covers all labels and a few evenly spaced images of each task, so that streamed images cost little and have the
    same fingerprint as in memory. A single changed image may go unnoticed, a different folder does not.

    Args:
        splits: For each split the examples of every task.

    Returns:
        16 hexadecimal digits.

    Raises:
        RuntimeError: A streamed image cannot be read; names the file.
    """
    digest = blake2b(digest_size=8)
    for split in splits:
        for images, labels in split:
            digest.update(repr(tuple(images.shape)).encode())
            digest.update(labels.numpy().tobytes())
            if len(images):
                index = torch.linspace(0, len(images) - 1, min(_SAMPLED, len(images)), dtype=torch.float64).long()
                digest.update(read_images(images, index).numpy().tobytes())
    return digest.hexdigest()
