"""Random changes of training images, as a function of counters."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

from lws_lightning.randomness import generator_for

__all__ = ["Augmentation"]

_DTYPES = {name: getattr(torch, name) for name in ("uint8", "float16", "float32", "float64")}


class Augmentation:
    """Changes each image of a batch on its own.

    The change depends on (seed, step, phase, task, place in the step's batch) and on the image, but neither
    on the loader processes nor on how many processes divide the batch. Global generators are restored.

    Args:
        dataset: Name of the data set, for messages.
        steps: Names of `torchvision.transforms.v2`, applied one after the other; with arguments as
            `{name: RandomCrop, size: 32, padding: 4}`. Interpolations, dtypes and policies are given by their names,
            and an argument `transforms` or `transform` is again made of such names.
        seed: Seed of the batches.
        image_shape: `(C, H, W)` of the images.

    Raises:
        ValueError: A transform cannot be made, does not take such images, or returns images of another shape or dtype.
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
        """Changes some images of a task's SGD batch.

        Args:
            images: `(B, C, H, W)` uint8.
            step: Number of the training step.
            task: Index of the task.
            first: Place of the first image in the step's batch.

        Returns:
            `(B, C, H, W)` uint8.

        Raises:
            ValueError: A transform returned an image of a different shape or dtype.
        """
        changed = torch.empty_like(images)
        with torch.random.fork_rng(devices=[]):  # torchvision's transforms draw from torch's global generator
            for place, image in enumerate(images):
                generator = generator_for(self._seed, "augmentation", step, "sgd", task, first + place)
                torch.set_rng_state(generator.get_state())
                result = self.transforms(image)
                if not isinstance(result, Tensor) or result.shape != image.shape or result.dtype != image.dtype:
                    kind = f"{list(result.shape)} {result.dtype}" if isinstance(result, Tensor) else type(result)
                    raise ValueError(
                        f"{self._where} must keep shape and dtype, {list(image.shape)} {image.dtype}, but "
                        f"returned {kind}. Crop or resize to the image_size at the end; normalisation is the option "
                        "normalization."
                    )
                changed[place] = result
        return changed


def _make(dataset: str, step: str | Mapping[str, Any]) -> v2.Transform:
    arguments = {"name": step} if isinstance(step, str) else dict(step)
    name = arguments.pop("name", None)
    maker = getattr(v2, name, None) if isinstance(name, str) else None
    if not (isinstance(maker, type) and issubclass(maker, v2.Transform)):
        raise ValueError(
            f"{dataset}: augmentation: there is no torchvision.transforms.v2.{name}. An entry is a name, such as "
            "RandomHorizontalFlip, or {name: RandomCrop, size: 32, padding: 4}."
        )
    if maker in (v2.MixUp, v2.CutMix):
        raise ValueError(f"{dataset}: augmentation: {name} mixes labels, which is not supported.")
    try:
        return maker(**{key: _value(dataset, key, value) for key, value in arguments.items()})
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"{dataset}: augmentation: {name} does not take {arguments}: {error}") from error


def _value(dataset: str, key: str, value: Any) -> Any:
    """Converts a name to the object that torchvision expects."""
    if key in ("transforms", "transform"):
        return [_make(dataset, each) for each in value] if isinstance(value, list) else _make(dataset, value)
    if key == "interpolation" and isinstance(value, str):
        return v2.InterpolationMode(value)
    if key == "policy" and isinstance(value, str):
        return v2.AutoAugmentPolicy(value)
    if key == "dtype" and isinstance(value, str):
        return _DTYPES[value]
    return value
