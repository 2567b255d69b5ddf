"""What docs/results.md prints of complete CIFAR-100, recomputed from the runs that are kept."""

import csv
import statistics

import pytest
from locations import REPOSITORY

from lws_lightning.results.significance import holm, mann_whitney

PAPER = {"full": "39.08 ± 0.36", "none": "36.50 ± 0.43", "learned": "37.43 ± 0.53"}
LESS = [("none", "full"), ("learned", "full"), ("none", "learned")]
"""The paper's order."""


@pytest.fixture(scope="module")
def runs():
    with (REPOSITORY / "docs/data/cifar100_runs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {(row["step"], row["images"], row["data_options"]) for row in rows} == {("4000", "10000", "")}
    return {name: [row for row in rows if row["method"] == name] for name in PAPER}


@pytest.fixture(scope="module")
def section():
    text = (REPOSITORY / "docs/results.md").read_text(encoding="utf-8")
    start = text.index("## CIFAR-100, complete")
    return text[start : text.index("\n## ", start + 1)]


@pytest.mark.parametrize("name", PAPER)
def test_rows_are_those_of_the_runs(runs, section, name):
    (line,) = [line for line in section.splitlines() if line.startswith(f"| {name} |")]
    errors = [float(row["error"]) for row in runs[name]]
    parameters = statistics.mean(float(row["parameters_in_use"]) for row in runs[name])
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        *(name, str(len(errors)), f"{statistics.mean(errors):.2f} ± {statistics.stdev(errors):.2f}"),
        *(PAPER[name], f"{parameters:,.0f}"),
    ]
    assert len({row["seed"] for row in runs[name]}) == len(errors)


def test_tests_are_those_of_the_runs(runs, section):
    errors = {name: [float(row["error"]) for row in rows] for name, rows in runs.items()}
    tests = [mann_whitney(errors[one], errors[other]) for one, other in LESS]
    corrected = holm([p for _, p, _ in tests])
    text = " ".join(section.split())
    assert "corrected by Holm for three" in text
    for (one, other), (u, p, _), after in zip(LESS, tests, corrected, strict=True):
        pairs = len(errors[one]) * len(errors[other])
        assert f"{one} below {other}: U = {u:g} of {pairs}, p = {p:.2g}, Holm {after:.2g}" in text


def test_readme_says_the_same(runs):
    mean = {name: statistics.mean(float(row["error"]) for row in rows) for name, rows in runs.items()}
    assert mean["none"] < mean["learned"] < mean["full"]
    assert all(abs(mean[name] - float(PAPER[name].split()[0])) < 1.2 for name in PAPER)
    words = {2: "two", 3: "three", 4: "four", 5: "five"}[min(len(rows) for rows in runs.values())]
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    none, learned, full = (f"{mean[name]:.1f} ({PAPER[name].split()[0]})" for name in ("none", "learned", "full"))
    assert (
        f"The paper's order is reproduced on complete CIFAR-100 ({words} runs each; the paper's in "
        f"brackets): separate networks {none}, learned sharing {learned}, one network for all {full}."
    ) in readme
