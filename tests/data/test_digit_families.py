"""Tasks in families: the same digits, with the pixels in an order of each family's own."""

import pytest
import torch

from lws_lightning.data import DigitFamilies
from lws_lightning.data.digits import load_digit_images


def everything(split):
    """A task's training and test images, sorted pixel by pixel, so that the order of pixels does not matter."""
    return split.flatten(1).sort(1).values


def test_facts():
    data = DigitFamilies()
    assert data.task_names[:3] == ["family0_task0", "family0_task1", "family1_task0"]
    assert data.num_classes == [10] * 6
    assert data.families == [0, 0, 1, 1, 2, 2]
    assert data.image_shape == [1, 8, 8]
    sizes = [
        (len(train), len(test))
        for (train, _), (test, _) in zip(data.examples("train"), data.examples("test"), strict=True)
    ]
    assert sizes == [(300, 599), (300, 598)] * 3


def test_families_have_the_same_images_and_their_own_order_of_pixels():
    data = DigitFamilies()
    images, labels = zip(*data.examples("train"), strict=True)
    for first, second in ((0, 2), (2, 4)):
        assert torch.equal(everything(images[first]), everything(images[second]))
        assert torch.equal(labels[first], labels[second])
        assert not torch.equal(images[first], images[second])
    source = {tuple(image.flatten().sort().values.tolist()) for image in load_digit_images()[0]}
    assert {tuple(image.tolist()) for image in everything(images[0])} <= source


def test_within_a_family_the_order_is_the_same_and_no_image_is_in_two_tasks():
    data = DigitFamilies(families=1)
    parts = [images for split in ("train", "test") for images, _ in data.examples(split)]
    source = load_digit_images()[0].flatten(1)
    assert sorted(everything(torch.cat(parts)).tolist()) == sorted(source.sort(1).values.tolist())
    means = [
        images.flatten(1).double().mean(0) for images in data.examples("train")[0][:1] + data.examples("train")[1][:1]
    ]
    assert float((means[0] - means[1]).abs().max()) < 40  # the same pixel means the same
    assert float((means[0] - source.double().mean(0)).abs().max()) > 100  # and another one than in the source


def test_noise_replaces_training_labels_alone():
    clean, noisy = DigitFamilies(), DigitFamilies(noise=0.5)
    changed = [
        float((one != other).double().mean())
        for (_, one), (_, other) in zip(clean.examples("train"), noisy.examples("train"), strict=True)
    ]
    assert all(0.3 < share < 0.6 for share in changed)  # a tenth of the drawn labels are the right ones
    for (_, one), (_, other) in zip(clean.examples("test"), noisy.examples("test"), strict=True):
        assert torch.equal(one, other)


def test_images_depend_on_the_split_seed_and_not_on_that_of_the_batches():
    digests = [DigitFamilies(split_seed=split, seed=seed).digest for split, seed in ((0, 0), (0, 1), (1, 0))]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": 0}, "families"),
        ({"tasks_per_family": 0}, "tasks_per_family"),
        ({"train_images_per_task": 0}, "train_images_per_task"),
        ({"noise": 1.5}, "noise must lie between 0 and 1"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DigitFamilies(**options)


def test_too_many_training_images_are_refused():
    with pytest.raises(ValueError, match="less than the 177 images of a task"):
        DigitFamilies(tasks_per_family=10, train_images_per_task=200).setup()
