import json

import pytest
from recorded_runs import measure, recorded

from lws_lightning.records import CurveRow, curve_to_csv


@pytest.fixture
def write_run(tmp_path):
    """Writes a `result.json` into a folder below `tmp_path`, with given keys changed; see `recorded`."""

    def write(name, **changes):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").write_text(json.dumps(recorded(**changes)), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def measured():
    return measure


def curve_text(errors, entropies=None, prefix="test_curve"):
    """Writes a `curve.csv` with an evaluation every 100 steps."""
    entropies = entropies or [None] * len(errors)
    rows = [
        CurveRow(100 * (i + 1), 1.0, prefix, error, error, 1.0, entropy, {"low": error})
        for i, (error, entropy) in enumerate(zip(errors, entropies, strict=True))
    ]
    return curve_to_csv(rows, ["low"])


@pytest.fixture
def write_study(write_run):
    """Writes full, none and learned sharing with curves, as many seeds as there are errors for each."""

    def write(**errors):
        for method, values in errors.items():
            learned = method.startswith("learned")
            for seed, error in enumerate(values):
                folder = write_run(
                    f"{method}/seed{seed}",
                    method=method,
                    seed=seed,
                    evaluation=measure(low=error),
                    assignment=[[0, 0]] if learned and seed % 2 else [[0, 1]],
                )
                entropies = [0.6, 0.4, 0.1 + seed / 100] if learned else None
                curve = curve_text([error + 30, error + 5, error], entropies)
                (folder / "curve.csv").write_text(curve, encoding="utf-8")
                (folder / "config.yaml").touch()

    return write
