"""What docs/results.md prints of runs, recomputed from the runs that are kept: means, deviations, U, p and Holm's p."""

import csv
import re
import statistics

import pytest
from locations import REPOSITORY

from lws_lightning.results.significance import holm, mann_whitney

RESULTS = (REPOSITORY / "docs/results.md").read_text(encoding="utf-8")
TORCH = RESULTS[: RESULTS.index("## DKL-MNIST: uniform He")]
HE = RESULTS[RESULTS.index("## DKL-MNIST: uniform He") : RESULTS.index("## DKL-MNIST: with augmentation")]
COLUMNS = ("error/digits", "error/letters", "error/kuzushiji", "error_task_mean", "error")
AVERAGES = ("error", "error_task_mean")


def runs(name):
    with (REPOSITORY / f"docs/data/dkl_mnist_{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def errors(rows, column="error", **which):
    return [float(row[column]) for row in rows if all(row[key] == value for key, value in which.items())]


def cells(rows, columns=COLUMNS, **which):
    found = [errors(rows, column, **which) for column in columns]
    return [f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}" for values in found]


def compared(rows, family):
    """By average, for each pair of the family U, p and Holm's p as printed."""
    found = {}
    for average in AVERAGES:
        tests = [mann_whitney(errors(rows, average, **one), errors(rows, average, **other)) for one, other in family]
        corrected = holm([p for _, p, _ in tests])
        found[average] = [(f"{u:g}", f"{p:.2g}", f"{h:.2g}") for (u, p, _), h in zip(tests, corrected, strict=True)]
    return found


def table_rows(text):
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|") and " --" not in line]
    return [[cell.strip() for cell in line] for line in lines]


TORCH_ROWS = {
    "full": "A",
    "none": "B",
    "learned": "C",
    "undirected, then none": "D",
    "undirected, then full": "E",
    "learned, `nes_batch: training`": "F",
}


@pytest.mark.parametrize("name", TORCH_ROWS)
def test_the_rows_with_pytorchs_weights_are_those_of_the_runs(name):
    rows, letter = runs("torch_runs"), TORCH_ROWS[name]
    (printed,) = [row for row in table_rows(TORCH) if row[0] == name]
    parameters = statistics.mean(errors(rows, "parameters_in_use", row=letter))
    assert printed == [name, str(len(errors(rows, row=letter))), *cells(rows, row=letter), f"{parameters:,.0f}"]


OPPONENTS = ("B", "A", "D")  # none, full, and undirected, then none


def test_the_tests_with_pytorchs_weights_are_those_of_the_runs():
    rows = runs("torch_runs")
    found = compared(rows, [({"row": "C"}, {"row": other}) for other in OPPONENTS])
    text = " ".join(TORCH.split())
    assert "corrected by Holm for three" in text
    for place, other in enumerate(OPPONENTS):
        number = len(errors(rows, row="C")) * len(errors(rows, row=other))
        (u, p, corrected), (u_mean, p_mean, corrected_mean) = (found[average][place] for average in AVERAGES)
        over_all = f"(U = {u} of {number}, p = {p}, Holm {corrected}; "
        assert over_all + f"task mean U = {u_mean}, p = {p_mean}, Holm {corrected_mean})" in text


LETTERS = {
    "learned, again on another machine": "C",
    "learned, `credit: per_task`": "D",
    "full, `plus`": "A",
    "none, `plus`": "B",
    "learned, `plus`": "E",
    "learned, `plus`, `weight_price: 0.1`": "F",
    "learned, `plus`, two draws in one pass": "G",
}


@pytest.mark.parametrize("name", LETTERS)
def test_the_rows_with_uniform_he_weights_are_those_of_the_runs(name):
    rows, letter = runs("runs"), LETTERS[name]
    printed = next(row for row in table_rows(HE) if row[0] == name)
    parameters = statistics.mean(errors(rows, "parameters_in_use", row=letter))
    assert printed[1:] == [str(len(errors(rows, row=letter))), *cells(rows, row=letter), f"{parameters:,.0f}"]


def test_the_tests_with_uniform_he_weights_are_those_of_the_runs_and_of_one_family():
    rows = runs("runs")
    family = [({"row": one}, {"row": other}) for one, other in ("EB", "EA", "EC", "FA", "DC")]
    found = compared(rows, family)
    printed = table_rows(HE[HE.index("| less | than |") :])[1:]
    assert "corrected by Holm for five" in " ".join(HE.split())
    assert len(printed) == len(family) == 5
    for place, (row, (one, other)) in enumerate(zip(printed, family, strict=True)):
        (u, p, corrected), (u_mean, p_mean, corrected_mean) = (found[average][place] for average in AVERAGES)
        number = len(errors(rows, **one)) * len(errors(rows, **other))
        assert row[2:] == [f"{u} of {number} ({u_mean})", f"{p} ({p_mean})", f"{corrected} ({corrected_mean})"]


def test_no_other_p_value_is_printed():
    tables = table_rows(HE[HE.index("| less | than |") :])
    # Six with PyTorch's weights, six with augmentation, three of two draws, two of dropout, three of CIFAR-100; others
    # stand in a table.
    assert len(re.findall(r"\bp = ", RESULTS)) == 20
    assert tables[0] == ["less", "than", "U", "p", "p (Holm)"]


def test_the_row_of_cross_stitch_is_that_of_the_runs():
    rows = runs("cross_stitch_runs")
    (printed,) = [row for row in table_rows(RESULTS) if row[0] == "cross-stitch"]
    assert printed[1:4] == [str(len(rows)), *cells(rows, ("error_task_mean", "error"))]
    for column, cell in (("parameters_in_use", printed[4]), ("inference_parameters", printed[5])):
        assert f"{statistics.mean(errors(rows, column)):,.0f}" == cell


def test_what_two_draws_cost_is_what_the_runs_say():
    rows = runs("runs")
    eight, two = ([errors(rows, average, row=letter) for average in AVERAGES] for letter in "EG")
    (u, p), (u_mean, p_mean) = (
        (u, min(1.0, 2 * p)) for u, p, _ in (mann_whitney(*pair) for pair in zip(eight, two, strict=True))
    )
    text = " ".join(HE.split())
    assert f"The error is {statistics.mean(two[0]) - statistics.mean(eight[0]):.2f} points higher" in text
    said = f"p = {p:.2g} over all images (U = {u:g} of 100), p = {p_mean:.2g} by task mean (U = {u_mean:g})"
    assert said in text
    assert f"one-sided p = {mann_whitney(two[0], errors(rows, row='B'))[1]:.2g}" in text


def test_what_dropout_does_is_what_its_test_runs_say():
    dropout, text = runs("dropout_test_runs"), " ".join(HE.split())
    digits, letters, kuzushiji, task_mean, everything = cells(dropout)
    assert f"seeds 0 to {len(dropout) - 1} have {everything} % over all images (digits {digits}, letters" in text
    assert f"letters {letters}, kuzushiji {kuzushiji}, task mean {task_mean};" in text
    (none, p_none, _), (learned, p_learned, _) = (
        mann_whitney(errors(dropout), errors(runs("runs"), row=letter)) for letter in "BE"
    )
    assert f"without dropout and with uniform He weights (U = {none:g} of 50, one-sided p = {p_none:.2g})" in text
    assert f"with `plus` (U = {learned:g} of 50, two-sided p = {2 * p_learned:.2g})" in text
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    assert f"with dropout {statistics.mean(errors(dropout)):.2f} (five runs), learned sharing" in readme
