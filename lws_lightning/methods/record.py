"""What a checkpoint stores about the data, so that its networks can be used without the data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lws_lightning.records import Record

__all__ = ["DataRecord"]

_BYTES = 255.0


@dataclass(frozen=True)
class DataRecord(Record):
    """Preprocessing of the images, and class names.

    Attributes:
        preprocessing: The DataModule's `preprocessing`; None if it has none.
        class_names: Class names of each task in order; None if there are none or they are unknown.
    """

    preprocessing: dict[str, Any] | None
    class_names: list[list[str] | None]

    @classmethod
    def of(cls, datamodule: Any, num_classes: Sequence[int]) -> "DataRecord":
        """Makes the record of a DataModule; empty if it declares nothing.

        Args:
            datamodule: Any LightningDataModule, or None.
            num_classes: Of each task. Class names of another number are left out.
        """
        preprocessing = getattr(datamodule, "preprocessing", None)
        if not isinstance(preprocessing, Mapping):
            preprocessing = None
        names = getattr(datamodule, "class_names", None)
        if not isinstance(names, Sequence) or len(names) != len(num_classes):
            names = [None] * len(num_classes)
        class_names = [
            [str(name) for name in task_names] if task_names is not None and len(task_names) == classes else None
            for task_names, classes in zip(names, num_classes, strict=True)
        ]
        # Through JSON, so that a checkpoint holds only plain values, whatever a DataModule returns.
        plain = None if preprocessing is None else json.loads(json.dumps(dict(preprocessing), default=float))
        return cls(plain, class_names)

    def normalization(self, channels: int) -> tuple[list[float], list[float]] | None:
        """Returns each channel's mean and standard deviation for images in [0, 1]; None if they are not normalised.

        Args:
            channels: C.

        Raises:
            ValueError: If the record is invalid.
        """
        if self.preprocessing is None:
            return None
        try:
            scale = float(self.preprocessing.get("scale", 1 / _BYTES)) * _BYTES
            mean = [float(value) / scale for value in self.preprocessing.get("mean", [0.0] * channels)]
            std = [float(value) / scale for value in self.preprocessing.get("std", [1.0] * channels)]
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f"The preprocessing of the data cannot be read: {self.preprocessing}.") from error
        if len(mean) != channels or len(std) != channels or not all(value > 0 for value in std):
            raise ValueError(
                f"The preprocessing of the data needs a mean and a positive std for each of {channels} channels, but "
                f"is {self.preprocessing}."
            )
        if all(abs(value) < 1e-12 for value in mean) and all(abs(value - 1) < 1e-12 for value in std):
            return None
        return mean, std

    def normalized(self, images: Tensor) -> Tensor:
        """Normalises images `(N, C, H, W)` as in training.

        Args:
            images: uint8 in [0, 255], or floating point in [0, 1].

        Returns:
            float32 if there is a normalisation; else the unchanged images.
        """
        normalization = self.normalization(images.shape[1])
        if normalization is None:
            return images
        mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in normalization)
        return ((images / 255 if images.dtype == torch.uint8 else images) - mean) / std
