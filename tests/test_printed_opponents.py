"""What the research notes, the results and the README print of better trained opponents, recomputed from the runs."""

import csv
import statistics

import pytest
from locations import REPOSITORY

from lws_lightning.results.significance import holm, mann_whitney

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


def test_step_sizes_with_augmentation_are_those_of_the_runs():
    found = [row for row in csv_rows("dkl_mnist_tuning_runs.csv") if row["augmentation"] == "affine of a batch"]
    names = {"none": "none", "learned": "learned, two draws"}
    for row in found:
        errors = f"{float(row['error']):.2f} | {float(row['error_task_mean']):.2f}"
        step_size = f"| {row['nes_lr']} ".replace("|  ", "| ")
        assert f"| {names[row['method']]} {step_size}| {errors} | {int(row['parameters_in_use']):,} |" in SECTION
    assert len(found) == 4


TUNED = (
    {}, {"initialization": "he_uniform"}, {"weight_decay": "0.0003"}, {"weight_decay": "0.003"}, {"lr": "0.004"},
)  # fmt: skip
TESTED = {"full": "A", "none": "B", "undirected": "D", "learned": "C"}
START = {"initialization": "torch", "weight_decay": "0.001", "lr": "0.002"}


@pytest.mark.parametrize("method", TESTED)
def test_every_method_was_tuned_by_one_procedure_and_tested_with_what_it_chose(method):
    rows = [row for row in csv_rows("dkl_mnist_augmented_tuning_runs.csv") if row["method"] == method]
    assert len(rows) == len(TUNED)
    errors = []
    for change in TUNED:
        (found,) = [row for row in rows if all(row[key] == value for key, value in (START | change).items())]
        assert (found["seed"], found["step"], found["images"]) == ("100", "3000", "11060")
        errors.append(float(found["error_task_mean"]))
    best = min(errors)
    cells = [f"**{error:.2f}**" if error == best else f"{error:.2f}" for error in errors]
    assert f"| {method} | {' | '.join(cells)} |" in SECTION
    chosen = START | TUNED[errors.index(best)]
    tested = [row["options"] for row in csv_rows("dkl_mnist_augmented_runs.csv") if row["row"] == TESTED[method]]
    assert len(tested) == 10
    for options in tested:
        assert f"weight_decay={float(chosen['weight_decay']):g}" in options
        assert f"lr={float(chosen['lr']):g}" in options
        assert ("initialization=he_uniform" in options) == (chosen["initialization"] == "he_uniform")


def test_test_errors_with_augmentation_are_those_of_the_runs():
    rows = csv_rows("dkl_mnist_augmented_runs.csv")
    columns = ("error/digits", "error/letters", "error/kuzushiji", "error_task_mean", "error")
    by = {name: [row for row in rows if row["row"] == letter] for name, letter in TESTED.items()}
    for name, runs in by.items():
        values = [[float(row[column]) for row in runs] for column in columns]
        cells = [f"{statistics.mean(each):.2f} ± {statistics.stdev(each):.2f}" for each in values]
        parameters = statistics.mean(float(row["parameters_in_use"]) for row in runs)
        assert f"| {name} | {len(runs)} | {' | '.join(cells)} | {parameters:,.0f} |" in RESULTS
    for average, intro in (("error", "Over all images"), ("error_task_mean", "by task mean")):
        errors = {name: [float(row[average]) for row in runs] for name, runs in by.items()}
        tests = [two_sided(errors[name], errors["learned"]) for name in ("none", "undirected", "full")]
        corrected = holm([p for _, p in tests])
        said = [f"U = {u:g}, p = {p:.2g}, Holm {h:.2g}" for (u, p), h in zip(tests, corrected, strict=True)]
        assert "{} none: {}; undirected: {}; full: {}".format(intro, *said) in RESULTS
    assert "corrected by Holm for these three" in RESULTS
    started = [[float(row["error"]) for row in rows if row["row"] == letter] for letter in "EF"]  # full, undirected
    said = [f"{statistics.mean(each):.2f} ± {statistics.stdev(each):.2f}" for each in started]
    assert f"(seeds 0 to 3: {said[0]} and {said[1]})" in RESULTS
    full, none, learned = (statistics.mean(float(row["error"]) for row in by[n]) for n in ("full", "none", "learned"))
    assert f"separate networks are better** by {learned - none:.1f} points" in RESULTS
    assert (
        f"and {statistics.mean(started[0]) - none:.1f} (with its first options) to {full - none:.1f} points" in RESULTS
    )


def two_sided(one, other):
    """U of the test that `one` is less, and the p-value of the test that the two differ."""
    (u, p, _), (_, reverse, _) = mann_whitney(one, other), mann_whitney(other, one)
    return u, min(1.0, 2 * min(p, reverse))


