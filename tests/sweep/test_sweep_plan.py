"""Which runs a sweep has, and what it refuses before any of them."""

import contextlib

import pytest
import yaml
from locations import CONFIGS

from lws_lightning.cli import resolve_config
from lws_lightning.records import find_run
from lws_lightning.sweep.command import _split, sweep
from lws_lightning.sweep.plan import parse_seeds, plan_runs, save_config

LEARNED = CONFIGS / "quickstart/learned.yaml"
FULL = CONFIGS / "quickstart/full.yaml"


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0", [0]), ("0-3", [0, 1, 2, 3]), ("7,2-4,3", [7, 2, 3, 4]), (" 1 , 5-5", [1, 5]), ("100-102", [100, 101, 102])],
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-1", "1,,2", "0-9-10"])
def test_seeds_that_cannot_be_read(text):
    with pytest.raises(ValueError, match="--seeds"):
        parse_seeds(text)


def test_every_configuration_gets_every_seed(tmp_path):
    configs = {path: resolve_config(path, ["--trainer.max_steps", "100"]) for path in (LEARNED, FULL)}
    runs = plan_runs(configs, [0, 4], tmp_path)
    assert [str(run) for run in runs] == [
        "quickstart/learned seed 0",
        "quickstart/full seed 0",
        "quickstart/learned seed 4",
        "quickstart/full seed 4",
    ]
    assert runs[2].folder == tmp_path / "quickstart/learned/seed4"
    assert runs[2].config["seed_everything"] == 4
    assert runs[2].max_steps == 100
    assert runs[2].config["model"] == configs[LEARNED]["model"]


