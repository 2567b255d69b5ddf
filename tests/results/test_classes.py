"""The classes of a report, over the runs of a row."""

import csv

import pytest

from lws_lightning.records import CLASSES_FILE, ClassResult, ClassResults, TaskClasses, find_classes
from lws_lightning.results import load_runs
from lws_lightning.results.report import make_report

NAMES = ["a", "b <i>", "c"]


@pytest.fixture
def write(write_run, measured):
    def write(name, *matrices, seed=0, names=NAMES):
        folder = write_run(name, method="none", seed=seed, test=measured(prefix="test"))
        results = {task: TaskClasses.of(names, m) for task, m in zip(("low", "high"), matrices, strict=False)}
        (folder / CLASSES_FILE).write_text(ClassResults(results).text(), encoding="utf-8")
        return folder

    return write


def test_the_file_holds_the_matrix(tmp_path):
    matrix = [[5, 0, 1], [2, 0, 0], [0, 0, 0]]
    (tmp_path / CLASSES_FILE).write_text(ClassResults({"été": TaskClasses.of(NAMES, matrix)}).text(), encoding="utf-8")
    found = find_classes(tmp_path).tasks["été"]
    assert found.matrix([0, 1, 2]) == matrix
    assert found.classes() == [
        ClassResult("a", 6, 5, "c", 1), ClassResult("b <i>", 2, 0, "a", 2), ClassResult("c", 0, 0, "", 0)
    ]  # fmt: skip
    assert [each.accuracy for each in found.classes()] == [pytest.approx(500 / 6), 0, None]
    assert found.most_confused(2) == [0, 1]  # 3 and 2 errors
    assert found.matrix([0, 1]) == [[5, 0], [2, 0]]


@pytest.mark.parametrize("text", ["", "[]", '{"tasks": {"a": {"class_names": ["x"], "counts": [[0, 1, 2]]}}}'])
def test_a_damaged_file_is_none(tmp_path, text):
    assert find_classes(tmp_path) is None
    (tmp_path / CLASSES_FILE).write_text(text, encoding="utf-8")
    assert find_classes(tmp_path) is None


def test_runs_of_a_row_are_added_up(write, tmp_path):
    write("r/0", [[5, 1, 0], [0, 4, 0], [0, 0, 3]], [[9, 0, 0], [0, 9, 0], [0, 0, 9]], seed=0)
    write("r/1", [[4, 2, 0], [0, 4, 0], [0, 0, 3]], [[9, 0, 0], [0, 9, 0], [0, 0, 9]], seed=1)
    report = make_report(load_runs([tmp_path])[0])
    low, high = report.parts[0].confusions
    assert (low.task, low.runs, high.task) == ("low", 2, "high")
    assert [[cell.images for cell in cells] for _, cells in low.matrix] == [[9, 3, 0], [0, 8, 0], [0, 0, 6]]
    page = report.html()
    assert "A none, low" in page
    assert "b &lt;i&gt; (3)" in page
    assert "75.0 %" in page
    report.write(tmp_path / "out")
    lines = list(csv.DictReader((tmp_path / "out/classes.csv").open(encoding="utf-8")))
    assert len(lines) == 6
    assert (lines[0]["class"], lines[0]["images"], lines[0]["accuracy"], lines[0]["times"]) == ("a", "12", "75.0", "3")


def test_a_row_without_the_file_of_each_run_has_no_classes(write, tmp_path):
    write("r/0", [[5]], seed=0, names=["a"])
    (write("r/1", [[5]], seed=1, names=["a"]) / CLASSES_FILE).unlink()
    report = make_report(load_runs([tmp_path])[0])
    assert report.parts[0].confusions == []
    assert "<h3>Classes" not in report.html()


def test_many_classes_show_those_with_the_most_errors(write, tmp_path):
    names = [f"class {number}" for number in range(60)]
    matrix = [[10 * (i == j) + 3 * (i == 59 and j == 7) for j in range(60)] for i in range(60)]
    write("r/0", matrix, names=names)
    (low,) = make_report(load_runs([tmp_path])[0]).parts[0].confusions
    assert len(low.names) == 20
    assert {"class 7", "class 59"} <= set(low.names)
