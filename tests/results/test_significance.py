import math
import random
from itertools import combinations, permutations

import pytest

from lws_lightning.results import comparison_table, load_runs
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.significance import (
    EXACT,
    EXACT_TIES,
    NORMAL,
    compare,
    fewest_runs,
    holm,
    least_p,
    mann_whitney,
    significance_table,
)


def u_of(less, than):
    return sum((a > b) + (a == b) / 2 for a in less for b in than)


def enumerated(less, than):
    """The share of all ways to deal the values out to both sides whose U is as small."""
    values = [*less, *than]
    u = u_of(less, than)
    ways = list(combinations(range(len(values)), len(less)))
    small = 0
    for chosen in ways:
        first = [values[i] for i in chosen]
        second = [values[i] for i in range(len(values)) if i not in chosen]
        small += u_of(first, second) <= u
    return small / len(ways)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (2, 3), (3, 3), (4, 3), (5, 5)])
def test_against_enumeration(n, m):
    generator = random.Random(n * 10 + m)
    for _ in range(8):
        values = [generator.random() for _ in range(n + m)]
        u, p, method = mann_whitney(values[:n], values[n:])
        assert method == EXACT
        assert u == u_of(values[:n], values[n:])
        assert p == pytest.approx(enumerated(values[:n], values[n:]), abs=1e-12)