def plan(tmp_path, *options, path=LEARNED, seeds=(0,)):
    return plan_runs({path: resolve_config(path, options)}, seeds, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.seed", "3"], "model.seed is fixed"),
        (["--data.seed", "3"], "data.seed is fixed"),
        (["--trainer.fast_dev_run", "true"], "fast_dev_run"),
        (["--trainer.devices", "2"], "more than one process"),
        (["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", "x"], "trainer.logger is set"),
    ],
)
def test_options_that_contradict_a_sweep(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        plan(tmp_path, *options)


def test_two_configurations_of_one_name(tmp_path):
    other = tmp_path / "elsewhere/quickstart/learned.yaml"
    other.parent.mkdir(parents=True)
    other.write_text(yaml.safe_dump(resolve_config(LEARNED, [])))
    with pytest.raises(ValueError, match="Two configurations are called quickstart/learned"):
        plan_runs({path: resolve_config(path, []) for path in (LEARNED, other)}, [0], tmp_path)


def test_a_folder_keeps_its_options(tmp_path):
    (run,) = plan(tmp_path)
    save_config(run)
    assert plan(tmp_path, "--data.num_workers", "2", "--trainer.accelerator", "cpu")
    with pytest.raises(ValueError, match=r"seed0 holds a run with model\.nes_lr 0\.1, not 0\.5\. Choose another --out"):
        plan(tmp_path, "--model.nes_lr", "0.5")
    with pytest.raises(ValueError, match=r"trainer\.max_steps 1000, not 2000"):
        plan(tmp_path, "--trainer.max_steps", "2000")
    plan(tmp_path, "--model.nes_lr", "0.5", seeds=[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--model.no_such", "1"], "no_such"), (["--model.nes_samples", "many"], "nes_samples")],
)
def test_options_that_fit_refuses_name_the_configuration(options, message):
    with pytest.raises(ValueError, match=message) as refusal:
        resolve_config(LEARNED, options)
    assert "learned.yaml" in str(refusal.value)


def test_arguments_are_sorted():
    arguments = (
        "a.yaml b.yaml --config c.yaml --seeds 0-2 --data.root X --model.nes_lr=0.5 --config=d.yaml --jobs 2 "
        "--cluster slurm --cluster.mem_gb 8"
    )
    own, cluster, passed_on = _split([*arguments.split(), "--data.tasks", "[a, b]", "--out", "o", "--cluster.name=n"])
    assert " ".join(own) == (
        "a.yaml b.yaml --config c.yaml --seeds 0-2 --config=d.yaml --jobs 2 --cluster slurm --out o"
    )
    assert cluster == {"mem_gb": 8, "name": "n"}
    assert passed_on == ["--data.root", "X", "--model.nes_lr=0.5", "--data.tasks", "[a, b]"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed_everything", "3"], "the seeds are --seeds"),
        (["--ckpt_path=x"], "finds the checkpoints"),
        (["--trainer.logger", "false"], "TensorBoardLogger"),
        (["--seeds", "x"], "neither a number nor a range"),
        (["--model.no_such", "1"], "no_such"),
    ],
)
def test_refused_before_any_run(lws, tmp_path, arguments, message):
    with pytest.raises(SystemExit, match=message):
        lws("sweep", LEARNED, *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [("nowhere.yaml",), (LEARNED, "--config", "nowhere.yaml")])
def test_a_configuration_that_is_not_there(lws, arguments):
    with pytest.raises(SystemExit, match=r"nowhere\.yaml: there is no such configuration file"):
        lws("sweep", *arguments)


def test_names_tell_the_overlays(tmp_path):
    overlays = [CONFIGS / "methods/sluice.yaml", CONFIGS / "options/training_plus.yaml"]
    options = [word for path in overlays for word in ("--config", str(path))]
    configs = {path: resolve_config(path, options) for path in (LEARNED, FULL)}
    runs = plan_runs(configs, [2], tmp_path, overlays)
    names = ["quickstart/learned+sluice+training_plus", "quickstart/full+sluice+training_plus"]
    assert [run.name for run in runs] == names
    assert [run.folder for run in runs] == [tmp_path / name / "seed2" for name in names]


def planned(monkeypatch, tmp_path, *arguments):
    """The runs that a sweep would train, by name."""
    runs = []
    monkeypatch.setattr("lws_lightning.sweep.command.run_locally", lambda planned, *_: runs.extend(planned) or [])
    with contextlib.suppress(SystemExit):
        sweep([str(argument) for argument in (*arguments, "--out", tmp_path / "out")], resolve_config)
    return {run.name: run.config for run in runs}


def test_overlays_of_one_configuration(monkeypatch, tmp_path):
    prior, plus = CONFIGS / "methods/prior.yaml", CONFIGS / "options/training_plus.yaml"
    runs = planned(monkeypatch, tmp_path, FULL, f"{FULL}+{prior}+{plus}", "--config", plus, "--model.lr", "0.002")
    assert list(runs) == ["quickstart/full+training_plus", "quickstart/full+prior+training_plus+training_plus"]
    full, changed = (run["model"]["init_args"] for run in runs.values())
    assert (full["sharing"], changed["sharing"]) == ("full", "prior")
    assert full["clip_grad_norm"] == changed["clip_grad_norm"] == 1.0
    assert full["lr"] == changed["lr"] == 0.002


def test_the_last_overlay_wins(monkeypatch, tmp_path):
    for name, lr in (("a", 0.1), ("b", 0.2), ("c", 0.3)):
        (tmp_path / f"{name}.yaml").write_text(f"model: {{init_args: {{lr: {lr}}}}}")
    a, b, c = (tmp_path / f"{name}.yaml" for name in "abc")
    runs = planned(monkeypatch, tmp_path, f"{FULL}+{a}+{b}", f"{LEARNED}+{b}+{a}", "--config", c)
    assert [run["model"]["init_args"]["lr"] for run in runs.values()] == [0.3, 0.3]
    runs = planned(monkeypatch, tmp_path, f"{FULL}+{a}+{b}", f"{LEARNED}+{b}+{a}", LEARNED)
    assert [run["model"]["init_args"]["lr"] for run in runs.values()] == [0.2, 0.1, 0.001]


def test_a_file_whose_name_has_a_plus(monkeypatch, tmp_path):
    file = tmp_path / "a+b.yaml"
    config = yaml.safe_load(FULL.read_text(encoding="utf-8"))
    config["trainer"] = str(CONFIGS / "quickstart/trainer.yaml")
    file.write_text(yaml.safe_dump(config))
    assert list(planned(monkeypatch, tmp_path, file)) == [f"{tmp_path.name}/a+b"]


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (f"{FULL}+nowhere.yaml", r"nowhere\.yaml: there is no such configuration file \(in .*full\.yaml\+nowhere"),
        (f"{FULL}+", "an empty name: there is no such configuration file"),
        (f"{FULL}+{LEARNED.parent}", "quickstart: there is no such configuration file"),
        (f"{FULL}+{CONFIGS / 'options/learned_plus.yaml'}", "nes_lr"),  # full sharing has no search
    ],
)
def test_a_chain_that_does_not_work(chain, message):
    with pytest.raises(SystemExit, match=message):
        sweep([chain], resolve_config)


@pytest.mark.parametrize("name", ["methods/sluice.yaml", "options/training_plus.yaml"])
def test_an_overlay_alone_is_no_configuration(lws, name):
    with pytest.raises(
        SystemExit, match=rf"does not say which model and data.*lws sweep CONFIG\.\.\. --config .*{name}"
    ):
        lws("sweep", CONFIGS / name)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"status": "finished"}'])
def test_a_damaged_record_is_none(tmp_path, content):
    assert find_run(tmp_path) is None
    (tmp_path / "result.json").write_text(content)
    assert find_run(tmp_path) is None
