import random
from functools import partial
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, rand_score

from lws_lightning.results import load_runs, make_report
from lws_lightning.results.affinity import section_affinities, stability, task_order
from lws_lightning.results.affinity_tables import pair_table, stability_table
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.rows import Section


def drawn(runs, layers, tasks, copies, seed=0):
    generator = random.Random(seed)
    return [[[generator.randrange(copies) for _ in range(tasks)] for _ in range(layers)] for _ in range(runs)]


def agreement(one, other):
    """The Rand index as a loop over pairs of tasks."""
    pairs = list(combinations(range(len(one)), 2))
    return sum((one[a] == one[b]) == (other[a] == other[b]) for a, b in pairs) / len(pairs)


@pytest.mark.parametrize(("runs", "layers", "tasks", "copies"), [(2, 1, 2, 2), (5, 4, 3, 3), (3, 2, 20, 4)])
def test_rand_index_against_a_loop_over_pairs(runs, layers, tasks, copies):
    assignments = drawn(runs, layers, tasks, copies)
    found = stability(assignments, [f"layer{i}" for i in range(layers)])
    assert [each.layer for each in found] == [*(f"layer{i}" for i in range(layers)), "all layers"]
    seeds = list(combinations(range(runs), 2))
    for layer in range(layers):
        rows = [assignment[layer] for assignment in assignments]
        loop = sum(agreement(rows[i], rows[j]) for i, j in seeds) / len(seeds)
        assert found[layer].rand == pytest.approx(loop, abs=1e-12)
        assert loop == pytest.approx(np.mean([rand_score(rows[i], rows[j]) for i, j in seeds]), abs=1e-12)
        share = np.mean([row[a] == row[b] for row in rows for a, b in combinations(range(tasks), 2)])
        assert found[layer].sharing == pytest.approx(100 * share, abs=1e-10)
    assert found[-1].rand == pytest.approx(np.mean([each.rand for each in found[:-1]]), abs=1e-12)
    assert found[-1].chance == pytest.approx(np.mean([each.chance for each in found[:-1]]), abs=1e-12)


