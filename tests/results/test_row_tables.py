import csv
import io
import json
import math
import statistics

from lws_lightning.results import comparison_table, load_runs
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.row_tables import row_table, run_table
from lws_lightning.results.table import csv_text


def table(folder, **options):
    return comparison_table(*load_runs([folder]), **options)


def rows(text):
    """Returns header and rows of the error tables, without the row letter in front."""
    lines = [line for line in text.splitlines() if line.startswith("|") and line.count("|") > 8]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| --")]
    tests = next((number for number, row in enumerate(cells) if row[0] == "learned"), len(cells))
    return [row[1:] for row in cells[:tests]]


def test_mean_and_deviation_over_seeds(write_run, measured, tmp_path):
    errors = (10.0, 11.0, 15.0)
    for seed, error in enumerate(errors):
        write_run(f"s{seed}", seed=seed, hparams={"seed": seed}, evaluation=measured(low=error), seconds=50.0 + seed)
    text = table(tmp_path)
    header, row = rows(text)
    assert header == [
        *("network", "method", "n", "low", "high", "task mean", "all images", "parameters", "seconds", "s/step"),
    ]
    assert row == [
        *("small", "learned", "3"),
        f"12.00 ± {statistics.stdev(errors):.2f}",
        "20.00 ± 0.00",
        f"16.00 ± {statistics.stdev(errors) / 2:.2f}",
        f"18.00 ± {statistics.stdev(errors) / 4:.2f}",
        *("1,234", "51", "0.5"),
    ]
    assert "Error in percent: test curve at step 100, 400 images." in text
    assert "Left out" not in text


def test_columns_line_up(write_run, tmp_path):
    write_run("a")
    write_run("b", method="full", network="a network with a | in it")
    lines = [line for line in table(tmp_path).splitlines() if line.startswith("|")]
    lines = lines[:4]
    assert len({len(line) for line in lines}) == 1
    assert r"a \| in" in lines[2]
    assert set(lines[1]) == set("|-: ")


def test_single_run_shows_its_value_and_methods_are_ordered(write_run, tmp_path):
    for method in ("learned", "cross_stitch", "none", "full"):
        write_run(method, method=method)
    body = rows(table(tmp_path))[1:]
    assert [row[1] for row in body] == ["full", "none", "learned", "cross_stitch"]
    assert body[0][3] == "10.00"


def test_test_results_where_all_runs_have_one(write_run, measured, tmp_path):
    write_run("a", test=measured("test", low=30.0))
    text = table(tmp_path)
    assert "Error in percent: test at step 100" in text
    assert rows(text)[1][3] == "30.00"
    assert rows(table(tmp_path, source="curve"))[1][3] == "10.00"
    write_run("b", method="full")
    text = table(tmp_path)
    assert "Error in percent: test curve at step 100" in text
    text = table(tmp_path, source="test")
    assert [row[1] for row in rows(text)[1:]] == ["learned"]
    assert f"- {tmp_path / 'b'}: finished, but has no test." in text


def test_unfinished_runs_are_named_and_not_averaged(write_run, tmp_path):
    write_run("a")
    write_run("b", seed=1, status="running", step=40)
    write_run("c", seed=2, status="failed", step=50, message="ValueError: nan")
    write_run("d", seed=3, status="interrupted", step=60, max_steps=-1)
    text = table(tmp_path)
    assert rows(text)[1][2] == "1"
    assert f"- {tmp_path / 'b'}: running, or killed, at step 40 of 100." in text
    assert f"- {tmp_path / 'c'}: failed at step 50 of 100 (ValueError: nan)." in text
    assert f"- {tmp_path / 'd'}: interrupted at step 60." in text


def test_runs_measured_otherwise_are_named_and_not_averaged(write_run, measured, tmp_path):
    write_run("a", seed=0)
    write_run("b", seed=1)
    write_run("step", seed=2, evaluation=measured(step=80))
    write_run("prefix", seed=3, evaluation=measured("val"))
    write_run("images", seed=4, evaluation=measured(images=(100, 200)))
    text = table(tmp_path)
    assert rows(text)[1][2] == "2"
    others = "the others: test curve at step 100, 400 images."
    assert f"- {tmp_path / 'step'}: test curve at step 80, 400 images; {others}" in text
    assert f"- {tmp_path / 'prefix'}: validation at step 100, 400 images; {others}" in text
    assert f"- {tmp_path / 'images'}: test curve at step 100, 300 images; {others}" in text


def test_row_measured_otherwise_is_marked(write_run, measured, tmp_path):
    write_run("a")
    write_run("b", method="none")
    write_run("c", method="full", evaluation=measured(step=1000))
    text = table(tmp_path)
    assert [row[1] for row in rows(text)[1:]] == ["full *", "none", "learned"]
    assert "\n* test curve at step 1,000, 400 images, not to be compared with the other rows.\n" in text


def test_other_options_are_other_rows(write_run, tmp_path):
    write_run("a", hparams={"seed": 0, "learning_rate": 0.1, "same": 1})
    write_run("b", hparams={"seed": 0, "learning_rate": 0.5, "same": 1})
    assert [row[1] for row in rows(table(tmp_path))[1:]] == [
        *("learned (learning_rate=0.1)", "learned (learning_rate=0.5)"),
    ]


def test_an_option_that_was_not_chosen_is_as_good_as_none(write_run, tmp_path):
    write_run(
        "a",
        hparams={
            "seed": None,
            "lr": 0.1,
            "unknown_to_the_other": None,
        },
    )
    write_run("b", seed=1, hparams={"seed": 1, "lr": 0.1})
    assert [row[1:3] for row in rows(table(tmp_path))[1:]] == [["learned", "2"]]


