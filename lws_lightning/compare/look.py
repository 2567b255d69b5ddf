"""Looks at the data of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from torch import Tensor

from lws_lightning.data import MultiTaskDataModule

__all__ = ["Look", "look_at"]

_FEW = 20  # test images of a task
_GREY = 10  # of 255: JPEG files of grey pictures may have slight colours


@dataclass(frozen=True)
class Look:
    """What a DataModule holds.

    Attributes:
        data: Name of its class.
        task_names: Of the T tasks.
        num_classes: Of each task.
        image_shape: `(C, H, W)`.
        train: Training images of each task, without those held out.
        validation: Images held out of the training images of each task.
        test: Test images of each task.
        coloured: For each task, whether the images of a batch have colours.
        digest: Fingerprint of the images.
        batch_size: Images of each task in a step.
    """

    data: str
    task_names: list[str]
    num_classes: list[int]
    image_shape: list[int]
    train: list[int]
    validation: list[int]
    test: list[int]
    coloured: list[bool]
    digest: str
    batch_size: int

    @property
    def steps_per_pass(self) -> int:
        """Steps in which the largest task's images are seen once."""
        return -(-max(self.train) // self.batch_size)

    def sentence(self) -> str:
        """Returns the first line for the user."""
        sizes = "x".join(map(str, self.image_shape[1:]))
        kinds = "colour" if all(self.coloured) else "colour and grey" if any(self.coloured) else "grey"
        images = [sum(counts) for counts in zip(self.train, self.validation, self.test, strict=True)]
        fewest = min(self.test)
        few = (
            f" {self.task_names[self.test.index(fewest)]} has {fewest} of these, each of which is worth "
            f"{100 / fewest:.0f} points of its error: more images would tell more."
        )
        return (
            f"{len(self.task_names)} tasks, {_span(self.num_classes)} classes and "
            f"{_span(images)} images each ({kinds}, {sizes} pixels): {sum(self.train):,} to train, "
            f"{sum(self.validation):,} to choose by, {sum(self.test):,} to measure at the end."
        ) + (few if fewest < _FEW else "")


def look_at(data: Mapping[str, Any]) -> Look:
    """Reads the data.

    Args:
        data: Class and options of the DataModule, as resolved by `lws fit`.

    Raises:
        ValueError: If the data cannot be used; the message says why.
        FileNotFoundError: If they are not there.
    """
    module: MultiTaskDataModule = resolve_name(data["class_path"])(**(data.get("init_args") or {}))
    if len(module.task_names) < 2:
        raise ValueError(
            f"there is only one task, {module.task_names[0]!r}; a comparison of what tasks share needs at least two."
        )
    if module.validation == "none":
        raise ValueError("--data.validation none leaves nothing to choose by; use split (the default) or unused.")
    module.setup()
    images = next(iter(module.train_dataloader())).sgd.images
    empty = [name for name, count in zip(module.task_names, module.image_counts("test"), strict=True) if not count]
    if empty:
        raise ValueError(f"there are no test images in {', '.join(empty)}; a comparison measures every task.")
    return Look(
        module.dataset_name,
        module.task_names,
        module.num_classes,
        module.image_shape,
        module.image_counts("train"),
        module.image_counts("validation"),
        module.image_counts("test"),
        [_has_colours(of_task) for of_task in images],
        module.digest,
        module.batch_size,
    )


def _has_colours(images: Tensor) -> bool:
    """Returns whether images `(B, C, H, W)` have channels that differ."""
    return images.shape[1] == 3 and bool((images.amax(1).int() - images.amin(1).int()).max() > _GREY)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
