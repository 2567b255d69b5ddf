"""Shows the errors: in TensorBoard during training, and after a test which images of which classes are wrong."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from numpy.typing import NDArray

from lws_lightning.callbacks.checks import require_method
from lws_lightning.callbacks.confusions import TaskConfusions
from lws_lightning.callbacks.description import identity_of, other_run
from lws_lightning.callbacks.tags import tags_of
from lws_lightning.callbacks.tensorboard import drop_placeholder_metric, tensorboards, write_options, writers
from lws_lightning.callbacks.wrong_images import MAX_TASKS, WrongImages
from lws_lightning.drawing import array_png, confusion_figure, picture_array, wrong_images_figure
from lws_lightning.methods import MultiTaskMethod
from lws_lightning.records import CLASSES_FILE, BestEffortWriter, ClassResults, Evaluation, TaskClasses, find_run
from lws_lightning.run_folders import is_dry_run, run_folder

__all__ = ["ErrorMonitor"]

_MAX_CLASSES = 30  # more are illegible in a picture
_MAX_LINES = 50
# A group of its own for one chart: TensorBoard orders groups by name, capitals first.
_GROUP = "Error"
_FROM_DATA = ("task_names", "num_classes", "image_shape")


class ErrorMonitor(Callback):
    """Shows what the networks get wrong.

    During training, loggers get each task's loss as `train/loss/<task>` every `log_every_n_steps` steps. TensorBoard
    gets the error over all images as `Error/test_curve` or `Error/val`, its first group of scalars, and in HPARAMS the
    options of the run with this error and that of the test.

    At the end of a test the run folder gets `test_classes.json`, and its `pictures/` and TensorBoard get a confusion
    matrix for each task and a picture of wrongly classified images with the names of their class and of the one they
    were taken for: for each task the eight whose wrong class the network gives the highest probability. TensorBoard
    also gets `Error/test` and a table of the accuracy of each class. Pictures show at most 20 tasks, and of more than
    30 classes those with the most errors.

    Args:
        run_dir: For testing only: the folder of the run that trained the tested weights. A TensorBoard log in it is
            continued if the Trainer has none. None means the run folder of the Trainer.

    Attributes:
        class_results: Which classes were taken for which in the last test, None before it.
    """

    def __init__(self, run_dir: str | None = None) -> None:
        self.run_dir = run_dir
        self._wrong: WrongImages | None = None
        self._confusions: TaskConfusions | None = None
        self.class_results: ClassResults | None = None
        self._writer = BestEffortWriter("The pictures of the test")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Replaces Lightning's placeholder in HPARAMS."""
        if stage == "fit" and trainer.is_global_zero:
            drop_placeholder_metric(trainer)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the options of the run."""
        if is_dry_run(trainer) or not trainer.is_global_zero:
            return
        method, data = require_method(pl_module, self), getattr(trainer, "datamodule", None)
        identity = identity_of(trainer, method)
        options = {
            "method": type(method).__name__,
            **{name: value for name, value in identity.method.items() if name not in _FROM_DATA},
            "data": type(data).__name__,
            **{f"data.{name}": value for name, value in identity.data.items()},
            "max_steps": trainer.max_steps,
        }
        write_options(trainer, options, [f"{_GROUP}/{method.validation_prefix}", f"{_GROUP}/test"])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Logs the training loss of each task."""
        every: int = getattr(trainer, "log_every_n_steps", 0)
        if every < 1 or trainer.global_step % every or trainer.barebones or not trainer.loggers:
            return
        losses = require_method(pl_module, self).update.task_losses()
        for logger in trainer.loggers if losses else ():  # not by `log`: see `SharingMonitor`
            logger.log_metrics({f"train/loss/{k}": v for k, v in losses.items()}, step=trainer.global_step - 1)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs the error."""
        if trainer.state.fn != "fit" or trainer.sanity_checking or is_dry_run(trainer) or not trainer.is_global_zero:
            return
        method = require_method(pl_module, self)
        evaluation = method.evaluations.get(method.validation_prefix)
        if evaluation is not None:
            for logger in tensorboards(trainer):
                logger.experiment.add_scalar(f"{_GROUP}/{evaluation.prefix}", evaluation.error, trainer.global_step)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prepares to count confusions and to collect wrongly classified images."""
        method = require_method(pl_module, self)
        self._wrong = self._confusions = None
        if not is_dry_run(trainer):
            images = len(method.task_names), method.image_shape, method.data_record
            self._wrong = WrongImages(*images, method.device)
            self._confusions = TaskConfusions(method.num_classes).to(method.device)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Counts confusions and collects wrongly classified images."""
        if self._wrong is not None and self._confusions is not None and outputs is not None:
            self._confusions.update(batch.task, outputs, batch.labels)
            self._wrong.add(batch.task, batch.images, batch.labels, outputs)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the confusions, and draws them and wrongly classified images."""
        wrong, confusions, self._wrong, self._confusions = self._wrong, self._confusions, None, None
        if wrong is None or confusions is None:
            return
        folder = run_folder(trainer, create_default=True) if self.run_dir is None else Path(self.run_dir)
        if folder is None:
            return
        wrong.gather(pl_module)
        method = require_method(pl_module, self)
        classes = self.class_results = confusions.results(method.task_names, method.data_record.class_names)
        evaluation = method.evaluations.get("test")
        if not trainer.is_global_zero or evaluation is None:
            return
        run = find_run(folder)
        if run is not None and self.run_dir is None and other_run(run, trainer, method):
            return  # `RunRecord` warns
        step = evaluation.step if run is None else run.step
        self._writer.write(folder / CLASSES_FILE, classes.text())
        pictures = dict(_pictures(method, evaluation, wrong, classes.tasks))
        for name, picture in pictures.items():
            self._writer.write(folder / "pictures" / f"{name}.png", array_png(picture))
        try:
            with writers(trainer, folder) as found:
                for writer in found:
                    writer.add_scalar(f"{_GROUP}/test", evaluation.error, step)
                    for name, picture in pictures.items():
                        writer.add_image(f"test/{name}", picture, step, dataformats="HWC")
                    for tag, text in _tables(method, classes.tasks):
                        writer.add_text(f"test/classes_{tag}", text, step)
        except OSError as error:
            self._writer.warn(folder, error)


