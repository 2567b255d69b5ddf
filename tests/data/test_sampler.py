import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lws_lightning.batches import EvaluationBatch, StepBatch
from lws_lightning.data import Examples, IndexStream, StepBatches
from lws_lightning.data.sampler import EvaluationBatches, StepSampler

sizes = st.integers(1, 30)
seeds = st.integers(0, 5)
quick = settings(deadline=None, max_examples=40)


@quick
@given(n=sizes, seed=seeds, epoch=st.integers(0, 1000))
def test_each_window_of_n_is_a_permutation(n, seed, epoch):
    assert IndexStream(seed, "sgd", 0, n).window(epoch * n, n).sort().values.equal(torch.arange(n))


@quick
@given(n=sizes, seed=seeds, start=st.integers(0, 200), count=st.integers(0, 100))
def test_counts_are_even(n, seed, start, count):
    counts = torch.bincount(IndexStream(seed, "nes", 1, n).window(start, count), minlength=n)
    assert counts.max() - counts.min() <= (1 if start % n == 0 else 2)


@quick
@given(n=sizes, seed=seeds, start=st.integers(0, 100), count=st.integers(0, 50), cut=st.integers(0, 50))
def test_windows_agree(n, seed, start, count, cut):
    cut = min(cut, count)
    whole = IndexStream(seed, "sgd", 2, n).window(start, count)
    parts = [
        IndexStream(seed, "sgd", 2, n).window(start, cut),
        IndexStream(seed, "sgd", 2, n).window(start + cut, count - cut),
    ]
    assert whole.dtype == torch.int64
    assert torch.cat(parts).equal(whole)


def test_streams_differ():
    def draw(seed=0, phase="sgd", task=0, start=0):
        return tuple(IndexStream(seed, phase, task, 30).window(start, 30).tolist())

    streams = [draw(), draw(seed=1), draw(phase="nes"), draw(task=1), draw(start=30)]
    assert len(set(streams)) == len(streams)


def test_global_generators_neither_matter_nor_move():
    first = IndexStream(0, "sgd", 0, 20).window(7, 50)
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    state = torch.get_rng_state()
    assert IndexStream(0, "sgd", 0, 20).window(7, 50).equal(first)
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize(("n", "start", "count"), [(0, 0, 1), (3, -1, 1), (3, 0, -1)])
def test_bad_arguments(n, start, count):
    with pytest.raises(ValueError, match=r"num_images|negative"):
        IndexStream(0, "sgd", 0, n).window(start, count)


def numbered(*counts):
    """Images whose every pixel is the image's number."""
    numbers = [torch.arange(n) for n in counts]
    return [Examples(n.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2), n) for n in numbers]


@pytest.mark.parametrize(("counts", "steps"), [((40, 64, 12), 4), ((17, 3), 2), ((16,), 1), ((1,), 1)])
def test_step_batches(counts, steps):
    batches = StepBatches(numbered(*counts), batch_size=16, seed=3)
    assert len(batches) == steps
    for step in (0, 1, 2 * steps + 5):
        batch = batches[step]
        assert isinstance(batch, StepBatch)
        for phase, part in zip(("nes", "sgd"), batch, strict=True):
            assert part.images.shape == (len(counts), 16, 1, 2, 2)
            assert part.images.dtype == torch.uint8
            assert part.labels.shape == (len(counts), 16)
            for task, n in enumerate(counts):
                expected = IndexStream(3, phase, task, n).window(step * 16, 16)
                assert part.labels[task].equal(expected)
                assert part.images[task, :, 0, 0, 0].equal(expected.to(torch.uint8))


def test_step_batches_do_not_depend_on_the_order_of_asking():
    first = StepBatches(numbered(17, 5), batch_size=4, seed=0)
    second = StepBatches(numbered(17, 5), batch_size=4, seed=0)
    forwards = [first[step].sgd.labels for step in range(12)]
    backwards = [second[step].sgd.labels for step in reversed(range(12))][::-1]
    assert all(a.equal(b) for a, b in zip(forwards, backwards, strict=True))


def test_negative_step():
    with pytest.raises(IndexError):
        StepBatches(numbered(4), batch_size=2, seed=0)[-1]


def test_step_sampler_asks_for_the_start_at_each_epoch():
    done = iter([0, 3, 7])
    sampler = StepSampler(lambda: next(done), 3)
    assert len(sampler) == 3
    assert [list(sampler) for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [7, 8, 9]]


def test_evaluation_batches_take_turns_and_cover_all():
    tasks = numbered(11, 9, 0, 1)
    batches = EvaluationBatches(tasks, batch_size=4)
    items = [batches[i] for i in range(len(batches))]
    assert all(isinstance(item, EvaluationBatch) for item in items)
    assert [item.task for item in items] == [0, 1, 3, 0, 1, 0, 1]
    assert max(len(item.labels) for item in items) == 4
    for task, group in itertools.groupby(sorted(items, key=lambda item: item.task), key=lambda item: item.task):
        assert torch.cat([item.labels for item in group]).equal(tasks[task].labels)
    for item in items:
        assert item.images[:, 0, 0, 0].equal(item.labels.to(torch.uint8))
    with pytest.raises(IndexError):
        batches[len(batches)]
