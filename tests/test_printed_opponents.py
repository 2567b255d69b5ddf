"""What the research notes, the results and the README print of better trained opponents, recomputed from the runs."""

import csv

import pytest
from locations import REPOSITORY

NOTES = (REPOSITORY / "docs/research_notes.md").read_text(encoding="utf-8")
SECTION = NOTES[NOTES.index("## Better trained opponents") : NOTES.index("## One pass")]
RESULTS = " ".join((REPOSITORY / "docs/results.md").read_text(encoding="utf-8").split())
README = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
BASE = {"initialization": "torch", "weight_decay": "0.001", "lr": "0.001", "augmentation": ""}
CHANGES = (
    {}, {"initialization": "he_uniform"}, {"weight_decay": "0.003"}, {"lr": "0.002"},
    {"augmentation": "RandomAffine"}, {"augmentation": "RandomAffine", "lr": "0.002"},
)  # fmt: skip
ROWS = {
    "full": {"method": "full"},
    "none": {"method": "none"},
    "undirected, then none": {"method": "undirected, then none"},
    "learned, two draws": {"method": "learned", "sgd_samples": "2", "nes_lr": "0.001"},
    "learned, eight draws": {"method": "learned", "sgd_samples": "8"},
}


def csv_rows(name):
    with (REPOSITORY / "docs/data" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ROWS)
def test_validation_errors_are_those_of_the_runs(name):
    cells = []
    for change in CHANGES:
        wanted = BASE | ROWS[name] | change
        found = [
            row
            for row in csv_rows("dkl_mnist_tuning_runs.csv")
            if all(row[key] == value for key, value in wanted.items())
        ]
        assert all(row["step"] == "3000" for row in found)
        cells.append(", ".join(f"{float(row['error']):.2f}" for row in found))
    assert " ".join(f"| {name} | {' | '.join(cells)} |".split()) in [
        " ".join(line.split()) for line in SECTION.splitlines()
    ]


def test_test_errors_with_augmentation_are_those_of_the_runs():
    by = {row["row"]: row for row in csv_rows("dkl_mnist_augmented_runs.csv") if row["seed"] == "0"}
    names = {"none": "none", "undirected": "undirected, then none", "learned": "learned, two draws", "full": "full"}
    for row, name in names.items():
        error, mean = (f"{float(by[row][column]):.2f}" for column in ("error", "error_task_mean"))
        assert f"| {name} | {error} | {mean} | {float(by[row]['parameters_in_use']):,.0f} |" in SECTION
        assert f"{name} {error}" in RESULTS


def test_how_often_the_demo_finds_the_families_is_what_its_runs_say():
    runs = [row for row in csv_rows("demo_runs.csv") if row["method"] == "learned"]
    assert [row["seed"] for row in runs] == ["0", "1", "2", "3", "4"]
    found = sum(len(set(pairs)) == 3 and all(a == b for a, b in pairs) for pairs in map(pairs_of, runs))
    assert f"it found the families {('never', 'once', 'twice', 'three times', 'four times')[found]}" in README
    errors = sorted(float(row["error"]) for row in runs)
    assert f"with errors from {errors[0]:.2f} to {errors[-1]:.2f}" in README


def pairs_of(row):
    """The copies of the first layer that the two tasks of each family use."""
    copies = row["dense1"].split()
    return list(zip(copies[::2], copies[1::2], strict=True))
