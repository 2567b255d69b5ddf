"""The bar counts steps, not the batches of an epoch."""

import pytest
from locations import CONFIGS


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
    assert "train/loss" in shown.out + shown.err
    assert "v_num" not in shown.out + shown.err
