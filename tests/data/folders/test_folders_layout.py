"""Tasks and classes by the names of folders, and folders that cannot be used."""

import os
import shutil

import pytest
from fakes import write_folders
from lightning.pytorch import Trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lws_lightning import FixedSharing, ImageFolders


def test_tasks_and_classes_before_any_image_is_read(make, root, monkeypatch):
    monkeypatch.setattr("PIL.Image.open", None)
    data = make(image_size=[8, 6], channels=1)
    assert data.task_info == {
        "task_names": ["birds", "cars", "trees"],
        "num_classes": [2, 3, 2],
        "image_shape": [1, 8, 6],
        "validation_prefix": "test_curve",
    }
    assert data.class_names == [("crow", "owl"), ("blue", "green", "red"), ("elm", "oak")]
    assert make(tasks=["trees", "birds"]).class_names == [("elm", "oak"), ("crow", "owl")]


def test_train_alone_and_other_names_of_parts(make, tmp_path):
    tasks = {
        "a": {"train": {"x": 10, "y": 10}},
        "b": {"train": {"x": 4, "y": 4}, "test": {"x": 2}, "validation": {"y": 3}},
    }
    with pytest.warns(UserWarning, match="validation images of b are not used"):
        data = make(write_folders(tmp_path / "parts", tasks))
    assert [len(labels) for _, labels in data.examples("test")] == [4, 2]
    data = make(tmp_path / "parts", tasks=["b"], validation="unused")
    assert [labels.tolist() for _, labels in data.examples("validation")] == [[1, 1, 1]]
    assert [len(labels) for _, labels in data.examples("train")] == [8]
    with pytest.raises(ValueError, match=r"<task>/val.*none of a"):
        make(tmp_path / "parts", validation="unused")


def test_missing_root_names_option_and_layout(make, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*--data\.root.*ROOT/<task>/<class>"):
        make(tmp_path / "nowhere")


def test_options_are_printed_without_data(lws, capsys):
    with pytest.raises(SystemExit) as stopped:
        lws("fit", "--data", "ImageFolders", "--data.root", "nowhere", "--print_config")
    assert stopped.value.code == 0
    assert "test_fraction: 0.2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({}, "nothing"),
        ({"train": {"x": 2, "y": 2}, "test": {"x": 2, "y": 2}}, "single task"),
        ({"a": {"x": 2, "y": 0}}, r"no images in the class folder 'y'"),
        ({"a": {"train": {"x": 2, "y": 0, "z": 0}, "test": {"x": 2}}}, r"train: no images .* folders 'y', 'z'"),
        ({"a": {"x": 5}}, r"only one class, 'x'.*--data\.tasks"),
        ({"a": {"train": {"x": 2, "y": 2}, "test": {"z": 1}}}, r"test has the classes 'z'"),
        ({"a": {"train": {"x": 2, "y": 2}, "holdout": {"x": 1}}}, r"'holdout'"),
        ({"a": {"train": {"x": 2, "y": 2}, "val": {"x": 1}, "valid": {"x": 1}}}, "more than one"),
        ({"a": {"x": {"deep": 2}, "y": {"deep": 2}}}, r"a/x: contains folders, such as 'deep'"),
        ({"a": {}}, "no class folders"),
    ],
)  # fmt: skip
def test_folders_that_cannot_work(make, tmp_path, tasks, message):
    root = tmp_path / "bad"
    root.mkdir()
    write_folders(root, tasks)
    for name in tasks:
        (root / name).mkdir(exist_ok=True)
    with pytest.raises(ValueError, match=message):
        make(root)


def test_every_problem_is_named_and_other_tasks_may_go_on(make, tmp_path):
    root = write_folders(tmp_path / "bad", {"a": {"x": 5}, "b": {"x": 3, "y": 0}, "c": {"x": 4, "y": 4}})
    with pytest.raises(ValueError, match="only one class") as error:
        make(root)
    assert "no images in the class folder 'y'" in str(error.value)
    assert make(root, tasks=["c"]).num_classes == [2]
    assert make(root, tasks=["c"]).examples("train")


