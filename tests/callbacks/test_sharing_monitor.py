import json
import math

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from pictures import forget_pictures
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lws_lightning.callbacks import SharingMonitor

pytestmark = pytest.mark.filterwarnings("ignore")


def events(folder):
    accumulator = EventAccumulator(str(folder), size_guidance={"images": 0, "histograms": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


@pytest.fixture
def fit(make_trainer, make_module, make_data, tmp_path):
    """Trains with TensorBoard and returns the trainer and what TensorBoard reads back."""

    def run(monitor=None, module=None, **options):
        logger = TensorBoardLogger(tmp_path, name="tb")
        trainer = make_trainer(monitor or SharingMonitor(), logger=logger, **options)
        trainer.fit(module or make_module(), datamodule=make_data())
        return trainer, events(logger.log_dir)

    return run


def test_entropies_every_n_steps(fit):
    _, seen = fit(max_steps=6, log_every_n_steps=2)
    scalars = seen.Tags()["scalars"]
    # A layer called "mean" does not overwrite the mean.
    assert {tag for tag in scalars if "entropy" in tag or tag.startswith("sharing")} == {
        *("entropy/mean", "entropy/conv", "entropy/mean_2"),
        *("sharing/distinct_weights", "sharing/parameters"),
    }
    conv = seen.Scalars("entropy/conv")
    assert [event.step for event in conv] == [1, 3, 5]  # Lightning counts steps from 0
    for event, first in zip(conv, (0.7, 0.9, 0.9), strict=True):
        nats = -first * math.log(first) - (1 - first) * math.log(1 - first)
        assert event.value == pytest.approx(nats, abs=1e-5)
    third = seen.Scalars("entropy/mean_2")[0].value
    assert third == pytest.approx(-0.7 * math.log(0.7) - 0.3 * math.log(0.15), abs=1e-5)
    assert seen.Scalars("entropy/mean")[0].value == pytest.approx((conv[0].value + third) / 2, abs=1e-5)
    assert [event.value for event in seen.Scalars("sharing/distinct_weights")] == [2.0, 2.0, 2.0]
    assert seen.Scalars("sharing/parameters")[0].value == 10.0


def test_callbacks_and_the_progress_bar_see_the_entropy(fit):
    trainer, _ = fit()
    assert "entropy/conv" in trainer.callback_metrics
    assert set(trainer.progress_bar_metrics) == {"entropy/mean"}


def test_nothing_is_computed_between_the_steps_that_log(fit, make_module):
    class Counting(make_module):
        counted = 0

        def parameters_in_use(self):
            self.counted += 1
            return 10

    module = Counting()
    fit(module=module, max_steps=9, log_every_n_steps=3)
    assert module.counted == 3


def test_pictures_at_each_evaluation_and_the_end(fit, tmp_path):
    _, seen = fit(max_steps=5, num_sanity_val_steps=1)  # evaluations after 2 and 4
    assert set(seen.Tags()["images"]) == {"sharing/assignment", "sharing/probabilities", "sharing/affinity"}
    for tag in seen.Tags()["images"]:
        assert [event.step for event in seen.Images(tag)] == [2, 4, 5]
        assert min(seen.Images(tag)[0].width, seen.Images(tag)[0].height) > 100
    assert [event.step for event in seen.Histograms("sharing/probabilities_histogram")] == [2, 4, 5]
    histogram = seen.Histograms("sharing/probabilities_histogram")[0].histogram_value
    # Two tasks, copies 2 and 3: ten probabilities without the padding, the smallest of them 0.15.
    assert histogram.num == 10
    assert histogram.min == pytest.approx(0.15)
    assert histogram.max == pytest.approx(0.7)
    assert histogram.sum == pytest.approx(4.0, abs=1e-5)


def test_text_at_the_end(fit):
    _, seen = fit()
    (event,) = seen.Tensors("sharing/groups/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    assert event.step == 6
    assert "### `conv`\n\n- **A**, 2 tasks: `a.b`, `été/2`" in text


def test_pictures_at_the_end_only(fit):
    _, seen = fit(SharingMonitor(pictures_every_evaluation=False))
    assert [event.step for event in seen.Images("sharing/assignment")] == [6]


def test_an_evaluation_at_the_last_step_is_drawn_once(fit):
    _, seen = fit(max_steps=4)
    assert [event.step for event in seen.Images("sharing/assignment")] == [2, 4]


def test_fixed_sharing_has_one_picture_and_no_entropy(fit, make_module, tmp_path):
    _, seen = fit(module=make_module(fixed=True))
    assert [event.step for event in seen.Images("sharing/assignment")] == [2]
    assert seen.Tags()["images"] == ["sharing/assignment"]
    assert seen.Tags()["histograms"] == []
    assert not any(tag.startswith("entropy") for tag in seen.Tags()["scalars"])
    assert "sharing/distinct_weights" in seen.Tags()["scalars"]
    assert [path.name for path in tmp_path.rglob("*.png")] == ["assignment.png"]


def test_one_task_has_no_affinity(fit, make_module):
    _, seen = fit(module=make_module(task_names=("alone",)), max_steps=2)
    assert set(seen.Tags()["images"]) == {"sharing/assignment", "sharing/probabilities"}


@pytest.mark.parametrize("tensorboard", [True, False])
def test_files_in_the_run_folder(make_trainer, make_module, make_data, tmp_path, tensorboard):
    logger = TensorBoardLogger(tmp_path, name="tb") if tensorboard else False
    trainer = make_trainer(SharingMonitor(), logger=logger, default_root_dir=tmp_path / "root")
    trainer.fit(make_module(), datamodule=make_data())
    folder = tmp_path / ("tb" if tensorboard else "root/lightning_logs") / "version_0" / "pictures"
    assert sorted(path.name for path in folder.iterdir()) == ["affinity.png", "assignment.png", "probabilities.png"]
    with Image.open(folder / "assignment.png") as image:
        assert image.format == "PNG"
        assert image.width > 100


def test_two_loggers(make_trainer, make_module, make_data, tmp_path):
    loggers = [CSVLogger(tmp_path, name="csv"), TensorBoardLogger(tmp_path, name="tb")]
    make_trainer(SharingMonitor(), logger=loggers).fit(make_module(), datamodule=make_data())
    header = (tmp_path / "csv" / "version_0" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"entropy/mean", "entropy/mean_2", "sharing/distinct_weights"} <= set(header)
    assert [event.step for event in events(loggers[1].log_dir).Images("sharing/assignment")] == [2, 4, 6]
    assert (tmp_path / "csv" / "version_0" / "pictures" / "assignment.png").exists()


def test_fast_dev_run_leaves_no_files(make_trainer, make_module, make_data, tmp_path):
    make_trainer(SharingMonitor(), fast_dev_run=True).fit(make_module(), datamodule=make_data())
    assert list(tmp_path.iterdir()) == []


def test_barebones(make_module, make_data, tmp_path):
    trainer = Trainer(barebones=True, max_steps=2, accelerator="cpu", default_root_dir=tmp_path)

    class WithMonitor(make_module):
        def configure_callbacks(self):
            return [SharingMonitor()]

    trainer.fit(WithMonitor(), datamodule=make_data())
    assert trainer.global_step == 2


def test_pictures_that_cannot_be_written_do_not_stop_the_run(make_trainer, make_module, make_data, tmp_path):
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed" / "pictures").write_text("in the way")
    trainer = make_trainer(SharingMonitor(), logger=CSVLogger(tmp_path, name="", version="fixed"))
    with pytest.warns(UserWarning, match="pictures of the sharing cannot be written") as caught:
        trainer.fit(make_module(), datamodule=make_data())
    assert sum("cannot be written" in str(each.message) for each in caught) == 1
    assert trainer.global_step == 6


def test_random_numbers_of_the_run_are_left_alone(make_trainer, make_module, make_data):
    class Noise(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.drawn = torch.rand(3).tolist()

    forget_pictures()
    drawn = []
    for monitors in ([], [SharingMonitor()]):
        torch.manual_seed(0)
        module, noise = make_module(), Noise()
        torch.manual_seed(1)
        make_trainer(*monitors, noise).fit(module, datamodule=make_data())
        drawn.append(json.dumps(noise.drawn))
    assert drawn[0] == drawn[1]


def test_other_modules_are_refused_by_name(make_trainer, make_data):
    class Stranger(LightningModule):
        def training_step(self, batch, batch_idx):
            pass

        def configure_optimizers(self):
            return None

    with pytest.raises(TypeError, match="SharingMonitor works with"):
        make_trainer(SharingMonitor()).fit(Stranger(), datamodule=make_data())
