import csv
import html.parser
import json
import re

import pytest
from rich.cells import cell_len

from lws_lightning.results import load_runs, report
from lws_lightning.results.figures import FIGURE_KINDS
from lws_lightning.results.origin import environments, row_origin, training_dates
from lws_lightning.results.report import folder_names, make_report

pytestmark = pytest.mark.filterwarnings("ignore:Glyph")  # matplotlib's font has no Japanese
VOID = {"meta", "img", "br", "link", "hr", "input"}
ODD = ["<b>odd</b> & | co", "été/日本"]


class Reader(html.parser.HTMLParser):
    """Notes tags, attributes and text; fails where tags are not nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data


@pytest.fixture
def study(write_study, write_run, measured, tmp_path):
    write_study(full=[20, 21, 22, 23], none=[15, 16, 17, 18], learned=[10, 11, 12, 13])
    write_run("failed", seed=7, status="failed", message="ValueError: <nan>")
    write_run("half", seed=8, evaluation=measured(step=50))
    evaluation = measured() | {"tasks": {name: {"error": 1.0, "images": 1} for name in ODD}}
    write_run("odd", data="Odd", task_names=ODD, evaluation=evaluation, assignment=[[0, 1]])
    return tmp_path


def test_files(study, capsys):
    out = study / "new" / "report"
    report([str(study), "--out", str(out)])
    printed = capsys.readouterr()
    assert printed.out.endswith(f"Report: {out / 'report.html'}\n")
    assert "warning: odd: has no curve.csv. The curves go on without it." in printed.err
    tables = {f"{name}.csv" for name in ("affinity", "classes", "improvement", "runs", "stability", "table", "tests")}
    assert {path.name for path in out.iterdir()} == tables | {"figures", "report.html", "report.md"}
    markdown = (out / "report.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\((figures/.*?)\)", markdown):
        assert (out / link).read_bytes().startswith(b"\x89PNG")
        assert (out / link).with_suffix(".svg").read_text(encoding="utf-8").startswith("<?xml")
    assert len(list((out / "figures").iterdir())) == 2 * markdown.count("](figures/")
    assert "- failed: failed at step 100 of 100 (ValueError: \\<nan>)." in markdown
    assert "- half: test curve at step 50, 400 images; the others: test curve at step 100, 400 images." in markdown
    rows = list(csv.DictReader((out / "table.csv").open(encoding="utf-8")))
    assert [row["method"] for row in rows] == ["full", "none", "learned", "learned"]
    assert json.loads(rows[2]["runs"]) == [f"learned/seed{seed}" for seed in range(4)]
    assert rows[3][f"error/{ODD[0]}/mean"] == "1.0"
    each = list(csv.DictReader((out / "runs.csv").open(encoding="utf-8")))
    assert [(run["row"], run["seed"], run["run"]) for run in each if run["row"] == "C"] == [
        ("C", str(seed), f"learned/seed{seed}") for seed in range(4)
    ]
    for row in rows:
        errors = [float(run["error"]) for run in each if run["row"] == row["row"]]
        assert sum(errors) / len(errors) == pytest.approx(float(row["error/mean"]))
    pairs = list(csv.DictReader((out / "affinity.csv").open(encoding="utf-8")))
    assert [(each["row"], each["layer"], each["share_of_seeds"]) for each in pairs] == [
        *(("C", "conv", "0.5"), ("C", "all layers", "0.5"), ("D", "conv", "0.0"), ("D", "all layers", "0.0")),
    ]
    assert "| C   | learned |   4 | low and high" in markdown
    stable = list(csv.DictReader((out / "stability.csv").open(encoding="utf-8")))
    assert [each["n"] for each in stable] == ["4", "4", "1", "1"]
    assert [each["rand"][:6] for each in stable] == ["0.3333", "0.3333", "", ""]
    tests = list(csv.DictReader((out / "tests.csv").open(encoding="utf-8")))
    assert [float(test["p"]) for test in tests] == pytest.approx([1 / 70] * 4)
    assert [float(test["p_holm"]) for test in tests] == pytest.approx([2 / 70] * 4)


def test_html_is_whole_and_needs_nothing_else(study):
    text = make_report(*load_runs([study]), folders=[study]).html()
    page = Reader(text)
    assert "script" not in page.tags
    assert "link" not in page.tags
    links = [value for name, value in page.attributes if name in ("src", "href", "data", "action", "srcset", "poster")]
    assert all(value.startswith(("#", "data:image/svg+xml;base64,")) for value in links)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for value in links if value.startswith("#")} <= set(ids)
    assert not re.search(r"url\(|@import|https?://", text)
    assert ("name", "viewport") in page.attributes
    alts = [value for name, value in page.attributes if name == "alt"]
    assert len(alts) == page.tags.count("img") > 4
    assert all(len(alt) > 30 for alt in alts)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_html_escapes(study):
    text = make_report(*load_runs([study]), folders=[study]).html()
    assert "<b>" not in text
    page = Reader(text)
    assert "b" not in page.tags
    assert ODD[0] in page.text
    assert ODD[1] in page.text
    assert "ValueError: <nan>" in page.text


def test_html_says_where_numbers_come_from(study):
    page = Reader(make_report(*load_runs([study]), folders=[study]).html())
    for folder in ("full/seed0", "none/seed3", "learned/seed2", "odd"):
        assert folder in page.text
    assert "lws fit --config learned/seed0/config.yaml --seed_everything SEED" in page.text
    assert "Started from Python: no config.yaml." in page.text
    assert str(study) not in page.text


def test_same_input_same_bytes(study, capsys, tmp_path_factory):
    written = []
    for name in ("one", "two"):
        out = tmp_path_factory.mktemp(name) / "report"
        report([str(study), "--out", str(out)])
        written.append({path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()})
    assert written[0] == written[1]
    assert len(written[0]) > 8
    mine = out / "figures/mine.png"
    old = [out / f"figures/{kind}_Z_digits_other.svg" for kind in FIGURE_KINDS]
    for path in (mine, *old):
        path.touch()
    report([str(study), "--out", str(out)])
    assert mine.exists()
    assert not any(path.exists() for path in old)


def test_without_out_nothing_is_written(study, capsys):
    before = set(study.rglob("*"))
    report([str(study)])
    assert set(study.rglob("*")) == before
    printed = capsys.readouterr().out
    assert "One-sided Mann-Whitney U tests" in printed
    assert "figures/" not in printed


def test_a_terminal_gets_tables_that_fit_it(study, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    report([str(study)])
    printed = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)  # without colours
    assert max(map(cell_len, printed.splitlines())) <= 80
    assert "| --" not in printed
    assert "<b>odd</b> & | co" in printed
    for heading in ("Digits, 2 tasks", "Runs in each row:", "Left out:", "p (Holm)", "least p", "s/step"):
        assert heading in printed


def test_errors(study, tmp_path_factory):
    with pytest.raises(SystemExit, match="is a file; give a folder"):
        report([str(study), "--out", str(study / "odd/result.json")])
    with pytest.raises(SystemExit, match="cannot write to"):
        report([str(study), "--out", str(study / "odd/result.json/below")])
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(SystemExit, match="there is no run"):
        report([str(empty), "--out", str(empty / "out")])
    assert list(empty.iterdir()) == []


def test_only_unfinished_runs(write_run, tmp_path):
    write_run("a", status="failed")
    result = make_report(*load_runs([tmp_path]), folders=[tmp_path])
    assert "No finished runs." in Reader(result.html()).text
    result.write(tmp_path / "out")
    assert (tmp_path / "out/table.csv").read_text() == ""


def test_no_runs(tmp_path):
    result = make_report([], [f"{tmp_path}: no result.json in it."])
    assert result.markdown().startswith("No runs.")
    assert (tmp_path / "out/report.html") in result.write(tmp_path / "out")


def test_folders_are_relative_to_the_one_given(write_run, tmp_path, monkeypatch):
    write_run("runs/a")
    (tmp_path / "runs/bad").mkdir()
    (tmp_path / "runs/bad/result.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/", str(tmp_path / "runs"), "./runs"):
        text = make_report(*load_runs([folder]), folders=[folder], figures=False).markdown()
        assert "- A: a\n" in text
        assert "- bad/result.json: cannot be read" in text
    monkeypatch.chdir(tmp_path / "runs")
    assert "- A: a\n" in make_report(*load_runs(["."]), folders=["."], figures=False).markdown()


def test_folder_names(tmp_path):
    one = folder_names([tmp_path / "runs"])
    assert one(tmp_path / "runs/a/b") == "a/b"
    assert one(tmp_path / "runs") == "runs"
    two = folder_names([tmp_path / "x/first", tmp_path / "x/second"])
    assert two(tmp_path / "x/second/a") == "second/a"
    alike = folder_names([tmp_path / "x/runs", tmp_path / "y/runs"])
    assert alike(tmp_path / "y/runs/a") == (tmp_path / "y/runs/a").as_posix()
    assert folder_names([])(tmp_path) == tmp_path.as_posix()


def row_of(folder):
    result = make_report(*load_runs([folder]), folders=[folder], figures=False)
    return result.parts[0].section.rows[0]


def test_origin(write_study, tmp_path):
    write_study(learned=[1, 2, 3])
    (tmp_path / "learned/seed1/config.yaml").unlink()
    path = tmp_path / "learned/seed2/result.json"
    path.write_text(path.read_text().replace('"val_check_interval": 50', '"val_check_interval": 25'))
    origin = row_origin(row_of(tmp_path), folder_names([tmp_path]))
    assert (origin.config, origin.seeds) == ("learned", "0-2")
    assert "learning_rate = 0.1" in origin.options
    assert "data.batch_size = 16" in origin.options
    assert origin.remarks == (
        "Seed 1: started from Python, without config.yaml.",
        "The runs differ in trainer.val_check_interval.",
    )


def test_environments_and_dates(write_run, tmp_path):
    same = {"hardware": {"cpu": "X", "cores": 2, "threads": 1, "gpu": None}, "started": "2023-12-31T00:00:00+00:00"}
    write_run("a", versions={"torch": "2.6"}, **same)
    write_run("b", seed=1, versions={"torch": "2.7"}, **same)
    runs, _ = load_runs([tmp_path])
    sections = [part.section for part in make_report(runs, figures=False).parts]
    assert environments(sections) == [
        "Versions, not the same for all runs (rows in brackets): torch 2.6 (1 of 2 in A); torch 2.7 (1 of 2 in A).",
        "Hardware: X, no GPU, 2 cores, 1 thread.",
    ]
    assert training_dates(runs) == "2023-12-31 to 2024-01-01"
