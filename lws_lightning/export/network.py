"""A task's own network as a stand-alone module."""

import torch
from torch import nn

from lws_lightning.methods import MultiTaskMethod
from lws_lightning.sharing import standalone_network

__all__ = ["task_network"]


def task_network(method: MultiTaskMethod, task: int | str) -> nn.Sequential:
    """Returns a task's own network as a module that does not depend on this package.

    It consists of clones of the blocks that the task uses, and its head. If the data were normalised, it starts with an
    `nn.BatchNorm2d` without parameters (`normalize`) that does the same; it must stay in eval mode.

    Args:
        method: A trained method.
        task: Its index or name.

    Returns:
        A module in eval mode with float32 weights on the CPU, independent of the method. It maps images
        `(N, C, H, W)`, float32 in [0, 1] (bytes divided by 255), to logits `(N, classes)`.

    Raises:
        ValueError: If there is no such task.
        NotImplementedError: If the method's predictions need more than one network.
    """
    index = method.task_index(task)
    networks, assignment = method.inference_network(index)
    if len(assignment) == 0:
        raise NotImplementedError(
            f"{type(method).__name__} has no network for one task alone: a prediction mixes the activations of "
            "several blocks at each layer (docs/methods.md), which is no chain of plain modules. `lws predict` "
            "works; to export, train a method that chooses blocks, such as LearnedWeightSharing or FixedSharing."
        )
    modules = list(networks.task_modules(assignment, index))
    names = [*method.block_names, "head"]
    normalization = method.data_record.normalization(method.image_shape[0])
    if normalization is not None:
        modules.insert(0, _normalize(*normalization))
        names.insert(0, "normalize")
    return standalone_network(modules, names, index)


def _normalize(mean: list[float], std: list[float]) -> nn.BatchNorm2d:
    """Returns a batch normalisation that in eval mode subtracts `mean` and divides by `std`."""
    norm = nn.BatchNorm2d(len(mean), eps=0.0, affine=False)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(torch.tensor(mean))
    norm.running_var.copy_(torch.tensor(std, dtype=torch.float64).square())
    return norm
