"""`lws compare`: what it refuses at once, and a whole comparison that is stopped twice and given again."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from locations import REPOSITORY
from small_comparison import make_small

from lws_lightning.compare import session
from lws_lightning.compare.plan import Plan, Timing


def refused(capsys, lws, *arguments):
    with pytest.raises(SystemExit) as ended:
        lws("compare", *arguments)
    text = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err
    assert len(text.strip().splitlines()) == 1
    return text


def test_refusals_are_one_line_each(capsys, lws, tmp_path, photos):
    assert "give ROOT" in refused(capsys, lws)
    assert "there is no folder nowhere" in refused(capsys, lws, "nowhere")
    assert "--data.tasks needs a value" in refused(capsys, lws, photos, "--data.tasks")
    assert "must be positive" in refused(capsys, lws, photos, "--minutes", 0)
    assert "there is no option --minuts. Did you mean --minutes?" in refused(capsys, lws, photos, "--minuts", 3)
    (tmp_path / "file").touch()
    assert "is a file; give a folder" in refused(capsys, lws, photos, "--out", tmp_path / "file")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    assert "holds other files, such as thesis.tex" in refused(capsys, lws, photos, "--out", other)


def test_the_folder_of_another_comparison_is_refused(capsys, lws, tmp_path, photos):
    out = tmp_path / "out"
    out.mkdir()
    options = {"ROOT": str(photos), "--data": "ImageFolders", "--network": None, "--lr": 0.001}
    Plan(1, options, "d", {}, ["none"], 300, 1, {"none": Timing(0.1, 1.0, 0.0)}, 9.0, 30.0, []).write(out)
    assert "a comparison with --lr 0.001, not 0.1;" in refused(capsys, lws, photos, "--out", out, "--lr", 0.1)
    assert "--data.image_size not given, not 64;" in refused(capsys, lws, photos, "--out", out, "--data.image_size", 64)
    (tmp_path / "elsewhere").mkdir()
    assert "a comparison with ROOT" in refused(capsys, lws, tmp_path / "elsewhere", "--out", out)


def test_data_that_cannot_be_compared_are_refused_and_nothing_is_left(capsys, lws, photos, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert "only one task, 'cars'" in refused(capsys, lws, photos, "--data.tasks", "[cars]")
    assert "leaves nothing to choose by" in refused(capsys, lws, photos, "--data.validation", "none", "--out", "b")
    assert "no option --data.image_sizes of ImageFolders. Did you mean --data.image_size?" in refused(
        capsys, lws, photos, "--data.image_sizes", 3, "--out", "c"
    )
    assert sorted(tmp_path.rglob("*")) == before
    mine = tmp_path / "mine/contenders/notes.txt"
    mine.parent.mkdir(parents=True)
    mine.touch()
    assert "only one task" in refused(capsys, lws, photos, "--data.tasks", "[cars]", "--out", tmp_path / "mine")
    assert mine.is_file()
    (photos / "cars/empty").mkdir()
    with pytest.raises(SystemExit, match="no images in the class folder 'empty'"):
        lws("compare", photos, "--out", "d")


def test_a_budget_too_small_is_refused_with_the_minutes_that_are_needed(capsys, lws, photos, monkeypatch):
    monkeypatch.setattr(
        session, "measure", lambda configs, *_: ({path.stem: Timing(0.1, 1.0, 0.0) for path in configs}, 10.0, 10.0)
    )
    with pytest.raises(SystemExit, match=r"--minutes 3 is too little .* need about (\d+)\.\d minutes"):
        lws("compare", photos, "--minutes", 3)
    printed = capsys.readouterr().out
    assert "Found: 2 tasks, 2 to 3 classes and 26 to 40 images each (colour, 32x32 pixels)" in printed
    assert "has 5 of these, each of which is worth 20 points" in " ".join(printed.split())
    assert not Path("comparison").exists()


def start(photos, out, *options):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "tests/compare"))),
    }
    script = REPOSITORY / "tests/compare/small_comparison.py"
    command = [sys.executable, script, "compare", photos, "--out", out, "--minutes", "30", *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(condition, process):
    deadline = time.monotonic() + 200
    while not condition() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    assert condition()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_comparison_that_is_stopped_twice_ends_with_networks_that_run(lws, photos, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    first = out / "contenders/none/seed0"
    stopped = start(photos, out)
    wait_for((first / "log.txt").is_file, stopped)
    stopped.send_signal(signal.SIGINT)
    printed, _ = stopped.communicate(timeout=200)
    assert stopped.returncode == 130
    assert "The same command goes on: lws compare" in printed
    plan = (out / "plan.json").read_text()

    killed = start(photos, out)
    wait_for((first / "result.json").is_file, killed)
    killed.kill()
    killed.communicate()

    make_small(monkeypatch.setattr)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.fspath(REPOSITORY))
    lws("compare", photos, "--out", out, "--minutes", 30, "--jobs", 2)
    printed = capsys.readouterr().out
    assert "Going on with the comparison" in printed
    assert (out / "plan.json").read_text() == plan
    records = [json.loads(path.read_text()) for path in out.glob("contenders/*/seed*/result.json")]
    assert len(records) == 4
    assert all((each["status"], each["step"]) == ("finished", 10) and each["test"] for each in records)

    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["recommended"] in ("none", "learned")
    assert verdict["sentences"][0] in " ".join(printed.split())
    html = (out / "report.html").read_text()
    assert f"<h1>{verdict['sentences'][0]}</h1>" in html
    assert "Left out" not in html
    assert "<h2>All runs</h2>" in html
    assert html.count("<h1>") == 1
    assert '<a href="models/">' in html
    assert "table.csv" not in html  # a comparison writes no tables
    for task, classes in {"birds": ("crow", "owl"), "cars": ("new", "odd", "old")}.items():
        assert (out / f"models/{task}.pt2").is_file()
        card = (out / f"models/{task}.md").read_text()
        assert f"in the order of the outputs: {', '.join(classes)}." in card
        recorded = next(each for each in records if f"seed {each['seed']}" in card)["data_digest"]
        assert recorded in card
        image = sorted((photos / task / classes[0]).glob("*.jpg"))[0]
        done = subprocess.run(
            [sys.executable, out / "predict.py", out / f"models/{task}.onnx", image],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path("/"),
        )
        assert any(f"{image}: {name} (" in done.stdout for name in classes)
    assert_errors_are_those_of_the_file(out, photos)

    for pictures in out.glob("contenders/*/seed*/pictures"):  # networks without errors have no such picture
        (pictures / "wrong_images.png").write_bytes(b"errors")
    before = {path: path.stat().st_mtime_ns for path in out.glob("contenders/*/seed*/result.json")}
    lws("compare", photos, "--out", out, "--minutes", 30)
    assert {path: path.stat().st_mtime_ns for path in out.glob("contenders/*/seed*/result.json")} == before
    assert f"data:image/png;base64,{base64.b64encode(b'errors').decode()}" in (out / "report.html").read_text()


def assert_errors_are_those_of_the_file(out, photos):
    """The exported network gets the test images wrong that the record says, prepared by the snippet alone."""
    import numpy as np
    import onnxruntime
    import yaml

    from lws_lightning.compare.outcomes import read_outcomes
    from lws_lightning.compare.standalone.predict import prepared
    from lws_lightning.data import ImageFolders

    card = (out / "models/cars.md").read_text()
    run = next(
        path
        for path in out.glob("contenders/*/seed*")
        if f"seed {path.name[4:]}" in card and f"contender {path.parent.name}" in card
    )
    data = ImageFolders(**yaml.safe_load((run / "run.yaml").read_text())["data"]["init_args"])
    images, labels = data.examples("test")[1]
    session = onnxruntime.InferenceSession(str(out / "models/cars.onnx"))
    logits = session.run(["logits"], {"images": images.numpy().astype(np.float32) / 255})[0]
    assert (logits.argmax(-1) != labels.numpy()).tolist() == read_outcomes(run)[1].tolist()
    file = next(path for path in sorted((photos / "cars/old").iterdir()))
    about = json.loads(session.get_modelmeta().custom_metadata_map["metadata"])
    decoded = data._decoder(str(file)).numpy()
    assert (prepared(str(file), about["preprocessing"], [3, 32, 32])[0] * 255).round().astype(
        int
    ).tolist() == decoded.tolist()
