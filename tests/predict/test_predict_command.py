"""The command `lws predict`."""

import csv
import shutil
import sys

import numpy as np
import pytest
import torch
from odd_tasks import NAMES, as_network_input, train
from PIL import Image

from lws_lightning import CrossStitch, FixedSharing, ImageFolders, task_network
from lws_lightning.methods import method_from_checkpoint

QUIET = ("--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false")


def write_images(folder, names=("a.png", "b.PNG", "sub/ü c.png"), size=(8, 8)):
    """Writes noise; returns `(N, 3, H, W)` uint8 in the order of the names."""
    generator = np.random.default_rng(0)
    pixels = []
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = generator.integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(image).save(path)
        pixels.append(torch.from_numpy(image).permute(2, 0, 1))
    return torch.stack(pixels)


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def wanted_rows(method, pixels, files, tasks, names, top_k=1):
    """Row by row, with the method itself."""
    rows = []
    for image, file in zip(pixels, files, strict=True):
        for task in tasks:
            inputs = as_network_input(image[None] / 255)
            probabilities = method.eval()(inputs, task).softmax(-1)[0].detach()
            for number in probabilities.argsort(descending=True)[:top_k].tolist():
                of_task = names[task]
                named = str(number) if of_task is None else of_task[number]
                rows.append((NAMES[task], str(file), named, float(probabilities[number])))
    return rows


def assert_rows(found, wanted):
    assert [(r["task"], r["file"], r["class"]) for r in found] == [row[:3] for row in wanted]
    assert [float(r["probability"]) for r in found] == pytest.approx([row[3] for row in wanted], abs=2e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_all_tasks_predict_all_images_of_a_folder(trained, lws, tmp_path, batch_size):
    checkpoint, method = trained
    folder = tmp_path / "images"
    pixels = write_images(folder)
    (folder / "notes.txt").write_text("no image")
    lws("predict", "--ckpt_path", checkpoint, "--images", folder, "--batch_size", batch_size, *QUIET)
    files = [folder / "a.png", folder / "b.PNG", folder / "sub" / "ü c.png"]
    found = rows_of(tmp_path / "predictions.csv")
    assert list(found[0]) == ["task", "file", "class", "probability"]
    assert_rows(found, wanted_rows(method, pixels, files, range(3), method.data_record.class_names))
    assert {row["class"] for row in found if row["task"] == NAMES[0]} <= {"klein", "groß"}


def test_one_task_several_classes_and_patterns(trained, lws, tmp_path, monkeypatch):
    checkpoint, method = trained
    pixels = write_images(tmp_path)
    out = tmp_path / "deep" / "out.csv"
    given = ["*.png", "a.png", "**/*.png", "b.PNG"]
    lws(
        "predict", "--ckpt_path", checkpoint, "--images", *given, "--task", NAMES[1], "--top_k", 9, "--out", out, *QUIET
    )
    files = ["a.png", "sub/ü c.png", "b.PNG"]
    wanted = wanted_rows(method, pixels[[0, 2, 1]], files, [1], method.data_record.class_names, top_k=3)
    assert_rows(rows_of(out), wanted)
    assert list(out.parent.iterdir()) == [out]


def test_it_needs_nothing_but_the_checkpoint(trained, lws, tmp_path, monkeypatch):
    alone = tmp_path / "elsewhere" / "model.ckpt"
    alone.parent.mkdir()
    shutil.copy(trained[0], alone)
    write_images(tmp_path / "images", ["a.png"])
    lws("predict", "--ckpt_path", alone, "--images", "images", *QUIET)
    assert len(rows_of(tmp_path / "predictions.csv")) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "images", "predictions.csv"]
    assert list(alone.parent.iterdir()) == [alone]


def test_broken_images_are_named_and_skipped(trained, lws, tmp_path, capsys):
    write_images(tmp_path / "images", ["a.png", "z.png"])
    whole = (tmp_path / "images" / "a.png").read_bytes()
    (tmp_path / "images" / "cut.png").write_bytes(whole[:-40])
    (tmp_path / "images" / "empty.jpg").write_bytes(b"")
    (tmp_path / "images" / "text.png").write_text("hello")
    with pytest.raises(SystemExit) as stopped:
        lws("predict", "--ckpt_path", trained[0], "--images", "images", "--batch_size", 2, *QUIET)
    assert stopped.value.code == 3
    errors = capsys.readouterr().err
    for name, reason in (("cut.png", "truncated"), ("empty.jpg", "an empty file"), ("text.png", "not an image")):
        line = next(line for line in errors.splitlines() if name in line)
        assert line.startswith("lws predict: cannot read ")
        assert reason in line
    assert {row["file"] for row in rows_of(tmp_path / "predictions.csv")} == {"images/a.png", "images/z.png"}


def test_nothing_is_written_if_nothing_can_be_read(trained, lws, tmp_path):
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "predictions.csv").write_text("before")
    with pytest.raises(SystemExit, match="none of the images can be read"):
        lws("predict", "--ckpt_path", trained[0], "--images", "text.png", *QUIET)
    assert (tmp_path / "predictions.csv").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["predictions.csv", "text.png"]


