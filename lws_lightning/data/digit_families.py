"""Tasks in families whose right sharing is known, from scikit-learn's digits: for the demo and for benchmarks."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lws_lightning.data.base import MultiTaskDataModule
from lws_lightning.data.checks import require_at_least
from lws_lightning.data.digits import load_digit_images
from lws_lightning.data.tasks import Examples, TaskData
from lws_lightning.randomness import generator_for

__all__ = ["DigitFamilies"]


class DigitFamilies(MultiTaskDataModule):
    """Tasks that name the digit, in families: each family sees the pixels in an order of its own.

    Within a family, tasks have the same order of pixels and different images, so one network would do for all of them.
    The first layer of another family is of no use, because every pixel means something else. The right partition of the
    tasks at the first layer is therefore known: the families.

    The source is that of `Digits`, 1,797 images, which `tasks_per_family` tasks divide among them; every family has the
    same images. Images and orders of pixels are drawn by `split_seed`.

    Args:
        families: How many families.
        tasks_per_family: How many tasks in each.
        train_images_per_task: The first of a task's images are for training, the others for testing.
        noise: Share of each task's training labels that are replaced by labels drawn at random.
        **options: Those of `MultiTaskDataModule`; `root` is not used.

    Attributes:
        families: The family of each task of the data set.

    Raises:
        ImportError: In `setup`, if scikit-learn is not installed.
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        families: int = 3,
        tasks_per_family: int = 2,
        train_images_per_task: int = 300,
        noise: float = 0.0,
        **options: Any,
    ) -> None:
        for name, value in (("families", families), ("tasks_per_family", tasks_per_family)):
            require_at_least(type(self).__name__, name, value, 1)
        self.class_counts: Mapping[str, int] = {
            f"family{family}_task{number}": 10 for family in range(families) for number in range(tasks_per_family)
        }
        self.image_size = (1, 8, 8)
        self.families = [family for family in range(families) for _ in range(tasks_per_family)]
        super().__init__(**options)
        require_at_least(self.dataset_name, "train_images_per_task", train_images_per_task, 1)
        if not 0 <= noise <= 1:
            raise ValueError(f"{self.dataset_name}: noise must lie between 0 and 1, got {noise}.")
        self.train_images_per_task, self.noise = train_images_per_task, noise

    def load_tasks(self) -> list[TaskData]:
        """Creates all tasks.

        Raises:
            ImportError: scikit-learn is not installed.
            ValueError: `train_images_per_task` leaves a task no test image.
        """
        images, digits = load_digit_images()
        images = images.view(-1, 1, 64)
        order = torch.randperm(len(digits), generator=generator_for(self.split_seed, "images"))
        parts = order.chunk(self.families.count(0))
        if self.train_images_per_task >= len(parts[-1]):
            raise ValueError(
                f"{self.dataset_name}: train_images_per_task must be less than the {len(parts[-1])} images of a task, "
                f"got {self.train_images_per_task}."
            )
        tasks = []
        for index, (name, family) in enumerate(zip(self.class_counts, self.families, strict=True)):
            permutation = torch.randperm(64, generator=generator_for(self.split_seed, "pixels", family))
            own = parts[index % len(parts)]
            pixels = images[own][:, :, permutation].view(-1, 1, 8, 8)
            labels = digits[own]
            train, test = slice(0, self.train_images_per_task), slice(self.train_images_per_task, None)
            noisy = self._with_noise(labels[train], index)
            tasks.append(TaskData(name, Examples(pixels[train], noisy), Examples(pixels[test], labels[test])))
        return tasks

    def _with_noise(self, labels: Tensor, task: int) -> Tensor:
        generator = generator_for(self.split_seed, "noise", task)
        drawn = torch.randint(0, 10, labels.shape, generator=generator)
        return torch.where(torch.rand(labels.shape, generator=generator) < self.noise, drawn, labels)