def test_the_errors_of_the_readme_are_those_of_the_runs():
    """Its table of which method to use, and what it says learned sharing is for."""
    table = README[README.index("## Which should I use?") : README.index("## Where to go on")]

    def mean(name, key, value):
        return f"{statistics.mean(float(row['error']) for row in csv_rows(name) if row[key] == value):.2f}"

    probe = "cifar100_probe_runs.csv", "data_options"
    few, many = (mean(*probe, f"train_images_per_task={images}") for images in (125, 500))
    assert f"{few} with 25 images a class and {many} with 100" in table
    augmented = {name: mean("dkl_mnist_augmented_runs.csv", "row", letter) for name, letter in TESTED.items()}
    line = "{none} and {full} (a third of the parameters); learned sharing {learned}, its control, undirected sharing, "
    assert line.format(**augmented) + f"{augmented['undirected']} |" in table
    assert "separate networks {none} %, learned sharing {learned} % (below)".format(**augmented) in README
    full, none, learned, undirected = (mean("dkl_mnist_torch_runs.csv", "row", row) for row in "ABCD")
    assert f"({learned} against {none} with the paper's options)" in table
    assert f"no search directs ({undirected}, four runs)" in table
    assert f"{learned} % error on digits" in README
    assert f"networks {none} % and one network for all {full} %" in README


def test_what_the_readme_says_of_the_demo_is_what_its_runs_say():
    by = {
        name: [row for row in csv_rows("demo_runs.csv") if row["method"] == name]
        for name in ("learned", "none", "full", "undirected")
    }
    text = " ".join(README.split())
    for runs in by.values():
        assert [row["seed"] for row in runs] == ["0", "1", "2", "3", "4"]
    errors = {name: [float(row["error"]) for row in runs] for name, runs in by.items()}
    spans = {name: f"{min(values):.2f} to {max(values):.2f}" for name, values in errors.items()}
    assert f"with errors from {spans['learned']}: below separate networks ({spans['none']}, one-sided" in text
    p = {name: mann_whitney(errors["learned"], errors[name])[1] for name in ("none", "full", "undirected")}
    assert f"Mann-Whitney p = {p['none']:.2g}), one network for all ({spans['full']}, p = {p['full']:.2g})" in text
    assert f"methods/undirected.yaml`; {spans['undirected']}, p = {p['undirected']:.2g})" in text
    for name, runs in by.items():
        if name == "undirected":  # not in the table of `make demo`
            continue
        assert f"| {float(runs[0]['error']):.2f} | {int(runs[0]['parameters_in_use']):,} |" in README, name
    for row in by["learned"]:  # each family has a copy of the first layer, and the second one is common to all
        copies = row["dense1"].split()
        assert copies[::2] == copies[1::2]
        assert len(set(copies)) == 3
        assert len(set(row["dense2"].split())) == 1
    assert "So it is with each of the seeds 0 to 4" in text


NAMES = {
    "cifar100": "CIFAR-100, 100 images a class",
    "dkl": "digits, letters, kuzushiji",
    "omniglot": "ten Omniglot alphabets",
}


def test_the_errors_over_a_pretrained_network_are_those_of_the_runs():
    groups = {}
    for row in csv_rows("trunk_features_runs.csv"):
        groups.setdefault((row["data"], row["method"]), []).append(row)
    for (data, method), runs in groups.items():
        errors = [float(row["error_task_mean"]) for row in runs]
        parameters = statistics.mean(float(row["parameters_in_use"]) for row in runs)
        spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
        cells = [NAMES[data], method, str(len(errors)), f"{parameters:,.0f}", f"{statistics.mean(errors):.2f}{spread}"]
        assert f"| {' | '.join(cells)} |" in NOTES

    def errors(data, method):
        return [float(row["error_task_mean"]) for row in groups[data, method]]

    notes = " ".join(NOTES.split())
    for one, other, data, intro in (
        ("undirected", "learned", "dkl", "one-sided "),
        ("undirected", "learned", "omniglot", ""),
    ):
        u, p, _ = mann_whitney(errors(data, one), errors(data, other))
        assert f"(U = {u:g} of 25, {intro}p = {p:.2g})" in notes


def test_what_dropout_does_is_what_its_runs_say():
    by = {}
    for row in csv_rows("dkl_mnist_dropout_runs.csv"):
        assert row["step"] == "3000"
        by.setdefault(row["dropout"], []).append(float(row["error"]))
    notes = " ".join(NOTES.split())
    said = [f"{rate} {' and '.join(f'{error:.2f}' for error in errors)}" for rate, errors in by.items()]
    assert f"validation as above): {'; '.join(said)}; without it 12.32 and 12.04" in notes
    without = [
        float(row["error"])
        for row in csv_rows("dkl_mnist_tuning_runs.csv")
        if row["method"] == "none" and not row["augmentation"] and all(row[key] == BASE[key] for key in BASE)
    ]
    assert sorted(without) == [12.04, 12.32]
