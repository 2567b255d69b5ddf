"""Images of random patterns, one a class, under noise: something to learn, without files."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lws_lightning.data import Examples, MultiTaskDataModule, TaskData

__all__ = ["PatternTasks"]


class PatternTasks(MultiTaskDataModule):
    """T tasks of grey images. Every class is a pattern; a task's images are its patterns under noise.

    Args:
        num_classes: Of each task.
        size: Height and width.
        train_images: Of each task.
        test_images: Of each task.
        **options: Those of `MultiTaskDataModule`.
    """

    class_counts: Mapping[str, int] = {}

    def __init__(
        self,
        num_classes: Sequence[int] = (10, 26, 10),
        size: int = 28,
        train_images: int = 500,
        test_images: int = 52,
        **options: Any,
    ) -> None:
        self.class_counts = {f"task{number}": classes for number, classes in enumerate(num_classes)}
        self.image_size = (1, size, size)
        self._train_images, self._test_images = train_images, test_images
        super().__init__(**options)

    def load_tasks(self) -> list[TaskData]:
        """Makes the images."""
        return [self._task(number, name) for number, name in enumerate(self.class_counts)]

    def _task(self, number: int, name: str) -> TaskData:
        generator = torch.Generator().manual_seed(number)
        classes, (_, height, width) = self.class_counts[name], self.image_size
        patterns = torch.rand(classes, 1, height, width, generator=generator) * 128
        parts = []
        for size in (self._train_images, self._test_images):
            labels = torch.arange(size) % classes
            noise = torch.rand(size, 1, height, width, generator=generator) * 384 - 192
            parts.append(Examples((patterns[labels] + noise + 64).clamp(0, 255).to(torch.uint8), labels))
        return TaskData(name, *parts)
