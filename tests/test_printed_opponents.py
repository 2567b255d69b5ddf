"""What the research notes and the README print of better trained opponents, recomputed from the runs."""

import csv

import pytest
from locations import REPOSITORY

NOTES = (REPOSITORY / "docs/research_notes.md").read_text(encoding="utf-8")
SECTION = NOTES[NOTES.index("## Better trained opponents") : NOTES.index("## One pass")]
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


def table(name):
    with (REPOSITORY / f"docs/data/dkl_mnist_{name}_runs.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ROWS)
def test_validation_errors_are_those_of_the_runs(name):
    cells = []
    for change in CHANGES:
        wanted = BASE | ROWS[name] | change
        found = [row for row in table("tuning") if all(row[key] == value for key, value in wanted.items())]
        assert all(row["step"] == "3000" for row in found)
        cells.append(", ".join(f"{float(row['error']):.2f}" for row in found))
    assert " ".join(f"| {name} | {' | '.join(cells)} |".split()) in [
        " ".join(line.split()) for line in SECTION.splitlines()
    ]


def test_test_errors_with_augmentation_are_those_of_the_runs():
    by = {row["row"]: row for row in table("augmented") if row["seed"] == "0"}
    names = {"none": "none", "undirected": "undirected, then none", "learned": "learned, two draws", "full": "full"}
    for row, name in names.items():
        error, mean = (f"{float(by[row][column]):.2f}" for column in ("error", "error_task_mean"))
        assert f"| {name} | {error} | {mean} | {float(by[row]['parameters_in_use']):,.0f} |" in SECTION
        assert f"{name} {error}" in README