def test_every_arrangement_of_ranks():
    for order in permutations(range(5)):
        _, p, _ = mann_whitney([float(v) for v in order[:2]], [float(v) for v in order[2:]])
        assert p == pytest.approx(enumerated(order[:2], order[2:]), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_ties_against_enumeration(seed):
    generator = random.Random(seed)
    values = [float(generator.randrange(3)) for _ in range(7)]
    if len(set(values)) == 1:
        values[0] = 5.0
    u, p, method = mann_whitney(values[:3], values[3:])
    assert method == EXACT_TIES
    assert u == u_of(values[:3], values[3:])
    assert p == pytest.approx(enumerated(values[:3], values[3:]), abs=1e-12)


def test_ties_never_give_less_than_the_least_p():
    _, p, _ = mann_whitney([1.0, 1.0, 2.0], [3.0, 4.0, 5.0])
    assert p == pytest.approx(least_p(3, 3))


def test_equal_values_are_no_evidence():
    u, p, _ = mann_whitney([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    assert (u, p) == (4.5, 1.0)


def test_a_tie_within_ten_seeds_stays_exact():
    """Two equal baselines behind ten better runs: only the one arrangement is as small."""
    learned = [10 + i / 10 for i in range(10)]
    _, p, method = mann_whitney(learned, [17.0, 17.0, *(18 + i / 10 for i in range(8))])
    assert method == EXACT_TIES
    assert p == pytest.approx(least_p(10, 10), rel=1e-12)


def test_ties_of_ten_seeds_against_scipys_permutations():
    from scipy.stats import PermutationMethod, mannwhitneyu

    generator = random.Random(3)
    first = [float(generator.randrange(6)) for _ in range(8)]
    second = [float(generator.randrange(1, 7)) for _ in range(8)]
    expected = mannwhitneyu(first, second, alternative="less", method=PermutationMethod(n_resamples=math.inf))
    u, p, _ = mann_whitney(first, second)
    assert (u, p) == (expected.statistic, pytest.approx(expected.pvalue, rel=1e-12))


def test_more_than_fifty_runs_use_the_normal_distribution():
    """Against the textbook's formula with corrections for ties and continuity."""
    generator = random.Random(0)
    first = [float(generator.randrange(40)) for _ in range(51)]
    second = [float(generator.randrange(1, 41)) for _ in range(51)]
    u, p, method = mann_whitney(first, second)
    assert method == NORMAL
    values = first + second
    ties = sum(values.count(v) ** 3 - values.count(v) for v in set(values))
    deviation = math.sqrt(51**2 / 12 * (103 - ties / (102 * 101)))
    z = (u - 51**2 / 2 + 0.5) / deviation
    assert p == pytest.approx((1 + math.erf(z / math.sqrt(2))) / 2, rel=1e-9)


def test_values_without_a_rank_are_refused():
    for first, second in (([math.nan, 1.0], [2.0]), ([1.0], [math.inf]), ([], [1.0])):
        with pytest.raises(ValueError, match="finite"):
            mann_whitney(first, second)


def test_least_p_and_fewest_runs():
    assert least_p(5, 5) == 1 / 252
    assert least_p(3, 3) == 1 / 20
    assert fewest_runs(1, 1) == (3, 4)
    assert fewest_runs(3, 3) == (3, 4)
    assert fewest_runs(2, 6) == (3, 6)
    assert fewest_runs(10, 1) == (10, 3)
    assert all(least_p(*fewest_runs(n, m)) < 0.05 for n in range(1, 6) for m in range(1, 6))


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def compared(folder):
    (section,) = group_runs(load_runs([folder])[0])
    return section, compare(section)


def test_learned_rows_against_all_others(write_study, tmp_path):
    write_study(full=[20, 21, 22, 23], none=[15, 16, 17, 18], learned=[10, 11, 12, 17.5], learned_more=[1, 2, 3, 4])
    section, tests = compared(tmp_path)
    pairs = [(t.learned.method, t.baseline.method, t.average) for t in tests]
    expected = [(a, b) for a in ("learned", "learned_more") for b in ("full", "none")]
    assert pairs == [(*pair, average) for average in ("error", "error_task_mean") for pair in expected]
    errors = {row.method: row.errors("error") for row in section.rows}
    for test in tests[:4]:
        first, second = errors[test.learned.method], errors[test.baseline.method]
        assert test.p == pytest.approx(enumerated(first, second))
        assert test.u == u_of(first, second)
    assert [t.p_holm for t in tests[:4]] == pytest.approx(holm([t.p for t in tests[:4]]))
    assert all(t.p_holm >= t.p for t in tests)


def test_other_networks_are_not_compared(write_run, tmp_path):
    write_run("a", network="one")
    write_run("b", network="two", method="full")
    assert compared(tmp_path)[1] == []


def test_refusals_and_remarks(write_run, write_study, measured, tmp_path):
    write_study(full=[20, 21, 22], none=[15, 16], learned=[10, 11, 12])
    for seed in range(3):
        evaluation = measured(low=30.0 + seed) | ({"error": "nan"} if seed else {})
        write_run(f"prior/{seed}", method="prior", seed=seed, evaluation=evaluation)
        write_run(f"other/{seed}", method="other", seed=seed, evaluation=measured(step=50))
    _, tests = compared(tmp_path)
    full, none, prior, other = tests[:4]
    assert full.p == pytest.approx(0.05)
    assert full.remarks[0] == "p cannot be below 0.05 with so few runs, at least 3 against 4 needed"
    assert (none.p, none.refused) == (None, "too few runs: at least 3 against 4 needed for p < 0.05")
    assert prior.refused == "row C: 2 diverged; an error that is not a number has no rank"
    assert other.refused.startswith("measured otherwise: test curve at step 100, 400 images, against")
    text = comparison_table(*load_runs([tmp_path]))
    assert "2 diverged" in text


def test_other_options_and_seeds_are_remarked(write_run, tmp_path):
    for seed in range(4):
        write_run(f"l{seed}", seed=seed, hparams={"lr": 0.1, "weights": 1})
        write_run(f"f{seed}", seed=seed + 1, method="full", hparams={"lr": 0.2, "sharing": "full"})
    _, tests = compared(tmp_path)
    assert tests[0].remarks == ("not trained alike: lr", "different seeds")


def test_rows_for_csv(write_study, tmp_path):
    write_study(full=[20, 21, 22, 23], learned=[10, 11, 12, 13])
    section, tests = compared(tmp_path)
    first, _ = significance_table(section, tests, lambda path: path.name).records()
    assert (first["p"], first["holm_tests"], first["n_learned"]) == (pytest.approx(1 / 70), 1, 4)
    assert first["learned_runs"] == ["seed0", "seed1", "seed2", "seed3"]


def test_learned_rows_are_tested_against_the_one_with_the_papers_options(write_run, measured, tmp_path):
    for seed in range(4):
        write_run(f"plain{seed}", seed=seed, hparams={"nes_lr": 0.01}, evaluation=measured(low=10 + seed))
        write_run(f"more{seed}", seed=seed, hparams={"nes_lr": 0.01, "credit": "per_task", "ema_decay": 0.9},
                  evaluation=measured(low=1 + seed))  # fmt: skip
        write_run(f"none{seed}", seed=seed, method="none", hparams={}, evaluation=measured(low=20 + seed))
    (section,) = group_runs(load_runs([tmp_path])[0])
    tests = [test for test in compare(section) if test.average == "error"]
    pairs = {(test.learned.options["credit"], test.baseline.label.split(" ")[0]): test for test in tests}
    assert pairs.keys() == {("joint", "none"), ("per_task", "none"), ("per_task", "learned")}
    test = pairs["per_task", "learned"]
    assert test.baseline.options["credit"] == "joint"
    assert (test.u, test.p) == (0, pytest.approx(1 / 70))
    assert test.remarks == ("not trained alike: ema_decay", "different: credit")


def test_where_learned_rows_depart_equally_none_is_the_plain_one(write_run, tmp_path):
    for seed in range(3):
        write_run(f"a{seed}", seed=seed, hparams={"nes_lr": 0.02})
        write_run(f"b{seed}", seed=seed, hparams={"nes_lr": 0.03})
    (section,) = group_runs(load_runs([tmp_path])[0])
    assert compare(section) == []


def test_rows_that_are_not_trained_alike_are_named_with_the_options(write_run, tmp_path):
    """A row called learned is better than one called none; that it also had weight decay must not go without a word."""
    write_run("plus", hparams={"weight_decay": 1e-3, "clip_grad_norm": 1.0, "ema_decay": 0.995})
    write_run("none", method="none", hparams={"weight_decay": 0.0, "clip_grad_norm": None})
    write_run("full", method="full", hparams={"weight_decay": 0.0, "clip_grad_norm": None})
    text = comparison_table(*load_runs([tmp_path]))
    assert (
        "The rows of small are not trained alike: clip_grad_norm none (A, B), 1.0 (C); ema_decay none (A, B), "
        "0.995 (C); weight_decay 0.0 (A, B), 0.001 (C).\n"
    ) in text
    _, tests = compared(tmp_path)
    assert {test.remarks for test in tests} == {("not trained alike: clip_grad_norm, ema_decay, weight_decay",)}
    assert text.count("0.05; not trained alike: clip_grad_norm") == 4


def test_rows_that_are_trained_alike_have_no_such_note(write_run, tmp_path):
    write_run("learned", hparams={"weight_decay": 0.1, "nes_lr": 0.5}, precision="32-true")
    write_run("none", method="none", hparams={"weight_decay": 0.1})
    assert "trained alike" not in comparison_table(*load_runs([tmp_path]))
