"""The improvement over no sharing, against Vandenhende et al.'s formula written out."""

import csv
import io

import pytest
from rich.console import Console

from lws_lightning.results import load_runs
from lws_lightning.results.document import print_blocks
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.improvement import improvements
from lws_lightning.results.report import make_report


def evaluation(measured, **errors):
    tasks = {name: {"error": error, "images": 100} for name, error in errors.items()}
    mean = sum(errors.values()) / len(errors)
    return measured() | {"error": mean, "error_task_mean": mean, "tasks": tasks}


@pytest.fixture
def write(write_run, measured):
    def write(name, method, seed=0, options=None, **errors):
        write_run(
            f"{name}/{seed}", method=method, seed=seed, hparams=options or {}, evaluation=evaluation(measured, **errors)
        )

    return write


def of(folder):
    (section,) = group_runs(load_runs([folder])[0])
    return {each.row.letter: each for each in improvements(section)}, {row.label: row for row in section.rows}


def test_delta_p_is_the_mean_over_tasks_of_the_relative_change_of_the_accuracy(write, tmp_path):
    write("none", "none", 0, low=20.0, high=50.0)
    write("none", "none", 1, low=30.0, high=50.0)  # mean accuracies 75 and 50
    write("learned", "learned", 0, low=10.0, high=60.0)
    write("learned", "learned", 1, low=25.0, high=40.0)
    found, rows = of(tmp_path)
    (each,) = found.values()
    assert (each.row, each.baseline) == (rows["learned"], rows["none"])
    assert each.tasks["low"] == pytest.approx([100 * (90 - 75) / 75, 0.0])
    assert each.tasks["high"] == pytest.approx([-20.0, 20.0])
    assert each.means == pytest.approx([0.0, 10.0])


def test_it_is_in_the_table_the_terminal_the_page_and_a_file(write, tmp_path):
    write("none", "none", low=20.0, high=50.0)
    write("learned", "learned", low=10.0, high=60.0)
    report = make_report(load_runs([tmp_path])[0], figures=False)
    page, text = report.html(), io.StringIO()
    print_blocks(report.blocks(), Console(file=text, width=100))
    for shown in (report.markdown(), page, text.getvalue()):
        for number in ("+12.50", "-20.00", "-3.75"):
            assert number in shown
    assert "Improvement over no sharing" in page
    report.write(tmp_path / "out")
    (line,) = csv.DictReader((tmp_path / "out" / "improvement.csv").open(encoding="utf-8"))
    assert (line["row"], line["baseline"], float(line["delta_p/mean"])) == ("B", "A", pytest.approx(-3.75))
    assert float(line["change/low/mean"]) == pytest.approx(12.5)


def test_the_row_without_sharing_that_is_trained_most_alike(write, tmp_path):
    write("none", "none", options={"lr": 0.001}, low=20.0, high=20.0)
    write("other", "none", options={"lr": 0.1}, low=60.0, high=60.0)
    write("learned", "learned", options={"lr": 0.1}, low=20.0, high=20.0)
    found, rows = of(tmp_path)
    learned = found[rows["learned"].letter]
    assert learned.baseline.options["lr"] == 0.1
    assert learned.means == pytest.approx([100.0])


def test_nothing_to_compare(write, tmp_path):
    write("learned", "learned", low=20.0, high=20.0)
    report = make_report(load_runs([tmp_path])[0], figures=False)
    assert report.parts[0].improvement is None
    assert "no sharing" not in report.markdown()


def test_a_task_whose_accuracy_is_nothing_has_no_relative_change(write, tmp_path):
    write("none", "none", low=100.0, high=50.0)
    write("full", "full", low=10.0, high=25.0)
    found, _ = of(tmp_path)
    (each,) = found.values()
    assert set(each.tasks) == {"high"}
    assert each.means == pytest.approx([50.0])
