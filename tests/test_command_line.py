"""What a user sees of `lws` besides results: help, errors of one line, and no waiting for imports."""

import json
import subprocess
import sys

import pytest
from locations import CONFIGS
from recorded_runs import recorded

from lws_lightning.export.formats import FORMATS
from lws_lightning.parsing import EXPORT_FORMATS, did_you_mean
from lws_lightning.usage import COMMANDS, LIGHTNING_COMMANDS, command_help, overview

LEARNED = CONFIGS / "quickstart/learned.yaml"

LIGHT = """
import json, sys
from lws_lightning.cli import main
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as ended:
        assert ended.code in (0, 2, None), ended.code
print(sorted({"torch", "lightning", "scipy"} & sys.modules.keys()), file=sys.stderr)
"""


def test_help_errors_and_reports_import_neither_torch_nor_lightning(tmp_path):
    for seed in range(3):
        for method in ("learned", "none"):
            folder = tmp_path / method / str(seed)
            folder.mkdir(parents=True)
            (folder / "result.json").write_text(json.dumps(recorded(method=method, seed=seed)))
    commands = [[], ["--help"], ["--version"], ["fitt"], ["report", str(tmp_path)]]
    commands += [[name, "--help"] for name in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, json.dumps(commands)], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr
    assert "Mann-Whitney" in done.stdout or "all images" in done.stdout


def test_every_command_has_a_line(capsys, lws):
    with pytest.raises(SystemExit) as ended:
        lws("--help")
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert printed.strip() == overview()
    assert all(f"\n  {name} " in printed for name in COMMANDS)
    texts = [printed, *map(command_help, LIGHTNING_COMMANDS)]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 80


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in LIGHTNING_COMMANDS])
def test_the_help_of_a_command_fits_80_columns(capsys, lws, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        lws(command, "--help")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: lws {command} ")
    assert max(map(len, lines)) <= 80


def test_the_options_of_the_short_help_exist(lws, capsys):
    """Of the method and the data those of the quickstart, and the Trainer's."""
    words = {"root": "x", "tasks": "[upright_digit]", "batch_size": "2", "validation": "split"}
    options = [f"--data.{name}={value}" for name, value in words.items() if f"--data.{name}" in command_help("fit")]
    options += ["--model.network=digits_convnet", "--model.lr=1", "--model.nes_lr=1", "--trainer.max_steps=3"]
    options += ["--trainer.val_check_interval=3", "--trainer.default_root_dir=x", "--trainer.accelerator=gpu"]
    for option in options:
        assert f"  {option.partition('=')[0]} " in command_help("fit")
    options = [option for option in options if not option.startswith("--data.root")]  # of data sets with files
    with pytest.raises(SystemExit) as ended:
        lws("fit", "--config", LEARNED, *options, "--seed_everything=1", "--print_config")
    assert not ended.value.code
    assert "nes_lr: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("fitt",), "Did you mean fit?"),
        (("fit", "--config", LEARNED, "--model.nes_rl", 1), "of LearnedWeightSharing. Did you mean --model.nes_lr?"),
        (("fit", "--config", LEARNED, "--data.batchsize", 1), "Did you mean --data.batch_size?"),
        (("fit", "--config", LEARNED, "--max_steps", 1), "Did you mean --trainer.max_steps?"),
        (("fit", "--config", LEARNED, "--nes_lr", 1), "Did you mean --model.nes_lr?"),
        (("fit", "--config", LEARNED, "--modle.lr", 1), "Did you mean --model.lr?"),
        (("fit", "--config", LEARNED, "--model", "Learned"), "Did you mean LearnedWeightSharing?"),
        (("fit", "--config", LEARNED, "--model.lr", "x"), "--model.lr: Expected a <class 'float'>. Got value: x."),
        (("fit", LEARNED), "given with --config"),
        (("fit",), "--config FILE"),
        (
            ("export", "--all_tasks", "--checkpoint", "x", "--format", "pt2", "--ckpt_path", "x"),
            "there is no option --checkpoint.",
        ),
        (("sweep", "--seeds", "3"), "required: CONFIG"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_right_one(lws, capsys, arguments, says):
    with pytest.raises(SystemExit) as ended:
        lws(*arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lws")
    assert says in line


def test_a_sweep_says_what_a_run_would_say(lws):
    with pytest.raises(SystemExit, match=r"learned.yaml: there is no option --model.nes_rl .* mean --model.nes_lr\?"):
        lws("sweep", LEARNED, "--model.nes_rl", 1)


@pytest.mark.parametrize("configured", [(), ("--config", LEARNED)])
def test_a_missing_checkpoint_is_said_before_anything_else(lws, tmp_path, configured):
    (tmp_path / "empty").mkdir()
    for command in ("fit", "validate", "test"):
        for path, says in (("wrong", "There is no checkpoint wrong."), ("empty", "in empty.")):
            with pytest.raises(SystemExit) as ended:
                lws(command, "--ckpt_path", path, *configured)
            assert ended.value.code.startswith(f"lws {command}: There is no checkpoint")
            assert says in ended.value.code
    with pytest.raises(SystemExit, match="--ckpt_path wrong"):
        lws("test", "wrong")


def test_modules_of_the_current_folder_are_found(tmp_path):
    (tmp_path / "my_network.py").write_text("raise SystemExit('found')\n")
    code = "import sys; sys.path.remove(''); sys.argv[1:] = sys.argv[1:]; from lws_lightning.cli import main; main()"
    command = [sys.executable, "-c", code, "fit", "--config", str(LEARNED), "--model.network", "my_network:build"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stderr.strip().endswith("found")


def test_the_light_parser_knows_the_formats_of_exports():
    assert tuple(FORMATS) == EXPORT_FORMATS


def test_nothing_is_suggested_for_what_is_like_nothing():
    assert did_you_mean("--xyzzy", ["--model.lr", "--seed_everything"]) == ""
    assert did_you_mean("--seed", ["--model.seed", "--data.seed"]) == " Did you mean --model.seed or --data.seed?"


@pytest.mark.parametrize("arguments", [["fit", "--help"], ["--help"]])
def test_a_reader_that_stops_early_is_no_error(arguments):
    command = [sys.executable, "-m", "lws_lightning", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
