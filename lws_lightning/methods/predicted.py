"""How a method is used once it is trained: predictions, and each task's network by itself."""

from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.batches import PredictionBatch
from lws_lightning.methods.evaluated import EvaluatedMethod
from lws_lightning.methods.record import DataRecord
from lws_lightning.sharing import MultiTaskNetwork, plain_chain

__all__ = ["PredictedMethod"]


class PredictedMethod(EvaluatedMethod):
    """T networks whose checkpoints say what is needed to use them without the data."""

    block_names: list[str]
    num_classes: list[int]
    image_shape: tuple[int, ...]
    _data_record: DataRecord | None = None

    @property
    def data_record(self) -> DataRecord:
        """What is known of the data: from the Trainer's DataModule, else from the checkpoint."""
        datamodule = None if self._trainer is None else getattr(self._trainer, "datamodule", None)
        if datamodule is not None:
            return DataRecord.of(datamodule, self.num_classes)
        return self._data_record or DataRecord.from_plain(None, len(self.task_names))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the class of the method and what is known of the data."""
        checkpoint["lws_method"] = f"{type(self).__module__}.{type(self).__qualname__}"
        checkpoint["lws_data"] = self.data_record.as_plain()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remembers what the checkpoint says of the data."""
        self._data_record = DataRecord.from_plain(checkpoint.get("lws_data"), len(self.task_names))

    def task_index(self, task: int | str) -> int:
        """Returns the index of a task.

        Raises:
            ValueError: If there is no such task; the message names those there are.
        """
        if isinstance(task, str) and task in self.task_names:
            return self.task_names.index(task)
        if isinstance(task, int) and 0 <= task < len(self.task_names):
            return task
        raise ValueError(f"There is no task {task!r}; there are: {', '.join(map(repr, self.task_names))}.")

    def task_network(self, task: int | str) -> nn.Sequential:
        """Makes a task's own network a plain module, which needs nothing of this package.

        It consists of copies of the blocks that the task uses under `assignment`, and its head. If the data were
        normalised, an `nn.BatchNorm2d` without parameters in front (`normalize`) does that; it must stay in eval mode.

        Args:
            task: Its index or name.

        Returns:
            A module in eval mode with float32 weights on the CPU, independent of this one. It maps images
            `(N, C, H, W)`, float32 in [0, 1] (bytes divided by 255), to logits `(N, classes)`.

        Raises:
            ValueError: If there is no such task.
            NotImplementedError: If the method's predictions need more than one network.
        """
        index = self.task_index(task)
        networks, assignment = self.networks_for_inference(index), self.assignment
        if not isinstance(networks, MultiTaskNetwork) or assignment is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no network for one task alone: a prediction mixes the activations of "
                "several blocks at each layer (docs/methods.md), which is no chain of plain modules. `lws predict` "
                "works; to export, train a method that chooses blocks, such as LearnedWeightSharing or FixedSharing."
            )
        modules = list(networks.task_modules(assignment, index))
        names = [*self.block_names, "head"]
        normalization = self.data_record.normalization(self.image_shape[0])
        if normalization is not None:
            modules.insert(0, _normalize(*normalization))
            names.insert(0, "normalize")
        return plain_chain(modules, names, index)

    def predict_step(self, batch: PredictionBatch, batch_idx: int) -> dict[int, Tensor]:
        """Computes class probabilities.

        Args:
            batch: Images, and the tasks whose networks are to see them.
            batch_idx: Its number.

        Returns:
            By task `(N, classes)` float32.
        """
        if len(batch.images) == 0:
            return {}
        images = batch.images
        normalization = self.data_record.normalization(self.image_shape[0])
        if normalization is not None:  # in float32 also where the networks are of half precision, as in training
            mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in normalization)
            images = (images / 255 - mean) / std
        inputs = self.to_inputs(images)
        return {task: self._probabilities(inputs, task) for task in batch.tasks}

    def _probabilities(self, inputs: Tensor, task: int) -> Tensor:
        logits = self.networks_for_inference(task).forward_task(inputs, self.assignment, task)
        return logits.float().softmax(-1)


def _normalize(mean: list[float], std: list[float]) -> nn.BatchNorm2d:
    """Makes a batch normalisation that in eval mode subtracts `mean` and divides by `std`."""
    norm = nn.BatchNorm2d(len(mean), eps=0.0, affine=False)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(torch.tensor(mean))
    norm.running_var.copy_(torch.tensor(std, dtype=torch.float64).square())
    return norm
