"""The curve of a run and its file."""

from dataclasses import replace

import pytest

from lws_lightning.records import (
    CurveRow,
    Evaluation,
    TaskEvaluation,
    curve_from_csv,
    curve_to_csv,
    insert_row,
)


def row(step, prefix="val", **changes):
    made = CurveRow(step, 1.5, prefix, 12.25, 12.5, 0.125, 1.0, {"a,b": 10.0})
    return replace(made, **changes)


def test_a_row_is_an_evaluation_with_its_time():
    tasks = {"a": TaskEvaluation(10.0, 5), "b": TaskEvaluation(20.0, 15)}
    evaluation = Evaluation("val", 7, 17.5, 15.0, 0.5, tasks)
    assert evaluation.images == 20
    assert Evaluation.from_json(evaluation.to_json()) == evaluation
    expected = CurveRow(7, 3.0, "val", 17.5, 15.0, 0.5, None, {"a": 10.0, "b": 20.0})
    assert CurveRow.of(evaluation, 3.0, None) == expected
    assert CurveRow.from_json(expected.to_json()) == expected


def test_curve_keeps_one_row_for_a_step_and_prefix():
    rows = []
    for step, prefix, error in [(4, "val", 1.0), (2, "val", 2.0), (4, "test_curve", 3.0), (4, "val", 4.0)]:
        insert_row(rows, row(step, prefix, error=error))
    assert [(each.step, each.prefix, each.error) for each in rows] == [
        *((2, "val", 2.0), (4, "test_curve", 3.0), (4, "val", 4.0)),
    ]


def test_curve_as_csv_and_back():
    rows = [row(2), row(4, entropy_mean=None, task_errors={"c": 5.0}, loss=float("nan"))]
    text = curve_to_csv(rows, ["a,b", "c"])
    assert text.splitlines() == [
        'step,seconds,prefix,error,error_task_mean,loss,entropy_mean,"error/a,b",error/c',
        "2,1.5,val,12.25,12.5,0.125,1,10,",
        "4,1.5,val,12.25,12.5,nan,,,5",
    ]
    assert curve_from_csv(text)[0] == rows[0]
    assert curve_to_csv(curve_from_csv(text), ["a,b", "c"]) == text


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "step,prefix\n1,val\n", curve_to_csv([row(2)], ["a"])[:-12]])
def test_other_tables_are_no_curve(text):
    with pytest.raises(ValueError, match=r".+"):
        curve_from_csv(text)
