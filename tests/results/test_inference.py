from lws_lightning.results import comparison_table, load_runs
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.inference import inference_cells
from lws_lightning.results.table import table_rows

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
    header, body = inference_cells(section)
    assert header == ["row", "method", "parameters", "million multiply-adds", "ms a batch", "batch"]
    assert body == [["A", "learned", "2,000", "3", "2", "16"]]
    assert "What a prediction of one task costs" in comparison_table(runs)
    (row,) = table_rows([section])
    assert row["inference_multiply_adds/mean"] == 3e6
    assert row["latency_seconds/n"] == 2


def test_what_old_records_do_not_tell(write_run, tmp_path):
    write_run("old", method="full")
    runs, section = read(tmp_path)
    assert inference_cells(section) is None
    assert "prediction" not in comparison_table(runs)
    write_run("new", inference=COSTS, latency=None)
    _, section = read(tmp_path)
    assert [cells[2:] for cells in inference_cells(section)[1]] == [["-"] * 4, ["2,000", "3", "-", "-"]]
