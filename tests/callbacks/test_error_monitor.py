"""What the networks get wrong: in files, in TensorBoard, against plain loops over the test images."""

import io
import json

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from locations import CONFIGS
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from torch import nn

from lws_lightning import Digits, FixedSharing, LearnedWeightSharing
from lws_lightning.callbacks import ErrorMonitor, SharingMonitor
from lws_lightning.callbacks.wrong_images import WrongImages
from lws_lightning.data import Examples, MultiTaskDataModule, TaskData
from lws_lightning.methods import DataRecord
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_
from lws_lightning.records import find_classes, find_run

pytestmark = pytest.mark.filterwarnings("ignore")


def dense_network(image_shape):
    dense = nn.Sequential(nn.Flatten(), nn.Linear(image_shape[0] * image_shape[1] * image_shape[2], 16), nn.ReLU())
    return BaseNetwork([BaseLayer("dense", dense)], lambda classes: nn.Linear(16, classes), 1, he_uniform_)


def events(folder):
    accumulator = EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0, "scalars": 0})
    accumulator.Reload()
    return accumulator


def described(seen, tag):
    """What HPARAMS reads of a tag."""
    return plugin_data_pb2.HParamsPluginData.FromString(seen.summary_metadata[tag].plugin_data.content)


@pytest.fixture
def trained(tmp_path):
    """A short run with TensorBoard, tested by the same Trainer."""
    data = Digits(train_images_per_task=60, batch_size=8, seed=1)
    method = LearnedWeightSharing(
        network=dense_network, nes_samples=4, sgd_samples=3, nes_lr=0.1, seed=1, **data.task_info
    )
    trainer = Trainer(
        accelerator="cpu", max_steps=6, max_epochs=-1, val_check_interval=3, check_val_every_n_epoch=None,
        log_every_n_steps=2, logger=TensorBoardLogger(tmp_path, name="tb"), enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(method, datamodule=data)
    trainer.test(method, datamodule=data, verbose=False)
    return method, data, tmp_path / "tb" / "version_0"


def monitor_of(method):
    return next(each for each in method.trainer.callbacks if isinstance(each, ErrorMonitor))


def test_confusions_are_those_of_a_plain_loop(trained):
    method, data, folder = trained
    found = find_classes(folder)
    assert found == monitor_of(method).class_results
    for task, (images, labels) in enumerate(data.examples("test")):
        name = method.task_names[task]
        expected = torch.zeros(method.num_classes[task], method.num_classes[task], dtype=torch.int64)
        with torch.no_grad():
            for true, predicted in zip(labels, method(images, task).argmax(-1), strict=True):
                expected[true, predicted] += 1
        classes = found.tasks[name]
        assert classes.matrix(range(len(expected))) == expected.tolist()
        assert classes.class_names == list(data.class_names[task])
        for number, each in enumerate(classes.classes()):
            assert (each.images, each.right) == (int(expected[number].sum()), int(expected[number, number]))
        wrong = int(expected.sum() - expected.diagonal().sum())
        assert find_run(folder).test.tasks[name].error == pytest.approx(100 * wrong / len(labels))


def test_pictures_are_in_the_folder_and_in_tensorboard(trained):
    method, _, folder = trained
    names = {*(f"confusion_{name}" for name in method.task_names), "wrong_images"}
    drawn = {path.stem for path in (folder / "pictures").glob("*.png")}
    assert names <= drawn
    seen = events(folder)
    assert {f"test/{name}" for name in names} <= set(seen.Tags()["images"])
    for name in names:
        picture = Image.open(io.BytesIO(seen.Images(f"test/{name}")[0].encoded_image_string))
        with Image.open(folder / "pictures" / f"{name}.png") as image:
            assert image.size == picture.size
    table = seen.Tensors("test/classes_upright_parity/text_summary")[0].tensor_proto.string_val[0].decode()
    even = monitor_of(method).class_results.tasks["upright_parity"].classes()[0]
    assert f"| even | {even.images} | {even.accuracy:.1f} % |" in table


def test_losses_by_task_and_the_error_are_logged(trained):
    method, _, folder = trained
    seen = events(folder)
    whole = seen.Scalars("train/loss")
    tasks = [seen.Scalars(f"train/loss/{name}") for name in method.task_names]
    assert [event.step for event in whole] == [event.step for event in tasks[0]] == [1, 3, 5]
    for number, event in enumerate(whole):
        assert sum(each[number].value for each in tasks) / len(tasks) == pytest.approx(event.value, rel=1e-5)
    errors = [(event.step, event.value) for event in seen.Scalars("test_curve/error")]
    assert [event.value for event in seen.Scalars("Error/test_curve")] == [value for _, value in errors]
    assert seen.Scalars("Error/test")[0].value == pytest.approx(method.evaluations["test"].error)
    assert seen.Scalars("Error/test")[0].step == 6
    assert min(tag.split("/")[0] for tag in seen.Tags()["scalars"]) == "Error"


def test_hparams_has_the_options_and_the_error(trained):
    _, _, folder = trained
    seen = events(folder)
    metrics = [each.name.tag for each in described(seen, "_hparams_/experiment").experiment.metric_infos]
    assert metrics == ["Error/test_curve", "Error/test"]
    assert set(metrics) <= set(seen.Tags()["scalars"])
    assert "hp_metric" not in seen.Tags()["scalars"]
    values = described(seen, "_hparams_/session_start_info").session_start_info.hparams
    assert values["method"].string_value == "LearnedWeightSharing"
    assert values["nes_lr"].number_value == 0.1
    assert values["data.batch_size"].number_value == 8
    assert values["max_steps"].number_value == 6


def test_the_test_command_goes_on_with_the_tensorboard_log(lws, tmp_path):
    lws("fit", "--config", CONFIGS / "quickstart/learned.yaml", "--trainer.max_steps", 2,
        "--trainer.val_check_interval", 2, "--trainer.enable_progress_bar", "false")  # fmt: skip
    folder = tmp_path / "lightning_logs/version_0"
    lws("test", "--ckpt_path", folder)
    seen = events(folder)
    assert [event.step for event in seen.Scalars("Error/test")] == [2]
    assert seen.Scalars("Error/test")[0].value == pytest.approx(find_run(folder).test.error)
    assert "test/wrong_images" in seen.Tags()["images"]
    assert find_classes(folder) is not None
    assert (folder / "pictures/wrong_images.png").is_file()


def test_monitors_do_not_change_the_training(trained, quiet_trainer):
    method, data, _ = trained
    other = LearnedWeightSharing(
        network=dense_network, nes_samples=4, sgd_samples=3, nes_lr=0.1, seed=1, **data.task_info
    )
    trainer = quiet_trainer(max_steps=6, max_epochs=-1, limit_val_batches=0, barebones=False)
    assert not any(type(callback) is SharingMonitor for callback in trainer.callbacks)
    trainer.fit(other, datamodule=Digits(train_images_per_task=60, batch_size=8, seed=1))
    for name, value in method.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


class ManyClasses(MultiTaskDataModule):
    """One task of 60 classes of random images, another whose images are called by numbers."""

    class_counts = {"many": 60, "few": 2}  # noqa: RUF012
    image_size = (3, 120, 40)

    def load_tasks(self):
        generator = torch.Generator().manual_seed(0)
        for name, classes in self.class_counts.items():
            images = torch.randint(256, (120, 3, 120, 40), generator=generator, dtype=torch.uint8)
            examples = Examples(images, torch.arange(120) % classes)
            names = tuple(f"a class with a long name {number}" for number in range(60)) if classes == 60 else None
            yield TaskData(name, examples, examples, class_names=names)


def test_many_classes_make_no_huge_picture(quiet_trainer, tmp_path):
    data = ManyClasses(batch_size=2)
    method = FixedSharing("full", network=dense_network, **data.task_info)
    quiet_trainer().test(method, datamodule=data, verbose=False)
    folder = tmp_path / "runs/lightning_logs/version_0"
    with Image.open(folder / "pictures/confusion_many.png") as image:
        assert max(image.size) < 1500
    with Image.open(folder / "pictures/wrong_images.png") as image:
        assert max(image.size) < 1500
    content = json.loads((folder / "test_classes.json").read_text(encoding="utf-8"))
    assert sum(count for *_, count in content["tasks"]["many"]["counts"]) == 120
    assert content["tasks"]["few"]["class_names"] == ["0", "1"]


def test_the_surest_errors_are_kept():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(50, 4, generator=generator), torch.arange(50) % 4
    images = torch.arange(50, dtype=torch.uint8)[:, None, None, None].expand(50, 1, 2, 2)
    wrong = WrongImages(1, (1, 2, 2), DataRecord(None, [None]), torch.device("cpu"))
    for part in range(0, 50, 7):
        wrong.add(0, images[part : part + 7], labels[part : part + 7], logits[part : part + 7])
    probabilities, predicted = logits.softmax(-1).max(-1)
    expected = sorted(((float(probabilities[i]), i) for i in range(50) if predicted[i] != labels[i]), reverse=True)[:8]
    (found,) = wrong.found([["a", "b", "c", "d"]])
    assert [int(each.image[0, 0, 0]) for each in found] == [i for _, i in expected]
    assert [each.true for each in found] == ["abcd"[int(labels[i])] for _, i in expected]
    assert [each.predicted for each in found] == ["abcd"[int(predicted[i])] for _, i in expected]
    assert [each.probability for each in found] == pytest.approx([probability for probability, _ in expected])


def test_normalised_images_are_shown_as_they_were():
    record = DataRecord({"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.1, 0.3]}, [None])
    images = torch.randint(256, (1, 3, 4, 4), dtype=torch.uint8)
    wrong = WrongImages(1, (3, 4, 4), record, torch.device("cpu"))
    wrong.add(0, record.normalized(images), torch.tensor([1]), torch.tensor([[5.0, 0.0]]))
    ((found,),) = wrong.found([None])
    assert torch.equal(torch.from_numpy(found.image.copy()).permute(2, 0, 1), images[0])
    assert (found.true, found.predicted) == ("1", "0")
