"""Random augmentation of training images, as a function of counters."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

from lws_lightning.randomness import generator_for

__all__ = ["Augmentation"]

_DTYPES = {name: getattr(torch, name) for name in ("uint8", "float16", "float32", "float64")}


class Augmentation:
    """Augments each image of a batch independently.

    The result depends on the image and on (seed, step, phase, task, position in the step's batch), but neither on the
    loader processes nor on the number of processes that share the batch. Global generators are restored.

    Args:
        dataset: Name of the data set, for messages.
        steps: Names of `torchvision.transforms.v2`, applied in order; with arguments as
            `{name: RandomCrop, size: 32, padding: 4}`. Interpolations, dtypes and policies are given by name, and an
            argument `transforms` or `transform` contains such entries again.
        seed: Seed of the batches.
        image_shape: `(C, H, W)` of the images.

    Raises:
        ValueError: A transform cannot be created, does not accept such images, or changes their shape or dtype.
    """

    def __init__(
        self, dataset: str, steps: Sequence[str | Mapping[str, Any]], seed: int, image_shape: Sequence[int]
    ) -> None:
        self._where = f"{dataset}: augmentation"
        self.transforms = v2.Compose([_make(dataset, step) for step in steps])
        self._seed = seed
        grey = torch.full(tuple(image_shape), 128, dtype=torch.uint8)
        try:
            self(grey.unsqueeze(0), 0, 0, 0)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{self._where} does not work on images of shape {list(image_shape)}: {error}") from error

    def __call__(self, images: Tensor, step: int, task: int, first: int) -> Tensor:
        """Augments images of a task's SGD batch.

        Args:
            images: `(B, C, H, W)` uint8.
            step: Number of the training step.
            task: Index of the task.
            first: Position of the first image in the step's batch.

        Returns:
            `(B, C, H, W)` uint8.

        Raises:
            ValueError: A transform returned an image of a different shape or dtype.
        """
        augmented = torch.empty_like(images)
        with torch.random.fork_rng(devices=[]):  # torchvision's transforms use torch's global generator
            for position, image in enumerate(images):
                generator = generator_for(self._seed, "augmentation", step, "sgd", task, first + position)
                torch.set_rng_state(generator.get_state())
                result = self.transforms(image)
                if not isinstance(result, Tensor) or result.shape != image.shape or result.dtype != image.dtype:
                    actual = f"{list(result.shape)} {result.dtype}" if isinstance(result, Tensor) else type(result)
                    raise ValueError(
                        f"{self._where} must keep shape and dtype, {list(image.shape)} {image.dtype}, but "
                        f"returned {actual}. Crop or resize to the image_size at the end; normalisation is the option "
                        "normalization."
                    )
                augmented[position] = result
        return augmented


def _make(dataset: str, step: str | Mapping[str, Any]) -> v2.Transform:
    arguments = {"name": step} if isinstance(step, str) else dict(step)
    name = arguments.pop("name", None)
    transform = getattr(v2, name, None) if isinstance(name, str) else None
    if not (isinstance(transform, type) and issubclass(transform, v2.Transform)):
        raise ValueError(
            f"{dataset}: augmentation: there is no torchvision.transforms.v2.{name}. An entry is a name, such as "
            "RandomHorizontalFlip, or {name: RandomCrop, size: 32, padding: 4}."
        )
    if transform in (v2.MixUp, v2.CutMix):
        raise ValueError(f"{dataset}: augmentation: {name} mixes labels, which is not supported.")
    try:
        return transform(**{key: _value(dataset, key, value) for key, value in arguments.items()})
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"{dataset}: augmentation: {name} does not accept {arguments}: {error}") from error


def _value(dataset: str, key: str, value: Any) -> Any:
    """Converts a name to the object that torchvision expects."""
    if key in ("transforms", "transform"):
        return [_make(dataset, entry) for entry in value] if isinstance(value, list) else _make(dataset, value)
    if key == "interpolation" and isinstance(value, str):
        return v2.InterpolationMode(value)
    if key == "policy" and isinstance(value, str):
        return v2.AutoAugmentPolicy(value)
    if key == "dtype" and isinstance(value, str):
        return _DTYPES[value]
    return value