def test_the_same_seed_counts_once(write_run, measured, tmp_path):
    write_run("a", evaluation=measured(low=50.0), ended="2024-01-01")
    write_run("b", evaluation=measured(low=10.0), ended="2024-01-02")
    text = table(tmp_path)
    assert rows(text)[1][2:4] == ["1", "10.00"]
    assert f"- {tmp_path / 'a'}: seed 0 again in {tmp_path / 'b'}, which is later." in text


def test_many_tasks_have_no_columns(write_run, measured, tmp_path):
    names = [f"t{i}" for i in range(9)]
    evaluation = measured() | {"tasks": {name: {"error": 1.0, "images": 1} for name in names}}
    write_run("a", task_names=names, evaluation=evaluation)
    assert rows(table(tmp_path))[0][:4] == ["network", "method", "n", "task mean"]


def test_data_sets_have_tables_of_their_own(write_run, tmp_path):
    write_run("a")
    write_run("b", data="Letters", task_names=["low"])
    text = table(tmp_path)
    assert text.index("### Digits, 2 tasks") < text.index("### Letters, 1 task\n")


def test_gaps_and_nan(write_run, measured, tmp_path):
    evaluation = measured()
    del evaluation["tasks"]["high"]
    write_run("a", evaluation=evaluation | {"error": "nan"}, seconds=None, seconds_per_step=None)
    write_run("b", seed=1, evaluation=evaluation)
    row = rows(table(tmp_path))[1]
    assert row[2:] == ["2", "10.00 ± 0.00", "-", "15.00 ± 0.00", "nan ± nan", "1,234", "-", "-"]


def test_nothing_to_compare(write_run, tmp_path):
    assert table(tmp_path) == f"No runs.\n\nNot read:\n\n- {tmp_path}: no result.json in it.\n"
    write_run("a", status="failed", evaluation=None)
    text = table(tmp_path)
    assert "No finished runs." in text
    assert f"- {tmp_path / 'a'}: failed at step 100 of 100." in text


def test_rows_name_their_runs(write_run, tmp_path):
    for seed in (1, 0):
        write_run(f"s{seed}", seed=seed)
    write_run("f", method="full")
    text = table(tmp_path)
    assert f"- A: {tmp_path / 'f'}\n- B: {tmp_path / 's0'}, {tmp_path / 's1'}\n" in text
    assert "The rows have different seeds (A: 0; B: 0, 1)." in text


def test_html_in_names_is_escaped(write_run, measured, tmp_path):
    evaluation = measured() | {"tasks": {"<b>": {"error": 1.0, "images": 1}}}
    write_run("a", task_names=["<b>"], evaluation=evaluation)
    assert r"| \<b> |" in table(tmp_path)


def test_diverged_runs_are_named(write_run, measured, tmp_path):
    write_run("a")
    write_run("b", seed=4, evaluation=measured(low=math.nan) | {"error": "nan", "error_task_mean": "nan"})
    assert "Row A: 1 diverged, the error is not a number (seed 4)." in table(tmp_path)


def test_csv_keeps_every_digit(write_run, measured, tmp_path):
    errors = (10 / 3, 20 / 7, 1.0)
    for seed, error in enumerate(errors):
        write_run(f"s{seed}", seed=seed, evaluation=measured(low=error))
    write_run("one", method="full", seconds=None, task_names=["low", "high"])
    (section,) = group_runs(load_runs([tmp_path])[0])
    full, learned = csv.DictReader(io.StringIO(csv_text([row_table(section, lambda path: path.name)])))
    assert float(learned["error/low/mean"]) == statistics.fmean(errors)
    assert math.isclose(float(learned["error/low/deviation"]), statistics.stdev(errors), rel_tol=1e-12)
    assert learned["error/low/n"] == "3"
    assert json.loads(learned["runs"]) == ["s0", "s1", "s2"]
    assert json.loads(learned["seeds"]) == [0, 1, 2]
    assert (full["error/mean"], full["error/deviation"], full["error/n"]) == ("17.5", "", "1")
    assert (full["seconds/mean"], full["seconds/n"]) == ("", "0")
    assert csv_text([]) == ""


def test_the_csv_tables_name_the_options_of_every_row(write_run, tmp_path):
    """Also where a method has one row only, which needs no options to be told from others."""
    write_run("none", method="none", hparams={"weight_decay": 1e-3, "ema_decay": 0.995, "lr": 1e-3})
    write_run("full", method="full", hparams={"weight_decay": 0.0})
    (section,) = group_runs(load_runs([tmp_path])[0])
    for table in (row_table(section), run_table(section)):
        assert {row["method"]: row["options"] for row in table.records()} == {
            "none": "ema_decay=0.995, weight_decay=0.001",
            "full": "",
        }


def test_csv_has_the_training_options_in_which_any_rows_differ(write_run, tmp_path):
    write_run("plus", hparams={"weight_decay": 1e-3, "ema_decay": 0.995})
    write_run("none", method="none", hparams={"weight_decay": 0.0})
    write_run("other", method="none", network="large", hparams={"lr": 0.5, "weight_decay": 0.0})
    (section,) = group_runs(load_runs([tmp_path])[0])
    for table in (row_table(section), run_table(section)):
        rows = list(csv.DictReader(io.StringIO(csv_text([table]))))
        assert {(row["network"], row["method"]): row["training"] for row in rows} == {
            ("small", "learned"): "ema_decay=0.995, weight_decay=0.001",
            ("small", "none"): "ema_decay=none, weight_decay=0.0",
            ("large", "none"): "",
        }
