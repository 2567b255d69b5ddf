"""The gain of learned sharing, split between the control and the search."""

import pytest

from lws_lightning.results import load_runs
from lws_lightning.results.gain import gain_sentences
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.report import make_report
from lws_lightning.results.significance import compare

ERRORS = {"learned": [7.0, 8.0, 9.0], "none": [12.0, 13.0, 14.0], "undirected": [10.0, 11.0, 12.0]}


@pytest.fixture
def write_control(write_run, measured):
    def write(errors=ERRORS, then="none", lr=0.001):
        for method, values in errors.items():
            for seed, error in enumerate(values):
                options = {"then": then, "lr": lr} if method == "undirected" else {"lr": 0.001}
                write_run(
                    f"{method}/{seed}", method=method, seed=seed, hparams=options, evaluation=measured(low=error),
                    training_options=["lr"],
                )  # fmt: skip

    return write


def sentences(folder):
    (section,) = group_runs(load_runs([folder])[0])
    return gain_sentences(section, compare(section))


def test_the_gain_is_split(write_control, tmp_path):
    write_control()
    (sentence,) = sentences(tmp_path)
    assert " is 1.25 points better than " in sentence
    assert "+0.50 by training under changing sharing" in sentence
    assert "+0.75 by the search; plus is better (p = 0.05 for the latter)." in sentence
    report = make_report(load_runs([tmp_path])[0], figures=False)
    assert sentence in report.markdown()
    assert "What of the gain is the search" in report.html()


def test_too_few_runs_give_no_p(write_control, tmp_path):
    write_control({method: values[:2] for method, values in ERRORS.items()})
    (sentence,) = sentences(tmp_path)
    assert sentence.endswith("(too few runs for a test).")


@pytest.mark.parametrize("change", [{"then": "full"}, {"lr": 0.1}, {"errors": {**ERRORS, "none": [float("nan")] * 3}}])
def test_rows_that_do_not_compare_are_not_compared(write_control, tmp_path, change):
    write_control(**change)
    assert sentences(tmp_path) == []
