"""What the research notes print of runs on planted families, and of simulated step sizes, recomputed from the files."""

import csv
import statistics

import pytest
from locations import REPOSITORY

from benchmarks.planted_table import read, summary
from lws_lightning.results.significance import mann_whitney

NOTES = (REPOSITORY / "docs/research_notes.md").read_text(encoding="utf-8")
LINES = NOTES.splitlines()
RULES = REPOSITORY / "docs/data/planted_rules.csv"
FINAL_RULE = {"search": "per_task", "nes_lr": "0.03", "critical_z": "20.0", "decay": "0.0"}


def table(name):
    with (REPOSITORY / "docs/data" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["planted_rules", "planted_levers"])
def test_every_rule_stands_in_the_notes_as_its_runs_say(name):
    missing = [line for line in summary(read(RULES.with_name(f"{name}.csv"))) if line not in LINES]
    assert not missing


def final_errors(**which):
    rows = [row for row in read(RULES) if int(row["seed"]) < 100]
    return [float(row["error"]) for row in rows if all(row[key] == value for key, value in which.items())]


@pytest.mark.parametrize("control", ["undirected-none", "undirected-full"])
def test_the_tests_against_undirected_training_are_those_of_the_runs(control):
    learned, undirected = final_errors(**FINAL_RULE), final_errors(search=control, decay="0.0")
    u, p, _ = mann_whitney(learned, undirected)
    assert f"{control}: U = {u:g} of {len(learned) * len(undirected)}, p = {p:.2g}" in " ".join(NOTES.split())


@pytest.mark.parametrize(
    ("control", "decay"),
    [
        *((control, "0.0008") for control in ("undirected-none", "undirected-full", "none", "full")),
        *((control, "0.0003") for control in ("undirected-none", "none", "full")),
    ],
)
def test_the_tests_with_weight_decay_are_those_of_the_runs(control, decay):
    steps = "6000" if decay == "0.0008" else "5000"
    learned, other = (final_errors(search=search, decay=decay, steps=steps) for search in ("per_task", control))
    assert len(learned) == len(other) == 10
    u, p, _ = mann_whitney(learned, other)
    word = "" if decay == "0.0008" else "with "
    assert f"- {control}, {word}decay {decay}: U = {u:g} of 100, p = {p:.2g}" in LINES


def test_the_simulated_step_sizes_are_those_of_the_file():
    rows = table("step_size_signal.csv")
    by = {(row["rule"], row["step"]): row for row in rows}
    for rule in dict.fromkeys(row["rule"] for row in rows):
        early, late = by[rule, "1000"], by[rule, "5000"]
        cells = [f"{float(row[name]):.2f}" for row in (early, late) for name in ("right", "kept")]
        assert f"| {rule} | " + " | ".join(cells) + " |" in LINES


def test_the_simulated_noise_is_that_of_the_file():
    by = {(row["critical_z"], row["copies"], row["step"]): row for row in table("step_size_noise.csv")}
    for critical_z, copies in dict.fromkeys(key[:2] for key in by):
        looks = [by[critical_z, copies, step] for step in ("1000", "20000", "100000")]
        cells = [f"{float(row['moved']):.2f}" for row in looks] + [f"{float(looks[-1]['bound']):.4f}"]
        assert f"| {critical_z} | {copies} | " + " | ".join(cells) + " |" in LINES


def test_fully_adaptive_sharing_on_planted_families_is_that_of_the_file():
    rows = table("planted_fully_adaptive_runs.csv")
    found = {name: [float(row[name]) for row in rows] for name in ("dense1", "error")}
    printed = {
        name: f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}" for name, values in found.items()
    }
    text = " ".join(NOTES.split())
    assert f"adjusted Rand index of {printed['dense1']} in the first layer and an error of {printed['error']} (" in text


RESTARTED = {"search": "per_task", "restarts": "4", "decay": "0.0003", "steps": "6000"}
CONTROLS = {
    "undirected-none": {"search": "undirected-none"},
    "none": {"search": "none"},
    "full": {"search": "full"},
    "without restarts": {"search": "per_task", "restarts": "0"},
}


@pytest.mark.parametrize("control", CONTROLS)
def test_the_tests_of_restarts_are_those_of_the_runs(control):
    learned, other = final_errors(**RESTARTED), final_errors(**RESTARTED | {"restarts": "0"} | CONTROLS[control])
    assert len(learned) == len(other) == 16
    u, p, _ = mann_whitney(learned, other)
    assert f"- {control}: U = {u:g} of 256, p = {p:.2g}" in LINES


def test_the_readme_has_the_errors_on_fresh_seeds():
    learned, none, full, undirected = (
        statistics.mean(final_errors(**RESTARTED | {"restarts": "0"} | which))
        for which in (RESTARTED, CONTROLS["none"], CONTROLS["full"], CONTROLS["undirected-none"])
    )
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    assert f"{learned:.2f} against {none:.2f} without sharing, {undirected:.2f} undirected and {full:.2f}" in readme
    runs = [row for row in read(RULES) if int(row["seed"]) < 100]
    found = [
        sum(float(row["dense1"]) == 1 for row in runs if all(row[k] == v for k, v in (RESTARTED | which).items()))
        for which in (RESTARTED, CONTROLS["without restarts"])
    ]
    assert f"it finds it in {found[0]} of 16 draws" in readme
    algorithm = " ".join((REPOSITORY / "docs/algorithm.md").read_text(encoding="utf-8").split())
    assert f"four restarts find it in {found[0]} of 16 runs instead of {found[1]}" in algorithm
