"""The command `lws export`."""

import sys

import pytest
import torch
from odd_tasks import NAMES, train

from lws_lightning import CrossStitch
from lws_lightning.export import FORMATS, file_names


def test_one_task_into_one_file(trained, lws, tmp_path, capsys):
    out = tmp_path / "größe.pt"
    lws("export", "--ckpt_path", trained[0], "--task", "größe/x", "--format", "state_dict", "--out", out)
    assert torch.load(out, weights_only=True)["metadata"]["task"] == "größe/x"
    assert f"{out}: task 'größe/x', " in capsys.readouterr().out
    lws("export", "--ckpt_path", trained[0], "--task", "größe x", "--format", "state_dict", "--out", tmp_path)
    assert (tmp_path / f"{file_names(NAMES)[0]}.pt").is_file()


@pytest.mark.parametrize("every", [["--all_tasks"], ["--task", "all"]])
def test_all_tasks_have_files_of_their_own(trained, lws, tmp_path, every):
    lws("export", "--ckpt_path", trained[0], *every, "--format", "state_dict", "--out", tmp_path / "models")
    files = list((tmp_path / "models").iterdir())
    assert {torch.load(file, weights_only=True)["metadata"]["task"] for file in files} == set(NAMES)
    assert all(file.suffix == ".pt" for file in files)


def test_files_go_into_the_runs_folder(trained, lws):
    lws("export", "--ckpt_path", trained[0], "--task", "größe.x", "--format", "state_dict")
    assert (trained[0].parent.parent / "exported" / "größe.x.pt").is_file()


def test_a_checkpoint_without_preprocessing_is_exported_with_a_note(trained, lws, tmp_path, capsys):
    content = torch.load(trained[0], weights_only=True)
    content["lws_data"] = {"preprocessing": None, "class_names": [None] * len(NAMES)}
    torch.save(content, tmp_path / "bare.ckpt")
    lws("export", "--ckpt_path", tmp_path / "bare.ckpt", "--task", "größe x", "--format", "state_dict")
    assert "does not describe the preprocessing of its images" in capsys.readouterr().out
    metadata = torch.load(tmp_path / "exported" / f"{file_names(NAMES)[0]}.pt", weights_only=True)["metadata"]
    assert metadata["preprocessing"] is None
    assert metadata["class_names"] is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--task": "groesse"}, "There is no task 'groesse'; the tasks are: 'größe x', 'größe.x', 'größe/x'"),
        ({"--ckpt_path": "none.ckpt"}, "There is no checkpoint none.ckpt"),
        ({"--task": "all", "--out": "a_file"}, r"--out a_file is a file, but there are 3 tasks"),
    ],
)
def test_errors_say_what_to_do(trained, lws, tmp_path, changed, message):
    (tmp_path / "a_file").write_text("")
    options = {"--ckpt_path": trained[0], "--task": "größe x", "--format": "state_dict", **changed}
    with pytest.raises(SystemExit, match=f"lws export: .*{message}"):
        lws("export", *(part for option in options.items() for part in option))


def test_task_or_all_tasks(trained, lws, capsys):
    for both in ([], ["--task", "größe x", "--all_tasks"]):
        with pytest.raises(SystemExit):
            lws("export", "--ckpt_path", trained[0], "--format", "pt2", *both)
        (line,) = capsys.readouterr().err.splitlines()
        assert "--task" in line
        assert "--all_tasks" in line


@pytest.mark.parametrize("format", ["onnx", "safetensors"])
def test_a_missing_package_names_the_extra(trained, lws, monkeypatch, format):
    monkeypatch.setitem(sys.modules, FORMATS[format].packages[0], None)
    with pytest.raises(SystemExit, match=rf"format {format} needs the package .*pip install 'lws-lightning\[export\]'"):
        lws("export", "--ckpt_path", trained[0], "--task", "größe x", "--format", format)


def test_a_method_that_mixes_is_refused_with_the_reason(lws, tmp_path):
    path, _ = train(tmp_path, CrossStitch, steps=1)
    with pytest.raises(SystemExit, match="CrossStitch has no network for one task alone"):
        lws("export", "--ckpt_path", path, "--task", "größe x", "--format", "state_dict")


def test_file_names_are_distinct_on_every_system():
    names = [
        "a b",
        "a_b",
        "a/b",
        "Ab",
        "ab",
        "..",
        ".hidden",
        "größe",
        "gro\u0308ße",
        "数字",
        "x" * 300,
        "x" * 301,
        "CON",
    ]
    made = file_names(names)
    assert len({name.casefold() for name in made}) == len(names)
    assert all(name and not name.startswith(".") and "/" not in name and len(name.encode()) <= 210 for name in made)
    assert made[1] == "a_b"  # a name that needs no change keeps it
    assert made[9] == "数字"
    assert file_names(["v1.0", "Größe"]) == ["v1.0", "Größe"]
