from dataclasses import replace

import pytest
import torch
from fakes import Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from lws_lightning.data import stratified_subset


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_good_task_passes():
    Tiny().task("a").check("Tiny")


def test_task_without_test_images_passes():
    task = Tiny().task("a")
    replace(task, test_images=task.test_images[:0], test_labels=task.test_labels[:0]).check("Tiny")


@pytest.mark.parametrize("value", [-1, 3])
@pytest.mark.parametrize("part", ["train_labels", "test_labels", "unused_labels"])
def test_label_out_of_range(part, value):
    task = Tiny().task("a")
    labels = getattr(task, part).clone()
    labels[2] = value
    with pytest.raises(ValueError, match=rf"Tiny, task 'a': .* labels must lie in 0\.\.2, found .*{value}"):
        replace(task, **{part: labels}).check("Tiny")


def test_no_training_images():
    task = Tiny().task("a")
    broken = replace(task, train_images=task.train_images[:0], train_labels=task.train_labels[:0])
    with pytest.raises(ValueError, match="Tiny, task 'a': there are no training images"):
        broken.check("Tiny")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda t: {"test_images": torch.zeros(11, 1, 8, 9, dtype=torch.uint8)}, r"shape \(1, 8, 9\)"),
        (lambda t: {"train_labels": t.train_labels[1:]}, "40 training images but 39 labels"),
        (lambda t: {"train_images": t.train_images.float()}, "uint8"),
        (lambda t: {"train_images": t.train_images.squeeze(1)}, r"\(N, C, H, W\)"),
        (lambda t: {"test_labels": t.test_labels.int()}, "int64"),
        (lambda t: {"class_names": ("x", "y")}, "2 class names for 3 classes"),
    ],
)
def test_malformed(changes, message):
    task = Tiny().task("a")
    with pytest.raises(ValueError, match=f"Tiny, task 'a': .*{message}"):
        replace(task, **changes(task)).check("Tiny")


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    part=st.floats(0, 1),
    seed=st.integers(0, 100),
)
def test_stratified_subset(counts, part, seed):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=seeded(seed))]
    size = round(part * len(labels))
    chosen, rest = stratified_subset(labels, size, seeded(seed))
    assert len(chosen) == size
    assert torch.cat([chosen, rest]).sort().values.equal(torch.arange(len(labels)))
    assert chosen.equal(chosen.sort().values)
    assert rest.equal(rest.sort().values)
    shares = torch.bincount(labels[chosen], minlength=len(counts))
    quotas = torch.tensor(counts) * size / len(labels)
    if size >= len(counts):
        assert shares.min() >= 1
    if size >= len(counts) and quotas.min() < 1:
        return  # classes were raised to one at the cost of others
    assert (shares - quotas).abs().max() < 1


def test_stratified_subset_has_shares_and_largest_remainders():
    labels = torch.tensor([0] * 60 + [1] * 28 + [2] * 12)
    chosen, _ = stratified_subset(labels, 10, seeded())  # quotas 6, 2.8, 1.2
    assert torch.bincount(labels[chosen]).tolist() == [6, 3, 1]


def test_every_class_gets_one_where_the_size_suffices():
    labels = torch.tensor([0] * 97 + [1, 2, 3])
    chosen, _ = stratified_subset(labels, 4, seeded())
    assert labels[chosen].unique().tolist() == [0, 1, 2, 3]


def test_ties_are_broken_by_the_generator():
    labels = torch.arange(10)
    picks = {tuple(stratified_subset(labels, 5, seeded(seed))[0].tolist()) for seed in range(10)}
    assert len(picks) > 1


def test_stratified_subset_depends_on_its_generator_alone():
    labels = torch.arange(50) % 7
    first, _ = stratified_subset(labels, 20, seeded(3))
    torch.manual_seed(99)
    state = torch.get_rng_state()
    second, _ = stratified_subset(labels, 20, seeded(3))
    assert first.equal(second)
    assert state.equal(torch.get_rng_state())
    assert not first.equal(stratified_subset(labels, 20, seeded(4))[0])


@pytest.mark.parametrize("size", [-1, 11])
def test_impossible_size(size):
    with pytest.raises(ValueError, match=f"cannot choose {size} of 10"):
        stratified_subset(torch.arange(10), size, seeded())
