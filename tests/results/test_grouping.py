from lws_lightning.results import load_runs
from lws_lightning.results.grouping import group_runs
from lws_lightning.results.rows import seeds_text


def sections(folder):
    return group_runs(load_runs([folder])[0])


def test_letters_go_through_all_data_sets(write_run, tmp_path):
    for method in ("learned", "full"):
        write_run(method, method=method)
        write_run(f"{method}2", method=method, data="Letters")
    first, second = sections(tmp_path)
    assert [(row.letter, row.method) for row in (*first.rows, *second.rows)] == [
        *(("A", "full"), ("B", "learned"), ("C", "full"), ("D", "learned")),
    ]


def test_other_options_of_the_data_are_another_section(write_run, tmp_path):
    few, many = {"train_images_per_task": 100}, {"train_images_per_task": 500}
    write_run("a", data_options=few, neutral={"data": {"root": "x", "num_workers": 0}})
    write_run("b", seed=1, data_options=few, neutral={"data": {"root": "y", "num_workers": 2}})
    write_run("c", seed=2, data_options=many)
    titles = {
        section.title: [run.folder.name for row in section.rows for run in row.runs] for section in sections(tmp_path)
    }
    assert titles == {
        "Digits (train_images_per_task=100), 2 tasks": ["a", "b"],
        "Digits (train_images_per_task=500), 2 tasks": ["c"],
    }


def test_other_images_are_another_section(write_run, tmp_path):
    """Such as two folds of a cross-validation; a DataModule of another kind has no fingerprint of its images."""
    for name, seed, digest in (("a", 0, "1f"), ("b", 1, "1f"), ("c", 0, "2e"), ("d", 2, None)):
        write_run(name, seed=seed, data_digest=digest)
    titles = {s.title: [run.folder.name for row in s.rows for run in row.runs] for s in sections(tmp_path)}
    assert titles == {
        "Digits (images 1f), 2 tasks": ["a", "b"],
        "Digits (images 2e), 2 tasks": ["c"],
        "Digits (images not recorded), 2 tasks": ["d"],
    }


def test_images_of_other_options_are_named_by_the_options(write_run, tmp_path):
    write_run("a", data_digest="1f", data_options={"train_images_per_task": 100})
    write_run("b", data_digest="2e", data_options={"train_images_per_task": 500})
    assert [section.variant for section in sections(tmp_path)] == [
        "train_images_per_task=100",
        "train_images_per_task=500",
    ]


def test_other_precision_is_another_row(write_run, tmp_path):
    write_run("a", precision="32-true")
    write_run("b", precision="bf16-mixed")
    (section,) = sections(tmp_path)
    assert [row.variant for row in section.rows] == ["precision=32-true", "precision=bf16-mixed"]


def test_every_run_is_in_one_row_or_left_out(write_run, measured, tmp_path):
    write_run("a")
    write_run("b", ended="2025")
    write_run("c", seed=1, status="failed")
    write_run("d", seed=2, evaluation=None)
    write_run("e", seed=3, evaluation=measured(step=50))
    write_run("f", method="full")
    runs, _ = load_runs([tmp_path])
    (section,) = group_runs(runs)
    averaged = [run.folder.name for row in section.rows for run in row.runs]
    left_out = [each.run.folder.name for each in section.left_out]
    assert sorted(averaged + left_out) == list("abcdef")
    assert sorted(averaged) == ["b", "f"]
    texts = {each.run.folder.name: each.text(lambda path: path.name) for each in section.left_out}
    assert texts["a"] == "a: seed 0 again in b, which is later."
    assert texts["d"] == "d: finished, but has no evaluation."


def test_seeds_text():
    assert seeds_text([3, 0, 1, 2, 7, 9, 10]) == "0-3, 7, 9, 10"
    assert seeds_text([5]) == "5"


def test_an_option_that_only_some_runs_have_parts_them(write_run, tmp_path):
    """Such as one that a user's method got later."""
    write_run("old", method="mine", hparams={"learning_rate": 0.1})
    write_run("new", method="mine", seed=1, hparams={"learning_rate": 0.1, "taste": "sour", "price": None})
    write_run("newer", method="mine", seed=2, hparams={"learning_rate": 0.1, "taste": "sweet"})
    (section,) = sections(tmp_path)
    assert {row.variant: len(row.runs) for row in section.rows} == {"taste=sour": 1, "taste=sweet": 1, "taste=None": 1}


def test_averaged_weights_part_runs(write_run, tmp_path):
    for seed, decay in enumerate((None, 0.9, 0.99)):
        write_run(f"run{seed}", seed=seed, hparams={"ema_decay": decay})
    (section,) = sections(tmp_path)
    assert {row.variant for row in section.rows} == {"ema_decay=0.9", "ema_decay=0.99", "ema_decay=None"}


def test_options_without_consequence_split_no_row(write_run, tmp_path):
    write_run("a", neutral={"method": {"max_images_per_pass": 512}, "data": {"cache_dir": "x"}})
    write_run("b", seed=1, neutral={"method": {"max_images_per_pass": None}, "data": {"cache_dir": "y"}})
    (section,) = sections(tmp_path)
    assert [(row.variant, len(row.runs)) for row in section.rows] == [("", 2)]


def test_runs_that_a_rule_ended_count_with_those_of_their_budget(write_run, measured, tmp_path):
    ended = {"method": "early_stopping", "hparams": {}, "max_steps": 100}
    write_run("a", **ended, step=60, evaluation=measured(step=60), stopped_by="its method")
    write_run("b", **ended, seed=1, step=80, evaluation=measured(step=80), stopped_by="its method")
    write_run("c", **ended, seed=2, step=100)
    write_run("d", **ended, seed=3, step=70, evaluation=measured(step=70))
    write_run("e", step=100)
    (section,) = sections(tmp_path)
    assert [(row.method, row.seeds) for row in section.rows] == [("learned", (0,)), ("early_stopping", (0, 1, 2))]
    assert section.rows[0].key == section.rows[1].key
    assert "Row B: 2 stopped early, by its method, at step 60, 80." in section.notes
    assert [each.run.folder.name for each in section.left_out] == ["d"]


def test_the_report_says_what_ended_a_run(write_run, measured, tmp_path):
    for seed, what in enumerate(("trainer.max_time", "EarlyStopping on val/error", "trainer.max_time", "a callback")):
        step = 50 + seed
        write_run(f"{seed}", seed=seed, step=step, evaluation=measured(step=step), stopped_by=what)
    (section,) = sections(tmp_path)
    assert section.notes == (
        "Row A: 1 stopped early, by EarlyStopping on val/error, at step 51.",
        "Row A: 1 stopped early, by a callback, at step 53.",
        "Row A: 2 stopped early, by trainer.max_time, at step 50, 52.",
    )


def test_a_search_that_has_not_settled_is_said(write_run, tmp_path):
    decided, opened = [[[0.95, 0.05], [0.1, 0.9]]], [[[0.6, 0.4], [0.1, 0.9]]]
    write_run("a", method="learned", probabilities=decided)
    (section,) = sections(tmp_path)
    assert not any("settled" in note for note in section.notes)
    write_run("b", method="learned", seed=1, probabilities=opened)
    (section,) = sections(tmp_path)
    (note,) = (note for note in section.notes if "settled" in note)
    assert note.startswith("Row A: the search of 1 of 2 runs has not settled (50 % of")
