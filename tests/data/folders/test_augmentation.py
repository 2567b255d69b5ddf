"""Random changes of images as a function of counters."""

import random

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from lws_lightning.data.augmentation import Augmentation
from lws_lightning.randomness import generator_for

STEPS = [{"name": "RandomCrop", "size": 8, "padding": 3}, "RandomHorizontalFlip", {"name": "ColorJitter", "hue": 0.3}]
IMAGES = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def augmentation(steps=STEPS, seed=0, shape=(3, 8, 8)):
    return Augmentation("X", steps, seed, shape)


def test_equals_torchvision_under_the_image_s_own_seed():
    changed = augmentation()(IMAGES, 5, 1, 0)
    transforms = v2.Compose([v2.RandomCrop(8, 3), v2.RandomHorizontalFlip(), v2.ColorJitter(hue=0.3)])
    for place, image in enumerate(IMAGES):
        torch.manual_seed(generator_for(0, "augmentation", 5, "sgd", 1, place).initial_seed())
        assert torch.equal(changed[place], transforms(image))


def test_depends_on_counters_alone():
    augment = augmentation()
    before = augment(IMAGES, 5, 1, 0)
    torch.manual_seed(77), np.random.seed(77), random.seed(77)
    state = torch.get_rng_state()
    assert torch.equal(augmentation()(IMAGES, 5, 1, 0), before)
    assert torch.equal(torch.get_rng_state(), state)  # and leaves no trace
    for other in (augment(IMAGES, 6, 1, 0), augment(IMAGES, 5, 0, 0), augmentation(seed=1)(IMAGES, 5, 1, 0)):
        assert not torch.equal(other, before)


def test_each_image_by_itself_and_by_its_place():
    same = IMAGES[:1].expand(32, -1, -1, -1)
    changed = augmentation()(same, 0, 0, 0)
    assert len({image.numpy().tobytes() for image in changed}) > 16
    halves = [augmentation()(same[:16], 0, 0, first) for first in (0, 16)]  # two processes
    assert torch.equal(torch.cat(halves), changed)


def test_names_and_nested_transforms():
    steps = [
        {"name": "RandomApply", "transforms": [{"name": "RandomRotation", "degrees": 20, "interpolation": "bilinear"}]},
        {"name": "AutoAugment", "policy": "cifar10"},
        {"name": "ToDtype", "dtype": "float32", "scale": True},
        {"name": "GaussianNoise", "sigma": 0.1},
        {"name": "ToDtype", "dtype": "uint8", "scale": True},
    ]
    augment = augmentation(steps)
    made = augment.transforms
    assert made.transforms[0].transforms[0].interpolation == v2.InterpolationMode.BILINEAR
    assert made.transforms[1].policy == v2.AutoAugmentPolicy.CIFAR10
    changed = augment(IMAGES, 0, 0, 0)
    assert changed.dtype == torch.uint8
    assert not torch.equal(changed, IMAGES)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("NoSuch", "NoSuch"),
        ("__doc__", "__doc__"),
        ("InterpolationMode", "InterpolationMode"),
        ({"size": 3}, "name"),
        ({"name": "RandomCrop", "sides": 3}, "sides"),
        ({"name": "ToDtype", "dtype": "int7"}, "int7"),
        ("MixUp", "labels"),
        ({"name": "RandomCrop", "size": 4}, r"\[3, 4, 4\].*image_size"),
        ({"name": "ToDtype", "dtype": "float32", "scale": True}, "normalization"),
        ({"name": "FiveCrop", "size": 4}, "returned"),
        ({"name": "Normalize", "mean": [0.5], "std": [0.5]}, "does not work"),
    ],
)
def test_what_cannot_work_is_refused_at_once(step, message):
    with pytest.raises(ValueError, match=message):
        augmentation([step])


def test_a_size_that_varies_is_refused_when_it_does():
    def draw(steps):
        for step in range(steps):
            augmentation([{"name": "RandomResize", "min_size": 7, "max_size": 10}])(IMAGES, step, 0, 0)

    with pytest.raises(ValueError, match="image_size"):
        draw(20)