def test_images_where_folders_are_expected(make, root):
    shutil.copy(root / "birds/owl/0.png", root / "birds/stray.png")
    with pytest.raises(ValueError, match=r"birds: 1 image outside of the class folders, such as 'stray\.png'"):
        make()
    with pytest.raises(ValueError, match=r"only files, such as '0\.png'"):
        make(root / "birds/owl")


def test_other_files_are_passed_over_with_a_warning(make, root, recwarn):
    for name in (".DS_Store", "birds/Thumbs.db", "birds/.hidden/x.png", "birds/crow/.0.png", "__MACOSX/birds/0.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("no image")
    clean = make()
    assert not [w for w in recwarn if "ignored, because" in str(w.message)]
    (root / "birds/crow/notes.txt").write_text("seen at dawn")
    with pytest.warns(UserWarning, match=r"ignored, because.*\(1\)(?s:.)*crow/notes\.txt"):
        data = make()
    assert data.task_names == clean.task_names
    for one, other in zip(data.examples("train"), clean.examples("train"), strict=True):
        assert one[0].equal(other[0])


def test_names_of_every_kind(make, tmp_path):
    names = ["a.b", "a_b", "a b", "train", "été", "日本 語", "mean", "-x", "%s {0}", "$x"]
    root = write_folders(tmp_path / "odd", {name: {"ß ç": 5, "c.d": 5} for name in names})
    data = make(root)
    assert data.task_names == sorted(names)
    assert set(data.class_names) == {("c.d", "ß ç")}
    module = FixedSharing(network="digits_convnet", sharing="full", **data.task_info)
    trainer = Trainer(max_steps=2, val_check_interval=2, check_val_every_n_epoch=None, accelerator="cpu",
                      enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(module, datamodule=data)
    events = EventAccumulator(trainer.log_dir).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag.startswith("test_curve/error/")]
    assert len(set(tags)) == len(names)


def test_a_class_called_train(make, tmp_path):
    data = make(write_folders(tmp_path / "vehicles", {"a": {"car": 5, "train": 5}, "train": {"test": 5, "train": 5}}))
    assert data.class_names == [("car", "train"), ("test", "train")]


def test_a_name_that_is_no_text(make, root):
    try:
        os.mkdir(os.fsencode(root / "birds") + b"/\xff\xfe")  # noqa: PTH102
    except OSError:
        pytest.skip("this file system takes text only")
    with pytest.raises(ValueError, match="not valid text; rename it"):
        make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 2}, "channels"),
        ({"resize": "squash"}, "resize"),
        ({"image_size": 0}, "image_size"),
        ({"background": 256}, "background"),
        ({"test_fraction": 1.0}, "test_fraction"),
        ({"broken_images": "mend"}, "broken_images"),
        ({"in_memory": "perhaps"}, "in_memory"),
        ({"memory_limit_gb": -1}, "memory_limit_gb"),
        ({"normalization": "cifar"}, "normalization"),
        ({"normalization": "imagenet", "channels": 1}, "imagenet is for 3 channels"),
        ({"normalization": {"mean": [0, 0, 0]}}, "a mean and a std"),
        ({"normalization": {"mean": [0.5], "std": [1, 1, 1]}}, "each of the 3 channels"),
        ({"normalization": {"mean": [0, 0, 0], "std": [1, 0, 1]}}, "positive"),
        ({"normalization": {"mean": ["a", 0, 0], "std": [1, 1, 1]}}, "numbers"),
        ({"augmentation": ["NoSuch"]}, "NoSuch"),
        ({"num_workers": -1}, "num_workers"),
        ({"tasks": ["fish"]}, "fish"),
    ],
)
def test_options_out_of_range(root, options, message):
    with pytest.raises(ValueError, match=f"ImageFolders.*{message}"):
        ImageFolders(str(root), **options)
