"""Collects the wrongly classified images of a test whose wrong class is the most probable."""

from collections.abc import Sequence

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn import functional as F

from lws_lightning.drawing import WrongImage
from lws_lightning.methods import DataRecord

__all__ = ["MAX_TASKS", "WrongImages"]

MAX_TASKS = 20
_IMAGES = 8  # of each task
_MAX_SIDE = 96  # pixels; larger images are shrunk


class WrongImages:
    """The worst images of the first 20 tasks, 8 each, on the device of the test; collecting them never waits for it.

    Args:
        tasks: T.
        image_shape: `(C, H, W)`.
        record: How images were normalised.
        device: That of the batches.
    """

    def __init__(self, tasks: int, image_shape: Sequence[int], record: DataRecord, device: torch.device) -> None:
        channels, height, width = image_shape
        shrink = min(1.0, _MAX_SIDE / max(height, width))
        self._size = max(1, round(shrink * height)), max(1, round(shrink * width))
        self._normalization = record.normalization(channels)
        shown = min(tasks, MAX_TASKS)
        self._scores = torch.full((shown, _IMAGES), -1.0, device=device)
        self._classes = torch.zeros(shown, _IMAGES, 2, dtype=torch.int64, device=device)
        self._images = torch.zeros(shown, _IMAGES, channels, *self._size, dtype=torch.uint8, device=device)

    def add(self, task: int, images: Tensor, labels: Tensor, logits: Tensor) -> None:
        """Adds a batch of one task.

        Args:
            task: Its index.
            images: `(N, C, H, W)`, as the network got them.
            labels: `(N,)` int64.
            logits: `(N, classes)`.
        """
        if task >= len(self._scores):
            return
        probability, predicted = logits.float().softmax(-1).max(-1)
        scores, places = torch.where(predicted == labels, -1.0, probability).topk(min(_IMAGES, len(labels)))
        classes = torch.stack([labels, predicted], 1)[places]
        scores = torch.cat([self._scores[task], scores])
        classes = torch.cat([self._classes[task], classes])
        small = torch.cat([self._images[task], self._small(images[places])])
        self._scores[task], best = scores.topk(_IMAGES)
        self._classes[task], self._images[task] = classes[best], small[best]

    def gather(self, module: LightningModule) -> None:
        """Exchanges the images with the other processes; afterwards all of them have the worst of all."""
        if module.trainer.world_size == 1:
            return
        scores, classes, images = (_of_all(module, each) for each in (self._scores, self._classes, self._images))
        self._scores, best = scores.topk(_IMAGES)
        tasks = torch.arange(len(best), device=best.device)[:, None]
        self._classes, self._images = classes[tasks, best], images[tasks, best]

    def found(self, class_names: Sequence[Sequence[str] | None]) -> list[list[WrongImage]]:
        """Returns each task's images, the most probable wrong class first.

        Args:
            class_names: Of each task; None: classes are called by their numbers.
        """
        scores, classes = self._scores.tolist(), self._classes.tolist()
        images = self._images.permute(0, 1, 3, 4, 2).cpu().numpy()
        return [
            [
                WrongImage(image, _name(names, true), _name(names, predicted), score)
                for image, (true, predicted), score in zip(images[task], classes[task], scores[task], strict=True)
                if score >= 0
            ]
            for task, names in enumerate(class_names[: len(scores)])
        ]

    def _small(self, images: Tensor) -> Tensor:
        """Returns images as bytes of the size shown, without their normalisation."""
        if images.dtype != torch.uint8:
            images = images.float()
            if self._normalization is not None:
                mean, std = (
                    torch.tensor(values, device=images.device).view(-1, 1, 1) for values in self._normalization
                )
                images = images * std + mean
            images = images * 255
        if tuple(images.shape[2:]) != self._size:
            images = F.interpolate(images.float(), self._size, mode="bilinear", antialias=True)
        return images.float().round().clamp(0, 255).to(torch.uint8)


def _name(names: Sequence[str] | None, number: int) -> str:
    return str(number) if names is None else names[number]


def _of_all(module: LightningModule, values: Tensor) -> Tensor:
    """Returns `(T, W * n, ...)` from each process's `(T, n, ...)`."""
    gathered = module.all_gather(values)
    assert isinstance(gathered, Tensor)
    return gathered.transpose(0, 1).flatten(1, 2)
