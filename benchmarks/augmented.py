"""DKL-MNIST with random affine maps of a whole batch at once: cheap enough for a sweep of augmented runs.

`augmentation: [{name: RandomAffine, ...}]` of any data set calls torchvision once for each image, which takes longer than
a training step of the small networks here. `--data benchmarks.augmented.AffineDKLMNIST` draws the same maps and
interpolates bilinearly.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from lws_lightning import DKLMNIST
from lws_lightning.data.sampler import Augment
from lws_lightning.randomness import generator_for

__all__ = ["AffineDKLMNIST"]

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
        angle, scale, right, down = torch.rand(4, len(images), generator=generator) * 2 - 1
        angle = angle * math.radians(_DEGREES)
        scale = 1 + _SCALE * scale
        cosine, sine = angle.cos() / scale, angle.sin() / scale
        # Coordinates run from -1 to 1, so a shift by a part of the size counts twice.
        rows = [torch.stack([cosine, sine, 2 * _SHIFT * right], 1), torch.stack([-sine, cosine, 2 * _SHIFT * down], 1)]
        grid = affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
        return grid_sample(images.float(), grid, align_corners=False).round().to(torch.uint8)
