"""How a method is evaluated: each task's own network on its images, validation and test alike."""

from collections.abc import Sequence

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from lws_lightning.batches import EvaluationBatch
from lws_lightning.methods.evaluation import TaskErrors
from lws_lightning.records import Evaluation
from lws_lightning.sharing import TaskNetworks

__all__ = ["EvaluatedMethod"]


class EvaluatedMethod(LightningModule):
    """T networks under one assignment, evaluated by the errors of their tasks.

    Args:
        task_names: Names of the T tasks.
        validation_prefix: Under which tag the validation loop logs.

    Attributes:
        evaluations: The last evaluation of each prefix.
        average: What evaluations and predictions use in place of `network`; None: no average of the weights is kept.
    """

    network: TaskNetworks
    average: TaskNetworks | None

    def __init__(self, task_names: Sequence[str], validation_prefix: str) -> None:
        super().__init__()
        self.task_names = list(task_names)
        self.validation_prefix = validation_prefix
        self.errors = TaskErrors(len(task_names))
        self.evaluations: dict[str, Evaluation] = {}
        self.average = None
        self._evaluated_assignment: Tensor | None = None

    @property
    def assignment(self) -> Tensor | None:
        """The assignment that is used for inference, `(L, T)` int64 on the CPU; None where none describes it."""
        raise NotImplementedError

    @property
    def evaluated_network(self) -> TaskNetworks:
        """The networks whose errors are measured: the average of the weights, where one is kept."""
        return self.network if self.average is None else self.average

    def to_inputs(self, images: Tensor) -> Tensor:
        """Turns images into the network's input: bytes are scaled to [0, 1] (paper, section "Experiments")."""
        inputs = images.to(self.dtype)
        return inputs.div_(255) if images.dtype == torch.uint8 else inputs

    def forward(self, images: Tensor, task: int | str) -> Tensor:
        """Runs one task's own network.

        Args:
            images: `(N, C, H, W)`, uint8 in [0, 255] or floating point in [0, 1].
            task: Its index or name.

        Returns:
            `(N, classes)` logits.
        """
        index = self.task_names.index(task) if isinstance(task, str) else task
        return self.networks_for_inference(index).forward_task(self.to_inputs(images), self.assignment, index)

    def networks_for_inference(self, task: int) -> TaskNetworks:
        """Returns the networks that a prediction of a task is made with."""
        return self.evaluated_network

    def on_validation_epoch_start(self) -> None:
        """Starts counting anew."""
        self._start_evaluation()

    def validation_step(self, batch: EvaluationBatch, batch_idx: int) -> None:
        """Evaluates some images of one task."""
        self._evaluate(batch)

    def on_validation_epoch_end(self) -> None:
        """Logs the errors under `validation_prefix`."""
        self._finish_evaluation(self.validation_prefix)

    def on_test_epoch_start(self) -> None:
        """Starts counting anew."""
        self._start_evaluation()

    def test_step(self, batch: EvaluationBatch, batch_idx: int) -> None:
        """Evaluates some test images of one task."""
        self._evaluate(batch)

    def on_test_epoch_end(self) -> None:
        """Logs the errors under `test/`."""
        self._finish_evaluation("test")

    def _start_evaluation(self) -> None:
        self.errors.reset()
        self._evaluated_assignment = self.assignment

    def _evaluate(self, batch: EvaluationBatch) -> None:
        if len(batch.labels) == 0:  # where the batches do not divide evenly between processes
            return
        networks = self.networks_for_inference(batch.task)
        logits = networks.forward_task(self.to_inputs(batch.images), self._evaluated_assignment, batch.task)
        self.errors.update(batch.task, logits, batch.labels)

    def _finish_evaluation(self, prefix: str) -> None:
        evaluation = self.errors.evaluation(prefix, self.global_step, self.task_names)
        if evaluation is None:
            return
        if not self.trainer.sanity_checking:
            self.evaluations[prefix] = evaluation
        bar = {f"{prefix}/error"}
        for name, value in evaluation.as_metrics().items():
            self.log(name, value, batch_size=1, prog_bar=name in bar)
