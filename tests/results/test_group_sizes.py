import random

import pytest

from lws_lightning.results import load_runs
from lws_lightning.results.group_sizes import group_shares, read_assignments, size_bins, sizes_text
from lws_lightning.results.grouping import group_runs


def looped(assignments, layer, size):
    """The paper's sentence as a loop: tasks over all repetitions that share within a group of exactly `size`."""
    inside = total = 0
    for assignment in assignments:
        for task in range(len(assignment[layer])):
            group = 0
            for other in range(len(assignment[layer])):
                if assignment[layer][other] == assignment[layer][task]:
                    group += 1
            inside += group == size
            total += 1
    return 100 * inside / total


@pytest.mark.parametrize(("runs", "layers", "tasks", "copies"), [(1, 1, 1, 1), (5, 4, 3, 3), (3, 8, 50, 20)])
def test_shares_against_a_loop(runs, layers, tasks, copies):
    generator = random.Random(tasks)
    assignments = [[[generator.randrange(copies) for _ in range(tasks)] for _ in range(layers)] for _ in range(runs)]
    shares = group_shares(assignments)
    for layer in range(layers):
        assert len(shares[layer]) == tasks
        assert sum(shares[layer]) == pytest.approx(100)
        for size in range(1, tasks + 1):
            assert shares[layer][size - 1] == pytest.approx(looped(assignments, layer, size), abs=1e-9)


def test_bins_hold_each_size_once():
    for tasks in range(1, 70):
        sizes = [size for first, last in size_bins(tasks) for size in range(first, last + 1)]
        assert sizes == list(range(1, tasks + 1))
    assert size_bins(3) == [(1, 1), (2, 2), (3, 3)]
    assert [sizes_text(each, 50) for each in size_bins(50)] == [
        *("alone", "2 tasks", "3-4 tasks", "5-8 tasks", "9-16 tasks", "17-32 tasks", "33-50 tasks"),
    ]
    assert sizes_text((3, 3), 3) == "all 3"


def test_runs_without_an_assignment_or_with_other_layers_are_named(write_run, tmp_path):
    write_run("a", assignment=[[0, 1]])
    write_run("b", seed=1, assignment=[])
    write_run("c", seed=2, layer_names=["other"])
    write_run("d", seed=3, assignment=[[1, 1]])
    (section,) = group_runs(load_runs([tmp_path])[0])
    found, problems = read_assignments(section.rows[0])
    assert [(run.folder.name, assignment) for run, assignment in found] == [("a", [[0, 1]]), ("d", [[1, 1]])]
    assert [run.folder.name for run, _ in problems] == ["b", "c"]
    assert "other layers" in problems[1][1]
