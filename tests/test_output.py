"""Names of any kind: what is printed never fails, and what is drawn is what the name says."""

import io
import sys

import pytest
from fakes import write_folders

TASKS = {
    "π": {"x": 5, "日本": 5},
    "日本": {"ä": 6, "y": 5},
    "price_$10_to_$20": {"a$b$": 5, r"\frac{": 5},
}


@pytest.mark.filterwarnings("ignore:Glyph")  # matplotlib's font has no Japanese
def test_tasks_of_any_name_go_through_every_command(lws, tmp_path, monkeypatch):
    files = [io.BytesIO(), io.BytesIO()]
    for name, file in zip(("stdout", "stderr"), files, strict=True):  # as with PYTHONIOENCODING=ascii
        stream = io.TextIOWrapper(file, encoding="ascii", errors="strict", write_through=True)
        monkeypatch.setattr(sys, name, stream)
    write_folders(tmp_path / "photos", TASKS)
    steps = ["--trainer.max_steps", 2, "--trainer.val_check_interval", 2, "--trainer.check_val_every_n_epoch", "null"]
    lws(
        "fit", "--model", "LearnedWeightSharing", "--model.network", "digits_convnet", "--data", "ImageFolders",
        "--data.root", "photos", "--data.image_size", 8, "--data.cache", "false", "--trainer.accelerator", "cpu",
        "--trainer.enable_progress_bar", "false", "--trainer.logger", "TensorBoardLogger",
        "--trainer.logger.save_dir", ".", *steps,
    )  # fmt: skip
    run = tmp_path / "lightning_logs/version_0"
    (checkpoint,) = run.glob("checkpoints/*.ckpt")
    assert {path.name for path in (run / "pictures").iterdir()} >= {"assignment.png", "affinity.png"}
    for command in (
        ["test", "--ckpt_path", checkpoint],
        ["predict", "--ckpt_path", checkpoint, "--images", "photos", "--trainer.accelerator", "cpu"],
        ["export", "--ckpt_path", checkpoint, "--all_tasks", "--format", "state_dict"],
        ["report", "lightning_logs", "--out", "report"],
    ):
        lws(*command)
    printed = files[0].getvalue().decode("ascii")
    assert r"task '\u65e5\u672c'" in printed
    assert "task 'price_$10_to_$20'" in printed
    for name in ("predictions.csv", "report/report.md", "report/table.csv", "report/report.html"):
        assert "日本" in (tmp_path / name).read_text(encoding="utf-8")
