"""Agreement in difficulty, and the grouping of branches, against plain loops and enumeration."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lws_lightning.search import TaskTree, difficulty_agreement
from lws_lightning.search.branching import branch_affinity, group_branches, separation


def affinity_of(groups, size, within=0.9, across=0.5):
    matrix = torch.full((size, size), across, dtype=torch.float64)
    for group in groups:
        for one, other in itertools.product(group, group):
            matrix[one, other] = within
    return matrix.fill_diagonal_(1.0)


def random_affinity(size, seed):
    matrix = torch.rand(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return ((matrix + matrix.T) / 2).fill_diagonal_(1.0)


def partitions(items):
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for index, group in enumerate(smaller):
            yield [*smaller[:index], [first, *group], *smaller[index + 1 :]]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 10**6))
def test_agreement_counts_the_images_that_both_find_easy_or_both_difficult(tasks, images, seed):
    confidences = torch.rand(tasks, images, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    counts = difficulty_agreement(confidences)
    means = [sum(row) / images for row in confidences.tolist()]
    for one, other in itertools.product(range(tasks), range(tasks)):
        pairs = zip(confidences[one].tolist(), confidences[other].tolist(), strict=True)
        assert counts[one, other] == sum((a < means[one]) == (b < means[other]) for a, b in pairs)
    assert torch.equal(counts.diagonal(), torch.full((tasks,), float(images), dtype=torch.float64))


def test_the_affinity_of_branches_is_a_loop_over_their_tasks():
    affinity, branches = random_affinity(6, 0), [[0, 3], [1], [2, 4, 5]]
    found = branch_affinity(affinity, branches)
    for k, one in enumerate(branches):
        for number, other in enumerate(branches):
            forth = sum(min(float(affinity[i, j]) for j in other) for i in one) / len(one)
            back = sum(min(float(affinity[i, j]) for i in one) for j in other) / len(other)
            assert float(found[k, number]) == pytest.approx((forth + back) / 2, abs=1e-12)
    assert torch.equal(branch_affinity(affinity, [[t] for t in range(6)]), affinity)


def test_separation_is_a_loop_over_groups():
    affinity, groups = random_affinity(5, 1), [[0, 2], [1], [3, 4]]
    distances = [[max(1 - float(affinity[i, j]) if i != j else 0.0 for j in group) for i in group] for group in groups]
    expected = sum(sum(group) / len(group) for group in distances) / len(groups)
    assert separation(affinity, groups) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3], [4, 5]], [[0, 3, 5], [1, 2, 4]], [[0], [1, 2, 3], [4, 5]]])
def test_planted_groups_are_found(groups):
    assert group_branches(affinity_of(groups, 6), 0.4) == groups


@pytest.mark.parametrize(("cost", "number"), [(0.0, 4), (10.0, 1)])
def test_the_cost_decides_the_number_of_groups(cost, number):
    assert len(group_branches(random_affinity(4, 2), cost)) == number


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3), st.integers(0, 10**6), st.floats(0, 1))
def test_up_to_three_branches_are_grouped_at_the_least_cost(size, seed, cost):
    affinity = random_affinity(size, seed)
    found = group_branches(affinity, cost)
    assert sorted(itertools.chain(*found)) == list(range(size))

    def total(groups):
        return separation(affinity, groups) + cost * (len(groups) - 1) / max(size - 1, 1)

    assert total(found) <= min(total(groups) for groups in partitions(list(range(size)))) + 1e-9


def test_a_tree_branches_from_the_top():
    tree = TaskTree([4, 4, 4], 4)
    assert tree.mode().tolist() == [[0] * 4] * 3
    tree.observe(affinity_of([[0, 1], [2, 3]], 4, across=0.1) * 100, 60)
    tree.observe(torch.zeros(4, 4, dtype=torch.float64), 40)
    assert tree.branch(2, 0.4) == [(0, 1)]
    assert tree.mode()[2].tolist() == [0, 0, 1, 1]
    assert int(tree.images) == 0
    tree.observe(affinity_of([[0, 1, 2, 3]], 4) * 10, 10)
    assert tree.branch(1, 0.4) == []  # all branches are alike: one copy for them, and so below
    assert tree.mode().tolist() == [[0] * 4, [0] * 4, [0, 0, 1, 1]]
    tree.observe(affinity_of([[0], [1], [2], [3]], 4) * 10, 10)
    assert tree.branch(0, 0.0) == []  # a layer has no more groups than the one above
    assert float(tree.entropy().max()) == 0
