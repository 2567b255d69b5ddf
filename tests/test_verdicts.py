"""How a verdict is held against the truth."""

import csv
import statistics

import pytest
from locations import REPOSITORY

from benchmarks.verdicts import TOLERANCE, draw_subsets, first_images, judge
from lws_lightning.results.significance import mann_whitney

WAYS = ("none", "full", "learned", "undirected")
TRUTH = {"none": [10.0, 11.0], "full": [12.0, 12.4], "learned": [9.0, 10.0]}


def test_subsets_differ_and_are_always_the_same():
    subsets = draw_subsets("abcdef", 3, 20)  # all there are
    assert len({tuple(subset) for subset in subsets}) == 20
    assert all(subset == sorted(set(subset)) and len(subset) == 3 for subset in subsets)
    assert draw_subsets("fedcba", 3, 20) == subsets


def test_a_class_keeps_its_first_training_images_and_all_test_images(tmp_path):
    for split in ("train", "test"):
        folder = tmp_path / "all/task" / split / "class"
        folder.mkdir(parents=True)
        for number in range(4):
            (folder / f"{number}.png").write_text(f"{split} {number}")
    root = first_images(tmp_path / "all", tmp_path / "first", 2)
    found = {
        split: sorted(path.name for path in (root / f"task/{split}/class").iterdir()) for split in ("train", "test")
    }
    assert found == {"train": ["0.png", "1.png"], "test": ["0.png", "1.png", "2.png", "3.png"]}
    assert (root / "task/train/class/1.png").read_text() == "train 1"
    assert first_images(tmp_path / "all", tmp_path / "first", 2) == root  # a second time nothing changes


def difference(points, low, high):
    return {"points": points, "low": low, "high": high}


@pytest.mark.parametrize(
    ("advised", "better_by", "right", "shown", "wrong"),
    [
        # Half a point above the best, and full is worse indeed.
        ("none", {"full": difference(2.0, 1.0, 3.0), "learned": difference(0.1, -1.0, 1.2)}, 1, "full", ""),
        # What it advises is nearly three points above the best.
        ("full", {"none": difference(0.2, -1.0, 1.4), "learned": difference(0.1, None, None)}, 0, "", ""),
        # It says that learned sharing is worse than none, which is not so.
        (
            "none",
            {"full": difference(1.0, 0.1, 1.9), "learned": difference(1.0, 0.5, 1.5)},
            0,
            "full learned",
            "learned",
        ),
    ],
)
def test_a_verdict_is_right_if_its_advice_is_good_and_what_it_says_is_so(advised, better_by, right, shown, wrong):
    row = judge({"recommended": advised, "better_by": better_by}, TRUTH)
    assert (row["right"], row["shown"], row["wrongly shown"], row["best"]) == (right, shown, wrong, "learned")
    assert row["none"] == "10.50 ± 0.71"


def test_what_the_page_says_of_verdicts_is_what_their_runs_say():
    with (REPOSITORY / "docs/data/verdicts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({row["tasks"] for row in rows}) == 20
    always = dict.fromkeys(WAYS, 0)
    for row in rows:
        mean = {name: float(row[name].split()[0]) for name in WAYS}
        regret = mean[row["advised"]] - min(mean.values())
        assert regret == pytest.approx(float(row["regret"]), abs=0.011)  # both are rounded
        assert int(row["right"]) == (float(row["regret"]) <= TOLERANCE and not row["wrongly shown"])
        for name, error in mean.items():
            always[name] += error - min(mean.values()) <= TOLERANCE
    page = " ".join((REPOSITORY / "docs/compare.md").read_text(encoding="utf-8").split())
    right = sum(int(row["right"]) for row in rows)
    assert f"The verdict was right in {right} of 20 comparisons" in page
    assert (
        f"always advising separate networks would have been right in {always['none']}, one network for all in "
        f"{always['full']}, learned sharing in {always['learned']}, undirected sharing in {always['undirected']}"
    ) in page


def test_the_truth_of_six_tasks_is_that_of_its_runs():
    with (REPOSITORY / "docs/data/compare_six_truth_runs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    errors = {name: [float(row["error_task_mean"]) for row in rows if row["method"] == name] for name in WAYS}
    assert {name: len(found) for name, found in errors.items()} == dict.fromkeys(WAYS, 10)
    assert {row["step"] for row in rows} == {"2040"}
    printed = {
        name: f"{statistics.mean(found):.2f} ± {statistics.stdev(found):.2f} %" for name, found in errors.items()
    }
    tested = {name: mann_whitney(errors["none"], errors[name])[:2] for name in WAYS if name != "none"}
    (u, p), (u_learned, p_learned), (u_undirected, p_undirected) = (
        tested[name] for name in ("full", "learned", "undirected")
    )
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"separate networks have {printed['none']} (mean over tasks), one network for all {printed['full']} "
        f"(U = {u:g} of 100, one-sided p = {p:.2g}), learned sharing {printed['learned']} (U = {u_learned:g}, "
        f"p = {p_learned:.2g}) and undirected sharing {printed['undirected']} "
        f"(U = {u_undirected:g}, p = {p_undirected:.2g};"
    ) in readme
    assert (
        f"one network for all is {statistics.mean(errors['full']) - statistics.mean(errors['none']):.1f} points"
        in readme
    )