def test_chance_against_all_permutations():
    assignments = drawn(3, 2, 5, 3, seed=4)
    found = stability(assignments, ["one", "two"])
    orders = list(permutations(range(5)))
    for layer in range(2):
        rows = [assignment[layer] for assignment in assignments]
        values = [
            agreement([rows[i][task] for task in order], rows[j])
            for i, j in combinations(range(3), 2)
            for order in orders
        ]
        assert found[layer].chance == pytest.approx(np.mean(values), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_of_two_seeds_it_is_the_adjusted_rand_index(seed):
    one, other = drawn(2, 1, 12, 4, seed)
    (found, _) = stability([one, other], ["layer"])
    assert found.adjusted == pytest.approx(adjusted_rand_score(one[0], other[0]), abs=1e-12)


def test_names_of_copies_do_not_matter():
    assignments = drawn(4, 2, 6, 3, seed=2)
    renamed = [[[(copy + i) % 3 for copy in row] for row in each] for i, each in enumerate(assignments)]
    assert stability(renamed, ["a", "b"]) == stability(assignments, ["a", "b"])


def test_seeds_that_agree_and_seeds_that_leave_nothing_to_chance():
    groups, alone, all_alike = [0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5], [0] * 6
    found = stability([[groups, alone, all_alike]] * 5, ["groups", "alone", "alike"], [6, 6, 2])
    assert [each.rand for each in found] == [1, 1, 1, 1]
    assert found[0].adjusted == 1
    assert found[0].chance == pytest.approx(1 - 2 * (3 - 9 / 15) / 15)
    assert found[0].p == pytest.approx(0.001)
    for trivial in found[1:3]:  # other tasks in the same groups are the same groups: agreement says nothing
        assert (trivial.chance, trivial.adjusted, trivial.p) == (1, None, None)
    assert found[3].adjusted == pytest.approx(1)
    assert [each.uniform for each in found] == pytest.approx([100 / 6, 100 / 6, 50, (100 / 6 + 100 / 6 + 50) / 3])


def test_p_against_all_arrangements():
    rows = [[0, 0, 1, 2], [0, 0, 1, 1], [0, 0, 2, 1]]
    (found, whole) = stability([[row] for row in rows], ["layer"])
    orders = list(permutations(range(4)))

    def total(each):
        return sum(agreement(a, b) for a, b in combinations(each, 2))

    # Only the places relative to the first seed matter.
    arranged = [
        total([rows[0], [rows[1][i] for i in first], [rows[2][i] for i in second]])
        for first, second in product(orders, orders)
    ]
    exact = np.mean(np.array(arranged) >= total(rows) - 1e-9)
    assert found.p == pytest.approx(exact, abs=1e-12)
    assert whole.p == found.p


def test_one_seed_has_no_stability():
    for each in stability(drawn(1, 2, 3, 3), ["a", "b"]):
        assert (each.rand, each.chance, each.adjusted, each.p) == (None, None, None, None)


@pytest.fixture
def affinities(write_run, measured, tmp_path):
    """Writes a run for each assignment and returns the affinity of their row."""
    return partial(affinities_of, write_run, measured, tmp_path)


def affinities_of(write_run, measured, tmp_path, assignments, **changes):
    tasks = [f"t{i}" for i in range(len(assignments[0][0]))]
    layers = [f"layer{i}" for i in range(len(assignments[0]))]
    for seed, assignment in enumerate(assignments):
        more = {name: values[seed] for name, values in changes.items()}
        evaluation = measured() | {"tasks": {task: {"error": 1.0, "images": 1} for task in tasks}}
        options = {"task_names": tasks, "layer_names": layers, "weights_per_layer": [3] * len(layers)}
        write_run(f"run{seed}", seed=seed, assignment=assignment, evaluation=evaluation, **(options | more))
    (section,) = group_runs(load_runs([tmp_path])[0])
    return section_affinities(section)


def cells(make_table, found, **options):
    """Header and cells of a table of affinities; the section gives columns for CSV alone."""
    table = make_table(Section("Digits", "", (), (), None, (), ()), [found], **options)
    return [column.heading for column in table.shown], table.cells


def test_shares_and_pairs(affinities):
    assignments = [[[0, 0, 1], [2, 1, 1]], [[2, 2, 2], [0, 1, 2]], [[1, 1, 0], [0, 1, 0]], [[0, 1, 1], [0, 1, 2]]]
    (found,) = affinities(assignments)
    for layer, one, other in product(range(2), range(3), range(3)):
        loop = sum(each[layer][one] == each[layer][other] for each in assignments) / 4
        assert found.shares[layer, one, other] == loop
    assert found.probabilities is None  # the records do not hold it
    assert found.pairs() == [(0, 1), (1, 2), (0, 2)]
    header, body = cells(pair_table, found)
    assert header == ["row", "method", "n", "tasks", "mean", "layer0", "layer1", "under pi"]
    assert body[0] == ["A", "learned", "4", "t0 and t1", "37.5 %", "75 %", "0 %", "-"]
    header, body = cells(stability_table, found)
    assert [row[2:5] for row in body] == [
        *(["4", "layer0", "50.0 %"], ["4", "layer1", "16.7 %"], ["4", "all layers", "33.3 %"]),
    ]
    assert {row[header.index("uniform")] for row in body} == {"33.3 %"}
    assert [row[3] for row in cells(stability_table, found, max_layers=1)[1]] == ["all layers"]


def test_probabilities_of_the_records(affinities):
    generator = torch.Generator().manual_seed(0)
    raw = [[torch.rand(3, size, generator=generator) for size in (2, 3)] for _ in range(2)]
    probs = [[layer / layer.sum(-1, keepdim=True) for layer in run] for run in raw]
    assignments = [[layer.argmax(-1).tolist() for layer in run] for run in probs]
    plain = [[layer.tolist() for layer in run] for run in probs]
    (found,) = affinities(assignments, probabilities=plain, weights_per_layer=[[2, 3]] * 2)
    for layer, one, other in product(range(2), range(3), range(3)):
        if one != other:
            loop = sum(
                float(run[layer][one, copy] * run[layer][other, copy])
                for run in probs
                for copy in range(run[layer].shape[1])
            )
            assert found.probabilities[layer, one, other] == pytest.approx(loop / 2, abs=1e-6)
    assert cells(pair_table, found)[1][0][-1] == f"{100 * found.probabilities.mean(0)[found.pairs()[0]]:.1f} %"


def test_a_run_without_probabilities_leaves_them_out(affinities):
    good = [[[0.5, 0.5]] * 3] * 2
    assignments = [[[0, 1, 1], [1, 1, 0]]] * 2
    (found,) = affinities(assignments, probabilities=[good, None])
    assert found.probabilities is None
    assert found.shares.shape == (2, 3, 3)


def test_similar_tasks_stand_together(affinities):
    families = [0, 1, 2] * 4
    (found,) = affinities([[families, families]] * 2)
    ordered = [families[task] for task in task_order(found)]
    assert sorted(task_order(found)) == list(range(12))
    assert sum(a != b for a, b in pairwise(ordered)) == 2


def test_few_tasks_keep_their_order_and_one_has_none(affinities):
    (found,) = affinities([[[0, 1, 0]]] * 2)
    assert task_order(found) == [0, 1, 2]
    assert affinities([[[0]]] * 2) == []


def test_a_study_without_learned_sharing_has_no_such_section(write_study, tmp_path):
    write_study(full=[20, 21], none=[15, 16])
    report = make_report(*load_runs([tmp_path]), folders=[tmp_path])
    assert "Which tasks share" not in report.html()
    assert "Do the seeds agree" not in report.markdown("figures")
    write_study(learned=[10, 11])
    report = make_report(*load_runs([tmp_path]), folders=[tmp_path])
    assert "Which tasks share" in report.html()
    assert "low and high" in report.html()
    assert report.markdown("figures").count("Do the seeds agree") == 1
    assert "Do the seeds agree" not in report.markdown()
