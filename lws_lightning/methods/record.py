"""What a checkpoint says of the data, so that its networks can be used where the data are not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["DataRecord"]

_BYTES = 255.0


@dataclass(frozen=True)
class DataRecord:
    """How images become the network's input, and what the classes are called.

    Attributes:
        preprocessing: The DataModule's `preprocessing`; None if it has none.
        class_names: Of each task in order; None where the classes have no names, or they are not known.
    """

    preprocessing: dict[str, Any] | None = None
    class_names: list[list[str] | None] = field(default_factory=list)

    @classmethod
    def of(cls, datamodule: Any, num_classes: Sequence[int]) -> "DataRecord":
        """Reads what a DataModule says of itself; of one that says nothing, an empty record.

        Args:
            datamodule: Any LightningDataModule, or None.
            num_classes: Of each task. Class names that do not fit are left out.
        """
        preprocessing = getattr(datamodule, "preprocessing", None)
        if not isinstance(preprocessing, Mapping):
            preprocessing = None
        names = getattr(datamodule, "class_names", None)
        if not isinstance(names, Sequence) or len(names) != len(num_classes):
            names = [None] * len(num_classes)
        fitting = [
            [str(name) for name in of_task] if of_task is not None and len(of_task) == classes else None
            for of_task, classes in zip(names, num_classes, strict=True)
        ]
        # Through JSON, so that a checkpoint holds plain values only, whatever a DataModule returns.
        plain = None if preprocessing is None else json.loads(json.dumps(dict(preprocessing), default=float))
        return cls(plain, fitting)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None, num_tasks: int) -> "DataRecord":
        """Reads what `as_plain` wrote; None gives an empty record."""
        if plain is None:
            return cls(None, [None] * num_tasks)
        return cls(plain["preprocessing"], list(plain["class_names"]))

    def as_plain(self) -> dict[str, Any]:
        """Returns the record as plain values."""
        return asdict(self)

    def normalization(self, channels: int) -> tuple[list[float], list[float]] | None:
        """Returns mean and deviation of each channel for images in [0, 1], or None if they are used as they are.

        Args:
            channels: C.

        Raises:
            ValueError: If the record is not one that this version understands.
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
        """Returns images `(N, C, H, W)` as the networks were trained on them.

        Args:
            images: uint8 in [0, 255], or floating point in [0, 1].

        Returns:
            float32 where a normalisation is known; else the images as they are.
        """
        normalization = self.normalization(images.shape[1])
        if normalization is None:
            return images
        mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in normalization)
        return ((images / 255 if images.dtype == torch.uint8 else images) - mean) / std
