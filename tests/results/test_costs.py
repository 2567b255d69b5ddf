from lws_lightning.results import comparison_table, load_runs
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.row_tables import cost_table, row_table

COSTS = {
    "low": {"parameters": 1000, "multiply_adds": 2_000_000},
    "high": {"parameters": 3000, "multiply_adds": 4_000_000},
}


def read(folder):
    runs, _ = load_runs([folder])
    (section,) = group_runs(runs)
    return runs, section


def test_means_over_tasks_and_runs(write_run, tmp_path):
    for seed, seconds in ((0, 0.001), (1, 0.003)):
        write_run(f"a{seed}", seed=seed, inference=COSTS, latency={"batch": 16, "seconds": seconds})
    runs, section = read(tmp_path)
    table = cost_table(section)
    assert [column.heading for column in table.shown] == [
        "row",
        "method",
        "parameters",
        "million multiply-adds",
        "ms a batch",
        "batch",
    ]
    assert table.cells == [["A", "learned", "2,000", "3", "2", "16"]]
    assert "What a prediction of one task costs" in comparison_table(runs)
    (row,) = row_table(section).records()
    assert row["inference_multiply_adds/mean"] == 3e6
    assert row["latency_seconds/n"] == 2


def test_runs_that_did_not_measure_it(write_run, tmp_path):
    write_run("without", method="full")
    runs, section = read(tmp_path)
    assert cost_table(section) is None
    assert "prediction" not in comparison_table(runs)
    write_run("with", inference=COSTS, latency=None)
    _, section = read(tmp_path)
    assert [cells[2:] for cells in cost_table(section).cells] == [["-"] * 4, ["2,000", "3", "-", "-"]]
