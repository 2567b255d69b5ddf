"""The bar counts steps, not the batches of an epoch."""

import pytest
from locations import CONFIGS

from lws_lightning.callbacks import StepProgressBar


@pytest.mark.parametrize(
    ("limit", "expected"), [("--trainer.max_steps=20", "20/20"), ("--trainer.max_epochs=2", "7/7")]
)
def test_the_bar_ends_at_the_last_step(lws, capsys, limit, expected):
    options = ["--trainer.limit_val_batches=0"]
    if "epochs" in limit:
        options.append("--trainer.max_steps=-1")
    lws("fit", "--config", CONFIGS / "quickstart/full.yaml", limit, *options)
    shown = capsys.readouterr()
    assert expected in shown.out + shown.err
    assert ", loss=" in shown.out + shown.err
    assert "v_num" not in shown.out + shown.err


def test_the_names_of_metrics_are_short(monkeypatch):
    metrics = {"v_num": 0, "train/loss": 1.5, "entropy/mean": 0.7, "val/error": 0.1, "test_curve/error": 0.2, "own": 3}
    monkeypatch.setattr("lws_lightning.callbacks.progress.TQDMProgressBar.get_metrics", lambda *_: metrics)
    shown = StepProgressBar().get_metrics(None, None)
    assert shown == {"loss": 1.5, "entropy": 0.7, "val": 0.1, "test": 0.2, "own": 3}
