"""Which file is taken where a checkpoint is asked for."""

import shutil

import pytest
import torch
from locations import CONFIGS

from lws_lightning.checkpoints import find_checkpoint, newest_checkpoint, run_folder_of

QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")
FIT = ("fit", "--config", CONFIGS / "quickstart/full.yaml", "--trainer.max_steps", 4, *QUIET)
FIT += ("--trainer.val_check_interval", 2, "--data.train_images_per_task", 40)


def save(path, step, resumable=True, **record):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"global_step": step, "state_dict": {"weight": torch.ones(3)}, "loops": {"fit_loop": {}}}
    if resumable:
        content |= {"optimizer_states": [{}], "callbacks": {"RunRecord": record}}
    torch.save(content, path)
    return path


def test_the_newest_checkpoint_that_can_be_read(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    folder = tmp_path / "checkpoints"
    paths = {step: save(folder / f"step={step}.ckpt", step) for step in (9, 10, 200)}
    assert newest_checkpoint(tmp_path) == paths[200]
    whole = paths[200].read_bytes()
    paths[200].write_bytes(whole[: len(whole) // 2])
    (folder / "last.ckpt").write_bytes(b"")
    assert newest_checkpoint(tmp_path) == paths[10]
    (folder / "link.ckpt").symlink_to("step=9.ckpt")
    assert newest_checkpoint(tmp_path) == paths[10]
    nested = save(folder / "step=11-val" / "error=7.50.ckpt", 11)
    assert newest_checkpoint(tmp_path) == nested


def test_weights_only_are_tested_and_not_resumed(tmp_path):
    weights = save(tmp_path / "checkpoints/weights.ckpt", 20, resumable=False)
    whole = save(tmp_path / "checkpoints/step=10.ckpt", 10)
    assert newest_checkpoint(tmp_path) == whole
    assert newest_checkpoint(tmp_path, resumable=False) == weights
    assert find_checkpoint(weights) == weights
    with pytest.raises(ValueError, match="holds weights only"):
        find_checkpoint(weights, resumable=True)


def test_checkpoints_are_found_where_the_callback_put_them(tmp_path):
    run, other, shared = tmp_path / "run", tmp_path / "other", tmp_path / "shared"
    run.mkdir()
    other.mkdir()
    callbacks = [{"class_path": "ModelCheckpoint", "init_args": {"dirpath": str(shared)}}, {"class_path": "Timer"}]
    (run / "config.yaml").write_text(str({"trainer": {"callbacks": callbacks}}))
    save(shared / "other.ckpt", 9, folder=str(other))
    own = save(shared / "own.ckpt", 5, folder=str(run))
    assert newest_checkpoint(run) == own
    assert find_checkpoint(run) == own
    assert run_folder_of(own) == run


def test_a_folder_is_taken_for_its_last_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no checkpoint that can be read in"):
        find_checkpoint(tmp_path)
    five = save(tmp_path / "checkpoints/step=5.ckpt", 5)
    save(tmp_path / "checkpoints/step=9.ckpt", 9)
    last = tmp_path / "checkpoints/last.ckpt"
    last.symlink_to(five.name)
    assert find_checkpoint(tmp_path) == find_checkpoint(last.parent) == last
    five.unlink()
    assert find_checkpoint(tmp_path) == tmp_path / "checkpoints/step=9.ckpt"
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").touch()
    with pytest.raises(ValueError, match="holds more than one run"):
        find_checkpoint(tmp_path)


def test_a_run_folder_in_place_of_a_checkpoint(lws, tmp_path, capsys):
    lws(*FIT, "--trainer.default_root_dir", tmp_path)
    (run,) = (path.parent for path in tmp_path.rglob("config.yaml"))
    for subcommand in ("test", "validate"):
        lws(subcommand, "--ckpt_path", run, *QUIET)
    lws("export", "--ckpt_path", run, "--format", "state_dict", "--all_tasks")
    assert len(list((run / "exported").iterdir())) == 4
    lws("fit", f"--ckpt_path={run / 'checkpoints'}", "--trainer.max_steps", 6, *QUIET)
    assert "Restored all states" not in capsys.readouterr().out
    found = [torch.load(path, weights_only=True)["global_step"] for path in tmp_path.rglob("last.ckpt")]
    assert sorted(found) == [4, 6]


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("fit", ()),
        ("validate", ()),
        ("test", ()),
        ("export", ("--format", "pt2", "--all_tasks")),
        ("predict", ("--images", ".")),
    ],
)
@pytest.mark.parametrize("given", ["nowhere.ckpt", "empty", "damaged.ckpt"])
def test_where_there_is_no_checkpoint_one_true_line_says_so(lws, tmp_path, command, rest, given):
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged.ckpt").write_text("no checkpoint")
    with pytest.raises(SystemExit, match=rf"^lws {command}: .*checkpoint.*{given}|^lws {command}: {given} .*damaged"):
        lws(command, "--ckpt_path", given, *rest)


def test_a_checkpoint_without_its_config_says_what_is_missing(lws, tmp_path):
    lone = save(tmp_path / "lone.ckpt", 3)
    for command in ("fit", "test", "validate"):
        with pytest.raises(SystemExit, match=r"no config\.yaml found for the run of"):
            lws(command, "--ckpt_path", lone)


def test_a_run_folder_that_was_copied_is_its_own(lws, tmp_path):
    lws(*FIT, "--trainer.default_root_dir", tmp_path / "a")
    (run,) = (path.parent for path in tmp_path.rglob("config.yaml"))
    copy = shutil.copytree(run, tmp_path / "copy", symlinks=True)
    before = (run / "result.json").read_text()
    lws("test", "--ckpt_path", copy, *QUIET)
    assert (run / "result.json").read_text() == before
    assert '"test": null' not in (copy / "result.json").read_text()
