import json

import pytest


@pytest.fixture
def write_run(tmp_path):
    """Writes a `result.json` into a folder below `tmp_path`, with given keys changed."""

    def write(name, **changes):
        record = {
            "format": 1,
            "status": "finished",
            "message": "",
            "method": "learned",
            "network": "small",
            "data": "Digits",
            "task_names": ["low", "high"],
            "layer_names": ["conv"],
            "weights_per_layer": [2],
            "seed": 0,
            "step": 100,
            "max_steps": 100,
            "evaluation": measure(),
            "test": None,
            "entropies": None,
            "assignment": [[0, 0]],
            "parameters_in_use": 1234,
            "parameters_total": 2000,
            "seconds": 50.0,
            "seconds_evaluation": 5.0,
            "seconds_per_step": 0.5,
            "hparams": {"seed": 0, "learning_rate": 0.1},
            "ended": "2024-01-01T00:00:00+00:00",
        } | changes
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").write_text(json.dumps(record), encoding="utf-8")
        return folder

    return write


def measure(prefix="test_curve", step=100, low=10.0, high=20.0, images=(100, 300)):
    return {
        "prefix": prefix,
        "step": step,
        "error": (low * images[0] + high * images[1]) / sum(images),
        "error_task_mean": (low + high) / 2,
        "loss": 0.5,
        "images": sum(images),
        "tasks": {"low": {"error": low, "images": images[0]}, "high": {"error": high, "images": images[1]}},
    }


@pytest.fixture
def measured():
    return measure