def _pictures(
    method: MultiTaskMethod, evaluation: Evaluation, wrong: WrongImages, results: Mapping[str, TaskClasses]
) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yields the pictures of a test, and their names."""
    names = method.task_names
    for name, tag in list(zip(names, tags_of(names, ()), strict=True))[:MAX_TASKS]:
        if name in results:
            task = evaluation.tasks[name]
            accuracy = f"{100 - task.error:.2f} % of {task.images:,} test images are right."
            yield f"confusion_{tag}", _confusion(name, results[name], accuracy)
    found = wrong.found(method.data_record.class_names)
    rows = [(name, images) for name, images in zip(names, found, strict=False) if images]
    if rows:
        some = f" The first {MAX_TASKS} of {len(names)} tasks." if len(names) > MAX_TASKS else ""
        subtitle = (
            f"Its class, and what it was taken for with which probability; the surest errors of a task first.{some}"
        )
        yield "wrong_images", picture_array(wrong_images_figure(rows, subtitle))


def _confusion(name: str, classes: TaskClasses, accuracy: str) -> NDArray[np.uint8]:
    shown, of_class = classes.most_confused(_MAX_CLASSES), classes.classes()
    some = f"The {len(shown)} of {len(of_class)} classes with the most errors. " if len(shown) < len(of_class) else ""
    return picture_array(
        confusion_figure(
            classes.matrix(shown),
            [of_class[number].images for number in shown],
            [classes.class_names[number] for number in shown],
            f"Confusions of {name}",
            accuracy,
            f"{some}Percent of the images of the true class.",
        )
    )


def _tables(method: MultiTaskMethod, results: Mapping[str, TaskClasses]) -> Iterator[tuple[str, str]]:
    """Yields for each task a Markdown table of its classes, the least accurate first, and its tag."""
    for name, tag in zip(method.task_names, tags_of(method.task_names, ()), strict=True):
        if name not in results:
            continue
        classes = [each for each in results[name].classes() if each.images]
        worst = sorted(classes, key=lambda each: each.accuracy or 0.0)[:_MAX_LINES]
        lines = ["| class | test images | accuracy | most often taken for |", "| --- | --: | --: | --- |"]
        lines += [
            f"| {each.name} | {each.images} | {each.accuracy:.1f} % | "
            f"{f'{each.taken_for} ({each.times})' if each.times else '-'} |"
            for each in worst
        ]
        some = f"\n\nThe {_MAX_LINES} least accurate of {len(classes)} classes." if len(classes) > _MAX_LINES else ""
        yield tag, "\n".join(lines) + some
