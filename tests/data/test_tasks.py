from dataclasses import replace

import pytest
import torch
from fakes import Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from lws_lightning.data import Examples, stratified_subset


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def check(task):
    task.check("Tiny", num_classes=3, image_shape=[1, 8, 8])


def test_good_task_passes():
    check(Tiny().task("a"))


def test_task_without_test_images_passes():
    task = Tiny().task("a")
    check(replace(task, test=task.test.select(slice(0)), unused=None))


@pytest.mark.parametrize("value", [-1, 3])
@pytest.mark.parametrize("split", ["train", "test", "unused"])
def test_label_out_of_range(split, value):
    task = Tiny().task("a")
    getattr(task, split).labels[2] = value
    with pytest.raises(ValueError, match=rf"Tiny, task 'a': .* labels must lie in 0\.\.2, found .*{value}"):
        check(task)


def test_no_training_images():
    task = Tiny().task("a")
    broken = replace(task, train=task.train.select(slice(0)))
    with pytest.raises(ValueError, match="Tiny, task 'a': there are no training images"):
        check(broken)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda x, y: {"test": (torch.zeros(40, 1, 8, 9, dtype=torch.uint8), y)}, r"\[1, 8, 8\] declared, \[1, 8, 9\]"),
        (lambda x, y: {"train": (x, y[1:])}, "40 training images but 39 labels"),
        (lambda x, y: {"train": (x.float(), y)}, "uint8"),
        (lambda x, y: {"train": (x.squeeze(1), y)}, r"\(N, C, H, W\)"),
        (lambda x, y: {"test": (x, y.int())}, "int64"),
        (lambda x, y: {"class_names": ("x", "y")}, "2 class names for 3 classes"),
    ],
)
def test_malformed(changes, message):
    task = Tiny().task("a")
    changed = {
        name: Examples(*value) if name != "class_names" else value for name, value in changes(*task.train).items()
    }
    with pytest.raises(ValueError, match=f"Tiny, task 'a': .*{message}"):
        check(replace(task, **changed))


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
