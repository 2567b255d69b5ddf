"""Reads what a run has recorded."""

import csv
import json
from pathlib import Path


def home(root):
    """The folder of the only run below a folder."""
    (path,) = Path(root).rglob("result.json")
    return path.parent


def result(root):
    return json.loads((home(root) / "result.json").read_text(encoding="utf-8"))


def curve(root):
    with (home(root) / "curve.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def steps(folder):
    return [int(row["step"]) for row in curve(folder)]


def files(folder):
    names = (str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
    return sorted(name for name in names if not name.endswith(".run.lock"))
