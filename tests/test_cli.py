"""The command `lws`, as a user types it."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from fakes import write_cifar100, write_dkl_mnist, write_folders, write_omniglot
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from locations import CONFIGS
from shipped import SHIPPED, as_options, name_of, repeats, resolved
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lws_lightning import Digits, LearnedWeightSharing
from lws_lightning.methods import LearnedScheme

QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")
LEARNED = CONFIGS / "quickstart/learned.yaml"
SHORT = ("--trainer.max_steps", 6, "--trainer.val_check_interval", 2, *QUIET)


def load(path):
    return torch.load(path, weights_only=True)


def run_folder(root="."):
    (path,) = (p for p in Path(root).rglob("config.yaml"))
    return path.parent


def same_state(one, other):
    one, other = load(one), load(other)
    for key in one["state_dict"]:
        assert torch.equal(one["state_dict"][key], other["state_dict"][key]), key
    for number, moments in one["optimizer_states"][0]["state"].items():
        for name, value in moments.items():
            assert torch.equal(
                torch.as_tensor(value), torch.as_tensor(other["optimizer_states"][0]["state"][number][name])
            )


def tiny_data(folder, root):
    """Lays tiny data of the right layout out, and returns the options that go with them."""
    if folder in ("quickstart", "demo"):
        return ()
    if folder == "dkl_mnist":
        return ("--data.root", write_dkl_mnist(root), "--data.train_images_per_task", 60)
    if folder == "cifar100":
        return ("--data.root", write_cifar100(root), "--data.tasks", "[fish, insects]", "--data.batch_size", 2)
    if folder == "image_folders":
        write_folders(root, {"cars": {"red": 9, "blue": 6}, "trees": {"oak": 7, "elm": 5, "fir": 8}})
        return ("--data.root", root, "--data.batch_size", 4, "--data.cache_dir", root.parent / "cache")
    small = ["Angelic", "Inuktitut_(Canadian_Aboriginal_Syllabics)"]
    root = write_omniglot(root, small)
    cache = ("--data.cache_dir", root.parent / "cache")
    smaller = ("--data.image_size", 64, *cache)  # the whole size is that of tests/networks
    return ("--data.root", root, "--data.tasks", f"[{', '.join(small)}]", "--data.batch_size", 2, *smaller)


@pytest.mark.parametrize(
    "combination",
    [pytest.param(each, marks=pytest.mark.slow if repeats(each) else ()) for each in SHIPPED],
    ids=name_of,
)
def test_every_shipped_config_trains(lws, tmp_path, combination):
    config = resolved(combination)
    folder, row = combination[0].split("/")
    extra = tiny_data(folder, tmp_path / "data")
    if config["model"]["class_path"].endswith("LearnedWeightSharing") and folder in ("cifar100", "omniglot"):
        extra += ("--model.nes_samples", 2, "--model.sgd_samples", 1)
    if row.startswith("resnet18"):  # 223 million parameters are not for a test
        extra += ("--model.network", "dkl_convnet")
    if combination[-1] == "methods/fully_adaptive":  # a step for each layer
        extra += ("--model.branching_part", 1)
    if combination[-1] == "methods/linear_probe":
        extra += ("--model.penalties", "[0.1]")
    short = ("--trainer.max_steps", 5, "--trainer.val_check_interval", 2, *QUIET)
    lws("fit", *as_options(combination), *extra, *short)
    folder = run_folder("lightning_logs")
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "finished"
    evaluated = ["1"] if combination[-1] == "methods/linear_probe" else ["2", "4", "5"]  # the probe needs one step
    assert str(result["step"]) == evaluated[-1]
    curve = (folder / "curve.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in curve[1:]] == evaluated
    keeps_all = config["trainer"]["callbacks"][0]["init_args"]["save_top_k"] == -1
    assert len(list((folder / "checkpoints").glob("*.ckpt"))) == (len(evaluated) + 1 if keeps_all else 2)


def test_the_python_run_is_the_run_of_the_command(lws, tmp_path):
    lws("fit", "--config", LEARNED, "--seed_everything", 3, *SHORT, "--trainer.default_root_dir", tmp_path / "cli")
    options = yaml.safe_load((run_folder(tmp_path / "cli") / "config.yaml").read_text())
    seed_everything(3)
    data = Digits(**options["data"]["init_args"])
    module = LearnedWeightSharing(**options["model"]["init_args"], **data.task_info)
    checkpoint = ModelCheckpoint(
        dirpath=tmp_path / "python", save_last=True, every_n_epochs=1, save_on_train_epoch_end=False
    )
    trainer = Trainer(
        max_steps=6, val_check_interval=2, check_val_every_n_epoch=None, num_sanity_val_steps=0,
        callbacks=[checkpoint], default_root_dir=tmp_path / "python", enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    same_state(next((tmp_path / "cli").rglob("last.ckpt")), tmp_path / "python/last.ckpt")


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_and_resumed_ends_with_the_same_weights(lws, tmp_path, workers):
    options = ("--data.num_workers", workers, "--trainer.val_check_interval", 5, *QUIET)
    lws(
        "fit",
        "--config",
        LEARNED,
        *options,
        "--trainer.max_steps",
        40,
        "--trainer.default_root_dir",
        tmp_path / "whole",
    )
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "lws_lightning", "fit", "--config", LEARNED, *options]
    command += ["--trainer.max_steps", 100000, "--trainer.default_root_dir", killed]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(killed.rglob("step=*10.ckpt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    checkpoint = next(killed.rglob("step=*10.ckpt"))
    lws(
        "fit",
        "--ckpt_path",
        checkpoint,
        "--trainer.max_steps",
        40,
        "--trainer.default_root_dir",
        tmp_path / "resumed",
        *QUIET,
    )
    same_state(next((tmp_path / "whole").rglob("last.ckpt")), next((tmp_path / "resumed").rglob("last.ckpt")))
    curves = [next((tmp_path / name).rglob("curve.csv")).read_text() for name in ("whole", "resumed")]
    timeless = [[row.split(",")[:1] + row.split(",")[2:] for row in curve.splitlines()] for curve in curves]
    assert timeless[0] == timeless[1]


def test_test_needs_nothing_but_the_checkpoint(lws, capsys):
    lws("fit", "--config", LEARNED, *SHORT, "--data.train_images_per_task", 60)
    folder = run_folder()
    before = set(folder.parent.parent.rglob("*"))
    lws("test", "--ckpt_path", folder / "checkpoints/last.ckpt", *QUIET)
    new = {path.relative_to(folder).as_posix() for path in set(folder.parent.parent.rglob("*")) - before}
    tasks = [f"{way}_{label}" for way in ("upright", "scrambled") for label in ("digit", "parity")]
    (log,) = (name for name in new if name.startswith("events.out.tfevents"))  # TensorBoard's, beside that of the fit
    assert new - {log} == {
        "test_classes.json",
        "pictures/wrong_images.png",
        *(f"pictures/confusion_{t}.png" for t in tasks),
    }
    result = json.loads((folder / "result.json").read_text())
    assert result["test"]["tasks"] == result["evaluation"]["tasks"]
    assert result["test"]["images"] == 1797 - 4 * 60
    lws("report", ".")
    table = capsys.readouterr().out
    assert "learned" in table
    assert f"{result['test']['error']:.2f}" in table


def test_tensorboard_tags(lws):
    lws("fit", "--config", LEARNED, "--trainer.max_steps", 4, "--trainer.val_check_interval", 2,
        "--trainer.log_every_n_steps", 1, *QUIET)  # fmt: skip
    events = EventAccumulator(str(run_folder()))
    events.Reload()
    tags = events.Tags()
    scalars = {
        "train/loss", "nes/loss_mean", "nes/loss_best", "train/loss/scrambled_parity",
        "entropy/mean", "entropy/dense1", "Error/test_curve",
        "sharing/distinct_weights", "sharing/parameters", "test_curve/error", "test_curve/error_task_mean",
        "test_curve/error/scrambled_parity", "test_curve/loss",
    }  # fmt: skip
    assert scalars <= set(tags["scalars"])
    assert {"sharing/assignment", "sharing/probabilities"} <= set(tags["images"])
    assert "sharing/probabilities_histogram" in tags["histograms"]
    assert [event.step for event in events.Scalars("train/loss")] == [0, 1, 2, 3]
    first = events.Scalars("entropy/mean")[0].value
    assert 0.9 < first / math.log(3) <= 1


def test_print_config_needs_no_data_and_downloads_nothing(lws, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        lws("fit", "--config", CONFIGS / "dkl_mnist/convnet_learned.yaml", "--data.download", "true",
            "--data.root", tmp_path / "empty", "--print_config")  # fmt: skip
    assert not stopped.value.code
    assert "nes_lr: 0.01" in capsys.readouterr().out
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize("option", ["--model.num_classes", "--model.init_args.task_names=[a]"])
def test_what_comes_from_the_data_is_not_taken_by_hand(lws, option):
    with pytest.raises(SystemExit, match="comes from the data"):
        lws("fit", "--config", LEARNED, option, "[3]")


def test_what_comes_from_the_data_is_not_taken_from_a_config(lws, tmp_path):
    (tmp_path / "mine.yaml").write_text("model: {init_args: {num_classes: [3, 4]}}")
    with pytest.raises(SystemExit, match=r"num_classes.*comes from the data"):
        lws("fit", "--config", LEARNED, "--config", tmp_path / "mine.yaml", *SHORT)


def test_a_run_of_a_file_and_an_overlay_is_resumed_from_its_checkpoint_alone(lws):
    lws("fit", "--config", LEARNED, "--config", CONFIGS / "methods/routing.yaml", *SHORT)
    folder = run_folder()
    saved = yaml.safe_load((folder / "config.yaml").read_text())["model"]
    assert saved["class_path"] == "lws_lightning.RoutingNetworks"
    assert saved["init_args"]["initialization"] == "he_uniform"  # of the first file
    assert "nes_lr" not in saved["init_args"]
    lws("fit", "--ckpt_path", folder, "--trainer.max_steps", 8, "--trainer.default_root_dir", "more", *QUIET)
    result = json.loads((run_folder("more") / "result.json").read_text())
    assert (result["status"], result["step"]) == ("finished", 8)


def test_the_same_command_twice_in_one_folder(lws):
    for _ in range(2):
        lws("fit", "--config", LEARNED, *SHORT, "--trainer.logger", "false")


def test_options_beside_a_checkpoint_are_obeyed_or_refused(lws):
    lws("fit", "--config", LEARNED, *SHORT)
    checkpoint = run_folder() / "checkpoints/last.ckpt"
    more = ("--trainer.max_steps", 8, "--trainer.default_root_dir", "more", *QUIET)
    with pytest.warns(UserWarning, match=r"model\.lr 0\.5"):
        lws("fit", "--ckpt_path", checkpoint, "--model.lr", 0.5, *more)
    new = load(next(p for p in Path("more").rglob("*.ckpt")))
    assert new["optimizer_states"][0]["param_groups"][0]["lr"] == 0.5
    with pytest.raises(SystemExit, match="seed"):
        lws("fit", "--ckpt_path", checkpoint, "--seed_everything", 9, *more)
    with pytest.raises(SystemExit, match="tasks"):
        lws("fit", "--ckpt_path", checkpoint, "--data.tasks", "[upright_digit]", *more)


@pytest.mark.parametrize("subcommand", ["test", "validate"])
def test_untrained_networks_are_not_evaluated(lws, subcommand):
    with pytest.raises(SystemExit, match="--ckpt_path"):
        lws(subcommand, "--config", LEARNED, *QUIET)


def test_missing_data_name_folder_and_remedy(lws, tmp_path):
    with pytest.raises(SystemExit, match="download") as error:
        lws("fit", "--config", CONFIGS / "dkl_mnist/convnet_learned.yaml", "--data.root", tmp_path / "empty", *SHORT)
    assert str(tmp_path / "empty") in str(error.value)


def test_report_without_runs(lws, tmp_path):
    with pytest.raises(SystemExit, match="no run"):
        lws("report", tmp_path)


def test_module_and_version():
    done = subprocess.run(
        [sys.executable, "-m", "lws_lightning", "--version"], capture_output=True, text=True, check=True
    )
    assert "0.1.0" in done.stdout


def test_the_algorithm_imports_without_lightning():
    code = "import sys\nfrom lws_lightning import search, sharing, training\nsys.exit('lightning' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGUSR1", 138)])
def test_a_run_that_a_signal_ends_does_not_end_well(lws, monkeypatch, tmp_path, number, status):
    """So that `lws fit ... && lws test ...` does not go on."""
    update = LearnedScheme.update_distribution

    def struck(self, weights, batch):
        if weights.step == 2:
            signal.raise_signal(getattr(signal, number))
        return update(self, weights, batch)

    monkeypatch.setattr(LearnedScheme, "update_distribution", struck)
    with pytest.raises(SystemExit) as stopped:
        lws("fit", "--config", LEARNED, *SHORT, "--trainer.default_root_dir", tmp_path)
    assert stopped.value.code == status
    (record,) = tmp_path.rglob("result.json")
    assert json.loads(record.read_text())["status"] == "interrupted"
