"""The small parts under the callbacks: files, tags, curve, environment."""

import json
import os
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lws_lightning.callbacks import tags_of, write_atomically
from lws_lightning.callbacks.curve import curve_csv, put_row, rows_of_csv
from lws_lightning.callbacks.environment import hardware, plain, versions


def row(step, prefix="val", **changes):
    return {
        "step": step,
        "seconds": 1.5,
        "prefix": prefix,
        "error": 12.25,
        "error_task_mean": 12.5,
        "loss": 0.125,
        "entropy_mean": 1.0,
        "tasks": {"a,b": 10.0},
    } | changes


def test_write_replaces_the_whole_file(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_atomically(path, "long old content\n")
    write_atomically(path, "été")
    assert path.read_bytes() == "été".encode()
    assert [each.name for each in path.parent.iterdir()] == ["file.txt"]


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]


def test_files_obey_the_umask(tmp_path):
    mask = os.umask(0o022)
    try:
        write_atomically(tmp_path / "file.txt", b"x")
    finally:
        os.umask(mask)
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == 0o644


def test_tags():
    assert tags_of(["conv1", "Japanese_(katakana)", "a.b", "été/2"]) == ["conv1", "Japanese__katakana_", "a.b", "été_2"]
    assert tags_of(["a/b", "a_b", "a b", "mean", "/"]) == ["a_b_2", "a_b", "a_b_3", "mean_2", "_"]


@given(st.lists(st.text(max_size=4), unique=True, max_size=8))
def test_tags_are_distinct_and_plain(names):
    tags = tags_of(names)
    assert len(set(tags)) == len(names)
    assert all(tag and tag != "mean" and "/" not in tag and " " not in tag for tag in tags)


def test_curve_keeps_one_row_for_a_step_and_prefix():
    rows = []
    for step, prefix, error in [(4, "val", 1.0), (2, "val", 2.0), (4, "test_curve", 3.0), (4, "val", 4.0)]:
        put_row(rows, row(step, prefix, error=error))
    assert [(each["step"], each["prefix"], each["error"]) for each in rows] == [
        *((2, "val", 2.0), (4, "test_curve", 3.0), (4, "val", 4.0)),
    ]


def test_curve_as_csv_and_back():
    rows = [row(2), row(4, entropy_mean=None, tasks={"c": 5.0}, loss=float("nan"))]
    text = curve_csv(rows, ["a,b", "c"])
    assert text.splitlines() == [
        'step,seconds,prefix,error,error_task_mean,loss,entropy_mean,"error/a,b",error/c',
        "2,1.5,val,12.25,12.5,0.125,1,10,",
        "4,1.5,val,12.25,12.5,nan,,,5",
    ]
    assert rows_of_csv(text)[0] == rows[0]
    assert curve_csv(rows_of_csv(text), ["a,b", "c"]) == text


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "step,prefix\n1,val\n", curve_csv([row(2)], ["a"])[:-12]])
def test_other_tables_are_no_curve(text):
    with pytest.raises(ValueError, match=r".+"):
        rows_of_csv(text)


class Colour(Enum):
    RED = 1


def test_plain_values():
    values = {
        "path": Path("a/b"),
        "inf": float("inf"),
        "numpy": np.float32(0.5),
        "array": np.arange(3),
        "tensor": torch.tensor([[1, 2]]),
        "large": torch.zeros(2000),
        "tuple": (1, None, True),
        "enum": Colour.RED,
        "function": plain,
        "class": Path,
        "object": object(),
        3: {"nested": {4}},
    }
    found = plain(values)
    json.dumps(found, allow_nan=False)
    assert found["object"].startswith("<object object")
    del found["object"]
    assert found == {
        "path": str(Path("a/b")),
        "inf": "inf",
        "numpy": 0.5,
        "array": [0, 1, 2],
        "tensor": [[1, 2]],
        "large": "Tensor (2000,)",
        "tuple": [1, None, True],
        "enum": "RED",
        "function": "lws_lightning.callbacks.environment.plain",
        "class": "pathlib.Path",
        "3": {"nested": [4]},
    }


def test_environment():
    assert versions()["torch"].split("+")[0] == torch.__version__.split("+")[0]
    machine = hardware(torch.device("cpu"))
    assert machine["gpu"] is None
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert hardware(torch.device("mps"))["gpu"] == "mps"
