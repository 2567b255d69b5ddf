"""Which images of a task are for training and which for validation."""

from typing import Literal

from torch import Tensor

from lws_lightning.data.streaming import Images
from lws_lightning.data.tasks import TaskData, stratified_subset
from lws_lightning.randomness import generator_for

__all__ = ["Validation", "split_training_images"]

Validation = Literal["none", "split", "unused"]
"""Where validation images come from: see `MultiTaskDataModule`."""


def split_training_images(
    task: TaskData, dataset: str, validation: Validation, fraction: float, largest: int | None, seed: int
) -> tuple[tuple[Images, Tensor], tuple[Images, Tensor]]:
    """Returns the training and the validation images and labels of a task; without validation the latter are empty.

    Args:
        task: The task.
        dataset: What messages call the data set.
        validation: As of `MultiTaskDataModule`, like the following.
        fraction: `validation_fraction`.
        largest: `validation_images`.
        seed: `split_seed`.

    Raises:
        ValueError: The validation images cannot be had from this task.
    """
    where = f"{dataset}, task {task.name!r}"
    images, labels = task.train_images, task.train_labels
    generator = generator_for(seed, "validation", task.name)
    if validation == "split":
        size = max(1, round(fraction * len(labels)))
        held_out, kept = stratified_subset(labels, size, generator)
        lost = sorted(set(labels.tolist()) - set(labels[kept].tolist()))
        if lost:
            raise ValueError(
                f"{where}: validation: split with validation_fraction {fraction} leaves no "
                f"training image in class {', '.join(map(str, lost))}; take a smaller fraction."
            )
        return (images[kept], labels[kept]), (images[held_out], labels[held_out])
    if validation == "unused":
        images, labels = task.unused_images, task.unused_labels
        if len(labels) == 0:
            raise ValueError(
                f"{where}: validation: unused needs training images that are not used, and there are none; "
                "take validation: split, or fewer training images."
            )
        size = min(len(labels), largest or len(labels))
        chosen, _ = stratified_subset(labels, size, generator)
        return (task.train_images, task.train_labels), (images[chosen], labels[chosen])
    return (images, labels), (images[:0], labels[:0])
