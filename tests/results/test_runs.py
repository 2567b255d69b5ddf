import json

from lws_lightning.records import load_runs, read_run


def test_reads_a_record(write_run, measured, tmp_path):
    folder = write_run("a/version_0", seed=3, test=measured("test", low=12.0))
    runs, problems = load_runs([tmp_path])
    assert problems == []
    (run,) = runs
    assert (run.folder, run.status, run.method, run.network, run.data) == (
        *(folder, "finished", "learned", "small"),
        "Digits",
    )
    assert (run.seed, run.step, run.max_steps, run.parameters_in_use) == (3, 100, 100, 1234)
    assert (run.seconds, run.seconds_per_step) == (50.0, 0.5)
    assert (run.evaluation.prefix, run.evaluation.error, run.evaluation.images) == ("test_curve", 17.5, 400)
    assert {name: task.error for name, task in run.test.tasks.items()} == {"low": 12.0, "high": 20.0}
    assert run.parameters_total == 2000
    assert read_run(folder / "result.json") == run
    assert json.loads(run.text()) == json.loads((folder / "result.json").read_text())


def test_each_run_once_in_order(write_run, tmp_path):
    first, second = write_run("b"), write_run("c/d")
    runs, _ = load_runs([second / "result.json", tmp_path, first])
    assert [run.folder for run in runs] == [second, first]


def test_runs_behind_links_are_found(write_run, tmp_path):
    folder = write_run("elsewhere/run")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/sweep").symlink_to(tmp_path / "elsewhere")
    (folder / "up").symlink_to(tmp_path / "here")
    runs, problems = load_runs([tmp_path / "here"])
    assert [run.folder for run in runs] == [tmp_path / "here/sweep/run"]
    assert problems == []


def test_numbers_that_are_not_finite(write_run, measured, tmp_path):
    write_run("a", evaluation=measured() | {"error": "nan"}, seconds=None)
    (run,), _ = load_runs([tmp_path])
    assert run.evaluation.error != run.evaluation.error
    assert run.seconds is None


def test_what_cannot_be_read_is_named(write_run, tmp_path):
    good = write_run("good")
    text = (good / "result.json").read_text()
    for name, content in {
        "cut": text[: len(text) // 2],
        "list": "[]",
        "new": json.dumps(json.loads(text) | {"format": 2}),
        "part": json.dumps({key: value for key, value in json.loads(text).items() if key != "seed"}),
        "kind": json.dumps(json.loads(text) | {"evaluation": 3}),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(content)
    (tmp_path / "empty").mkdir()
    runs, problems = load_runs([tmp_path, tmp_path / "empty", tmp_path / "nowhere"])
    assert [run.folder for run in runs] == [good]
    assert len(problems) == 7
    assert problems[0].startswith(f"{tmp_path / 'cut' / 'result.json'}: cannot be read")
    assert "kind" in problems[1]
    assert problems[2].endswith("not the record of a run).")
    assert "unknown format 2" in problems[3]
    assert problems[4].endswith("cannot be read (seed is missing).")
    assert problems[5] == f"{tmp_path / 'empty'}: no result.json in it."
    assert problems[6] == f"{tmp_path / 'nowhere'}: does not exist."
