"""DKL-MNIST with random affine maps of a whole batch at once: cheap enough for a sweep of augmented runs.

`augmentation: [{name: RandomAffine, ...}]` of any data set calls torchvision once for each image, which takes longer
than a training step of the small networks here. `--data benchmarks.augmented.AffineDKLMNIST` draws such maps for a
batch and interpolates bilinearly.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from lws_lightning import DKLMNIST
from lws_lightning.data.sampler import Augment
from lws_lightning.randomness import generator_for

__all__ = ["AffineDKLMNIST", "affine"]

_DEGREES = 10.0
_SHIFT = 0.1
_SCALE = 0.1


class AffineDKLMNIST(DKLMNIST):
    """`DKLMNIST` whose SGD batches are rotated (10 degrees), shifted (a tenth of the size) and scaled (0.9 to 1.1).

    Args:
        *args: See `DKLMNIST`.
        **kwargs: See `DKLMNIST`; `augmentation` is not used.
    """

    def augmentation(self) -> Augment | None:
        """Returns the random affine maps."""
        return self._affine

    def _affine(self, images: Tensor, step: int, task: int, first: int) -> Tensor:
        generator = generator_for(self.seed, "affine", step, "sgd", task, first)
        return affine(images, torch.rand(4, len(images), generator=generator) * 2 - 1)


def affine(images: Tensor, draws: Tensor) -> Tensor:
    """Shifts, rotates and scales each image of a batch, in this order.

    Args:
        images: `(B, C, H, W)` uint8.
        draws: `(4, B)` in [-1, 1]: angle, scale, shift to the left and shift up.

    Returns:
        `(B, C, H, W)` uint8; black where there was no image.
    """
    angle, scale = draws[0] * math.radians(_DEGREES), 1 + _SCALE * draws[1]
    cosine, sine = angle.cos() / scale, angle.sin() / scale
    # Coordinates run from -1 to 1, so a shift by a part of the size counts twice.
    left, up = 2 * _SHIFT * draws[2], 2 * _SHIFT * draws[3]
    rows = [torch.stack([cosine, sine, left], 1), torch.stack([-sine, cosine, up], 1)]
    grid = affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return grid_sample(images.float(), grid, align_corners=False).round().to(torch.uint8)
