"""What a pair of tasks gains, and whether a search shares where there is a gain, from small tables."""

import itertools

import numpy as np
import pytest
import yaml
from locations import REPOSITORY

from benchmarks.scripts10 import agreement, gains, read, sharing, symmetric, tables, write_pairs

TASKS = ["a", "b", "c", "d"]


def row(method, seed, tasks, errors, copies="0 0"):
    return {
        "method": method,
        "seed": str(seed),
        "tasks": " ".join(tasks),
        "errors": " ".join(map(str, errors)),
        "error_task_mean": str(sum(errors) / len(errors)),
        "parameters_in_use": "1000",
        "copies": copies,
    }


def rows_of_pairs(gain):
    """Runs in which task t has the error 10 + t alone, and what `gain(seed, a, b)` says less beside b."""
    rows = []
    for seed in (3, 5):
        rows.append(row("none", seed, TASKS[::-1], [13, 12, 11, 10], "0 1 2 3"))
        for a, b in itertools.combinations(range(4), 2):
            errors = [10 + a - gain(seed, a, b), 10 + b - gain(seed, b, a)]
            rows.append(row("full", seed, [TASKS[a], TASKS[b]], errors))
    return rows


def test_a_file_for_each_pair_limits_the_data_to_it(tmp_path):
    files = write_pairs(tmp_path / "pairs", ["b", "c", "a"])
    assert [file.name for file in files] == ["a--b.yaml", "a--c.yaml", "b--c.yaml"]
    assert yaml.safe_load(files[1].read_text()) == {"data": {"init_args": {"tasks": ["a", "c"]}}}


def test_gains_are_those_of_each_direction_and_seed():
    tasks, found = gains(rows_of_pairs(lambda seed, a, b: seed + a / 2 - b / 4))
    assert tasks == TASKS
    for (place, seed), a, b in itertools.product(enumerate((3, 5)), range(4), range(4)):
        assert found[place, a, b] == pytest.approx(seed + a / 2 - b / 4 if a != b else 0)
    assert symmetric(found)[0, 1, 2] == pytest.approx(3 + (1 + 2) / 8)


@pytest.mark.parametrize(("change", "message"), [("missing", "no run of"), ("twice", "two runs of")])
def test_a_pair_is_there_once(change, message):
    rows = rows_of_pairs(lambda seed, a, b: 0)
    rows = rows[:-1] if change == "missing" else [*rows, rows[-1]]
    with pytest.raises(ValueError, match=message):
        gains(rows)


def test_sharing_counts_layers_in_the_order_asked_for():
    found = sharing(row("learned", 0, ["b", "a", "c"], [1, 1, 1], "0 0 1, 2 1 2"), ["a", "b", "c"])
    assert found.tolist() == [[1, 0.5, 0], [0.5, 1, 0.5], [0, 0.5, 1]]


def test_agreement_is_found_and_its_p_value_is_that_of_all_permutations():
    generator = np.random.default_rng(0)
    gain = symmetric(generator.normal(size=(5, 5)))
    shared = gain + symmetric(generator.normal(size=(5, 5)))
    found, p = agreement(gain, shared)
    pairs = np.triu_indices(5, 1)

    def correlation(order):
        from scipy.stats import spearmanr

        return spearmanr(gain[pairs], shared[np.ix_(order, order)][pairs]).statistic

    every = [correlation(order) for order in itertools.permutations(range(5))]
    assert found == pytest.approx(every[0])
    assert p == pytest.approx(np.mean([value >= found - 1e-12 for value in every]), abs=0.02)
    assert agreement(gain, gain)[0] == pytest.approx(1)
    assert agreement(gain, np.ones((5, 5)))[1] == 1  # nothing to say


def test_tables_have_a_line_for_each_task_and_method():
    pairs = rows_of_pairs(lambda seed, a, b: 1.0 if abs(a - b) == 1 else -1.0)
    methods = [row("learned", seed, TASKS, [10, 11, 12, 13], "0 0 1 1" if seed else "0 1 1 0") for seed in (0, 1)] + [
        row("none", 0, TASKS, [10, 11, 12, 13], "0 1 2 3")
    ]
    lines = tables(pairs, methods)
    assert "| a | 10.00 ± 0.00 |  | +1.0 | -1.0 | -1.0 |" in lines
    assert "3 of 6 pairs gain, from -1.00 to +1.00 points, +0.00 in the mean." in "\n".join(lines)
    assert any(line.startswith("| learned | 2 | 11.50 ± 0.00 | 1,000 | ") for line in lines)
    assert "| none | 1 | 11.50 | 1,000 |  |  |" in lines


def test_the_page_says_what_its_runs_say():
    pairs, methods = (read(REPOSITORY / f"docs/data/scripts10_{name}_runs.csv") for name in ("pairs", "methods"))
    page = (REPOSITORY / "docs/benchmark.md").read_text(encoding="utf-8")
    for line in tables(pairs, methods):
        assert line in page
    text = " ".join(page.split())
    names, by_seed = gains(pairs)
    of_pairs = symmetric(by_seed)
    above = np.triu_indices(len(names), 1)
    assert f"{(of_pairs < 0).all(0)[above].sum()} of the 45 pairs lose with every seed" in text
    always = [(names[a], names[b]) for a, b in zip(*above, strict=True) if (of_pairs[:, a, b] > 0).all()]
    assert always == [("kannada", "letters")]
    mean = of_pairs.mean(0)
    relatives = [("kannada", "kannada_abroad"), ("letters", "omniglot_latin")]
    gain, loss = (mean[names.index(one), names.index(other)] for one, other in relatives)
    assert f"gain {gain:.2f} points" in text
    assert f"lose {-loss:.2f}." in text
    shared = [sharing(row, names) for row in methods if row["method"] == "learned"]
    *first, last = (f"{agreement(mean, each)[0]:.2f}" for each in shared)
    assert f"the correlations are {', '.join(first)} and {last}." in text
    assert f"A pair shares {np.mean([each[above].mean() for each in shared]):.2f} of its layers" in text
