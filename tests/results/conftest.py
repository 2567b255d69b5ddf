import json

import pytest

from lws_lightning.callbacks.curve import curve_csv


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


def curve_text(errors, entropies=None, prefix="test_curve"):
    """Writes a `curve.csv` with an evaluation every 100 steps."""
    entropies = entropies or [None] * len(errors)
    rows = [
        {
            "step": 100 * (i + 1),
            "seconds": 1.0,
            "prefix": prefix,
            "error": error,
            "error_task_mean": error,
            "loss": 1.0,
            "entropy_mean": entropy,
            "tasks": {"low": error},
        }
        for i, (error, entropy) in enumerate(zip(errors, entropies, strict=True))
    ]
    return curve_csv(rows, ["low"])


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
                config = {"seed_everything": seed, "data": {"class_path": "Digits", "init_args": {"batch_size": 16}}}
                (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")

    return write