def test_a_failing_run_leaves_no_file(trained, lws, tmp_path, monkeypatch):
    write_images(tmp_path, ["a.png"])
    monkeypatch.setattr(type(trained[1]), "predict_step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lws("predict", "--ckpt_path", trained[0], "--images", "a.png", *QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_other_sizes_and_kinds_of_images(trained, lws, tmp_path, capsys):
    Image.new("L", (20, 12), 128).save(tmp_path / "grey.png")
    Image.new("RGB", (8, 8), (128, 128, 128)).save(tmp_path / "rgb.png")
    Image.new("RGBA", (9, 30), (128, 128, 128, 255)).save(tmp_path / "alpha.webp", lossless=True)
    lws("predict", "--ckpt_path", trained[0], "--images", tmp_path, "--task", NAMES[0], *QUIET)
    assert "those that are not 8x8 pixels are stretched" in capsys.readouterr().err
    assert len({(row["class"], row["probability"]) for row in rows_of(tmp_path / "predictions.csv")}) == 1


def test_images_are_made_as_in_training(lws, tmp_path, quiet_trainer):
    """With ImageFolders: what `lws test` sees of a file is what `lws predict` sees."""
    root = tmp_path / "root"
    for task in ("one", "two"):
        for split in ("train", "test"):
            write_images(root / task / split, [f"{kind}/{n}.png" for kind in "xy" for n in range(3)], size=(14, 10))
    data = ImageFolders(str(root), image_size=8, resize="pad", background=7, normalization="imagenet", cache=False)
    method = FixedSharing("none", network="digits_convnet", **data.task_info)
    trainer = quiet_trainer(max_steps=2, limit_val_batches=0)
    trainer.fit(method, datamodule=data)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    images = [data.normalize(images) for images, _ in data.examples("test")]
    method.eval()
    wanted = [method(images[task], task).softmax(-1).amax(1).detach() for task in range(2)]
    shutil.move(root, tmp_path / "moved")  # the training data are not where they were
    lws("predict", "--ckpt_path", tmp_path / "last.ckpt", "--images", tmp_path / "moved" / "one" / "test", *QUIET)
    found = rows_of(tmp_path / "predictions.csv")
    for task, name in enumerate(data.task_names):
        probabilities = [float(row["probability"]) for row in found if row["task"] == name]
        if name == "one":
            assert probabilities == pytest.approx(wanted[task].tolist(), abs=2e-5)
        assert len(probabilities) == 6
    assert {row["class"] for row in found} <= {"x", "y"}
    network = task_network(method_from_checkpoint(tmp_path / "last.ckpt"), "one")
    exported = network(data.examples("test")[0][0] / 255).softmax(-1).amax(1)
    torch.testing.assert_close(exported.detach(), wanted[0], rtol=0, atol=2e-5)


def test_methods_that_mix_predict_too(lws, tmp_path):
    path, method = train(tmp_path / "run", CrossStitch, steps=1)
    pixels = write_images(tmp_path, ["a.png"])
    lws("predict", "--ckpt_path", path, "--images", "a.png", *QUIET)
    wanted = wanted_rows(method, pixels, ["a.png"], range(3), method.data_record.class_names)
    assert_rows(rows_of(tmp_path / "predictions.csv"), wanted)


def test_a_checkpoint_of_other_code_needs_trust(trained, lws, tmp_path, monkeypatch):
    write_images(tmp_path, ["a.png"])
    (tmp_path / "my_net.py").write_text("from lws_lightning.networks import digits_convnet as build\n")
    monkeypatch.syspath_prepend(tmp_path)
    content = torch.load(trained[0], weights_only=True)
    content["hyper_parameters"]["network"] = "my_net:build"
    torch.save(content, "own.ckpt")
    with pytest.raises(SystemExit, match=r"lws predict: .*my_net:build"):
        lws("predict", "--ckpt_path", "own.ckpt", "--images", "a.png", *QUIET)
    assert "my_net" not in sys.modules
    lws("predict", "--ckpt_path", "own.ckpt", "--images", "a.png", "--trust_network", *QUIET)
    assert len(rows_of(tmp_path / "predictions.csv")) == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--images": "none.png"}, r"--images: there is no none\.png"),
        ({"--images": "*.bmp"}, r"--images: there is no \*\.bmp"),
        ({"--images": "empty"}, "--images: there are no images in empty"),
        ({"--task": "groesse"}, "There is no task 'groesse'; the tasks are: 'größe x', "),
        ({"--ckpt_path": "none.ckpt"}, r"There is no checkpoint none\.ckpt"),
        ({"--top_k": 0}, "top_k must be at least 1"),
        ({"--batch_size": 0}, "--batch_size must be at least 1"),
    ],
)
def test_errors_say_what_to_do(trained, lws, tmp_path, changed, message):
    write_images(tmp_path, ["a.png"])
    (tmp_path / "empty").mkdir()
    options = {"--ckpt_path": trained[0], "--images": "a.png", **changed}
    with pytest.raises(SystemExit, match=f"lws predict: {message}"):
        lws("predict", *(part for option in options.items() for part in option), *QUIET)
    assert not (tmp_path / "predictions.csv").exists()
