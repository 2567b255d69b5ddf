"""What a run says at its end."""

import json
import math
import re
from pathlib import Path

import pytest
from locations import CONFIGS
from small import digits, fixed, learned

from lws_lightning.records import Evaluation, TaskEvaluation, wilson_interval
from lws_lightning.run_summary import decisions_of, run_summary

QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")


def summary_of(printed):
    lines = printed.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("Error: ")) :]


@pytest.mark.parametrize("method", ["learned", "none"])
def test_a_run_ends_in_four_lines_and_so_does_its_test(lws, capsys, method):
    config = CONFIGS / f"quickstart/{method}.yaml"
    lws("fit", "--config", config, "--trainer.max_steps", 3, "--data.train_images_per_task", 20, *QUIET)
    lines = summary_of(capsys.readouterr().out)
    folder = Path("lightning_logs/version_0")
    result = json.loads((folder / "result.json").read_text())
    error, images = result["evaluation"]["error"], result["evaluation"]["images"]
    low, high = wilson_interval(error, images)
    assert lines[0].startswith(f"Error: {error:.2f} % of {images:,} test images (95 % ")
    assert f"{low:.2f} to {high:.2f}" in lines[0]
    if method == "learned":
        assert result["decisions"] == {"choices": 12, "undecided": 12, "settled": False}
        assert lines.pop(1).startswith("Search: not settled: 12 of 12 choices")
    else:
        assert result["decisions"] is None
    assert lines[1].startswith(f"Parameters: {result['parameters_in_use']:,}; ")
    export = re.search(r"lws (export .*), or lws (report .*)", lines[2])
    assert len(lines) == 3
    lws("test", "--ckpt_path", folder, *QUIET)
    assert summary_of(capsys.readouterr().out)[-1] == lines[2]
    for command in export.groups():
        lws(*command.split())
    printed = capsys.readouterr().out
    assert ("warning: the search has not settled" in printed) == (method == "learned")
    assert len(list(folder.rglob("*.pt2"))) == 4


def test_parameters_of_no_and_full_sharing():
    data = digits()
    full, none = (
        (module := fixed(data, sharing)).network.parameters_in_use(module.assignment) for sharing in ("full", "none")
    )
    for module in (learned(data), learned(data, weights_per_layer=2), fixed(data), fixed(data, "none")):
        text = run_summary(module, None, None)[-1]
        assert text.endswith(f"; without sharing {none:,}, all shared {full:,}.")
    assert run_summary(fixed(data), None, None)[0] == "Error: not evaluated."


def test_the_remedy_is_that_of_the_search():
    data = digits()
    assert "raise model.nes_lr (0.1)" in run_summary(learned(data), None, None)[1]
    assert "lower model.critical_z (4)" in run_summary(learned(data, critical_z=4.0), None, None)[1]
    assert decisions_of(fixed(data)) is None
    assert decisions_of(learned(data, weights_per_layer=1)) is None


@pytest.mark.parametrize(
    ("loss", "error", "said"), [(0.01, 12.0, True), (0.01, 1.0, False), (0.5, 12.0, False), (math.nan, 12.0, False)]
)
def test_a_run_that_overfits_is_told_so(monkeypatch, loss, error, said):
    method = fixed(digits())
    monkeypatch.setattr(method.update, "task_losses", lambda: {"a": loss, "b": loss})
    evaluation = Evaluation("val", 10, error, error, 1.0, {"a": TaskEvaluation(error, 100)})
    lines = [line for line in run_summary(method, evaluation, None) if line.startswith("Overfits")]
    assert bool(lines) == said
    if said:
        assert (
            f"training loss is {loss:.2g}, but {error:.2f} % of the validation images are wrong. Augment (" in lines[0]
        )


def test_an_untrained_network_does_not_overfit():
    evaluation = Evaluation("test", 10, 50.0, 50.0, 1.0, {"a": TaskEvaluation(50.0, 100)})
    assert not any("Overfits" in line for line in run_summary(fixed(digits()), evaluation, None))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nes_lr": 0.01}, True),
        ({"nes_lr": 1.0}, False),
        ({"nes_lr": 0.0}, False),
        ({"nes_lr": 0.01, "critical_z": 4.0}, False),
        ({"nes_lr": 0.01, "weights_per_layer": 1}, False),
    ],
)
def test_a_step_size_that_cannot_decide_is_said_at_the_start(options, said):
    messages = learned(digits(), **options).scheme.begin(100)
    assert any("cannot decide in this run" in message for message in messages) == said
    assert not learned(digits(), **options).scheme.begin(float("inf"))
