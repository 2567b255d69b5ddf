"""The affine maps of a whole batch that the augmented sweeps use."""

import pytest
import torch
from torchvision.transforms.v2 import InterpolationMode, functional

from benchmarks.augmented import affine

IMAGES = torch.randint(0, 256, (3, 1, 20, 20), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def test_without_a_map_images_are_as_they_were():
    assert torch.equal(affine(IMAGES, torch.zeros(4, 3)), IMAGES)


def test_a_shift_is_a_tenth_of_the_size():
    left = torch.tensor([[0.0] * 3, [0.0] * 3, [1.0] * 3, [0.0] * 3])
    up = left[[0, 1, 3, 2]]
    assert torch.equal(affine(IMAGES, left)[..., :18], IMAGES[..., 2:])
    assert torch.equal(affine(IMAGES, up)[..., :18, :], IMAGES[..., 2:, :])
    assert not affine(IMAGES, left)[..., 18:].any()


@pytest.mark.parametrize(("angle", "scale"), [(1.0, 0.0), (0.0, 1.0), (-0.5, -0.7)])
def test_rotation_and_scale_are_those_of_torchvision(angle, scale):
    draws = torch.tensor([[angle] * 3, [scale] * 3, [0.0] * 3, [0.0] * 3])
    wanted = functional.affine(
        IMAGES.float(), 10 * angle, [0, 0], 1 + 0.1 * scale, [0.0, 0.0], interpolation=InterpolationMode.BILINEAR
    )
    inner = (..., slice(3, 17), slice(3, 17))
    assert (affine(IMAGES, draws)[inner].float() - wanted[inner]).abs().max() <= 0.6
