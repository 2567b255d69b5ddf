import math
import statistics

import pytest

from lws_lightning.results import load_runs
from lws_lightning.results.curves import band, read_curves
from lws_lightning.results.grouping import group_runs


def row_of(folder):
    (section,) = group_runs(load_runs([folder])[0])
    return section.rows[0]


def test_band_of_three_runs_is_one_deviation():
    values = [1.0, 2.0, 6.0]
    result = band([{100: value, 200: 2 * value} for value in values])
    assert (result.steps, result.runs) == ((100, 200), 3)
    assert result.mean == pytest.approx((3.0, 6.0))
    assert result.high[0] - result.mean[0] == pytest.approx(statistics.stdev(values))
    assert result.mean[1] - result.low[1] == pytest.approx(2 * statistics.stdev(values))


def test_band_of_few_runs_is_their_range():
    result = band([{1: 3.0}, {1: 5.0}])
    assert (result.low, result.mean, result.high) == ((3.0,), (4.0,), (5.0,))
    result = band([{1: 3.0}])
    assert (result.low, result.high) == ((3.0,), (3.0,))


def test_band_keeps_common_steps_only():
    assert band([{1: 1.0, 2: 2.0}, {2: 4.0, 3: 1.0}]).steps == (2,)
    assert band([{1: 1.0}, {2: 1.0}]) is None
    assert band([]) is None


def test_band_of_a_diverged_run_is_nan():
    assert math.isnan(band([{1: math.nan}, {1: 1.0}, {1: 2.0}]).mean[0])


def test_reads_curves(write_study, tmp_path):
    write_study(learned=[10, 12])
    curves, problems = read_curves(row_of(tmp_path))
    assert problems == []
    assert [curve.run.seed for curve in curves] == [0, 1]
    assert curves[1].errors == {100: 42.0, 200: 17.0, 300: 12.0}
    assert curves[1].entropies == {100: 0.6, 200: 0.4, 300: 0.11}


def test_unreadable_curves_are_named(write_study, tmp_path):
    write_study(learned=[10, 11, 12, 13, 14, 15])
    folders = [tmp_path / f"learned/seed{seed}" for seed in range(6)]
    (folders[0] / "curve.csv").unlink()
    (folders[1] / "curve.csv").write_text("step,prefix\n1,test_curve\n")
    (folders[2] / "curve.csv").write_bytes(b"\xff\xfe\x00")
    text = (folders[3] / "curve.csv").read_text()
    (folders[3] / "curve.csv").write_text(text.replace("test_curve", "val"))
    (folders[4] / "curve.csv").write_text(text + "300,x")
    curves, problems = read_curves(row_of(tmp_path))
    assert [curve.run.seed for curve in curves] == [5]
    assert [run.seed for run, _ in problems] == [0, 1, 2, 3, 4]
    assert problems[0][1] == "has no curve.csv"
    assert all("cannot be read" in problems[i][1] for i in (1, 2, 4))
    assert problems[3][1] == "curve.csv has no evaluation"
