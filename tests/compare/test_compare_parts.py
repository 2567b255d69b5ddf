"""The trial of a few steps, and contenders on a pretrained network, each with real runs."""

import json

import pytest
import torch
import torchvision

from lws_lightning.cli import main
from lws_lightning.compare import plan, rounds, session
from lws_lightning.compare.plan import Timing
from lws_lightning.compare.trunk import Trunk


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(plan.LIMITS, "fewest", 10)
    monkeypatch.setattr(plan.LIMITS, "most", 10)
    monkeypatch.setattr(rounds, "MOST_SEEDS", 1)
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "weights.pt")
    trunk = Trunk("torchvision:resnet18", str(tmp_path / "weights.pt"), {"size": 32}, ["layer4.1"], 40)
    monkeypatch.setattr(session, "find_trunk", lambda: (trunk, ""))
    everyone = session.contenders_for

    def choose(*names):
        monkeypatch.setattr(session, "contenders_for", lambda *given: [c for c in everyone(*given) if c.name in names])

    return choose


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_trial_times_every_contender_and_leaves_nothing(small, lws, photos, tmp_path, monkeypatch):
    small("none", "undirected", "probe")
    monkeypatch.setattr(session, "_train", lambda *_: None)  # the plan is all that is looked at
    monkeypatch.setattr("lws_lightning.compare.ending.write_results", lambda *_: None)
    lws("compare", photos, "--minutes", 60, "--out", tmp_path / "out")
    written = plan.Plan.read(tmp_path / "out")
    assert list(written.timings) == ["none", "undirected", "probe"]
    assert all(written.timings[name].step > 0 for name in ("none", "undirected"))
    assert written.timings["probe"].step == 0
    assert all(written.timings[name].evaluation > 0 for name in ("none", "undirected"))
    assert written.timings["probe"].once > 0
    assert written.overhead > 0
    assert not (tmp_path / "out/.timing").exists()
    assert not list((tmp_path / "out").glob("contenders/*/seed*"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_trunk_is_compared_on_the_same_images(small, photos, tmp_path, monkeypatch):
    small("none", "probe", "adapters")
    monkeypatch.setattr(
        session, "measure", lambda configs, *_: ({path.stem: Timing(0.1, 1.0, 0.0) for path in configs}, 30.0, 10.0)
    )
    monkeypatch.setattr("sys.argv", ["lws"])
    main(["compare", str(photos), "--minutes", "60", "--out", str(tmp_path / "out"), "--jobs", "2"])
    verdict = json.loads((tmp_path / "out/verdict.json").read_text())
    assert set(verdict["contenders"]) == {"none", "probe", "adapters"}
    assert all(0 <= each["test_errors"][0] <= 100 for each in verdict["contenders"].values())
    config = (tmp_path / "out/contenders/probe.yaml").read_text()
    assert "augmentation: null" in config
    assert "image_size: 40" in config
    assert (tmp_path / "out/models/birds.onnx").is_file()
