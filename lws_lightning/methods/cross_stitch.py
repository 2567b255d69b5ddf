"""Cross-stitch networks: one column per task, mixed linearly after each layer."""

from typing import Any

import torch
from torch import Tensor

from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.checks import check_fraction
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.networks import output_shapes
from lws_lightning.sharing import ColumnNetwork, MixingUnit, RunningStats

__all__ = ["CrossStitch", "CrossStitchScheme", "stitch_matrix"]


class CrossStitchScheme(Scheme):
    """T columns with a cross-stitch unit after each learned layer; see `CrossStitch` for the options."""

    network: ColumnNetwork

    def __init__(self, blueprint: Blueprint, same_task: float, per_channel: bool, stitch_lr_factor: float) -> None:
        check_fraction("same_task", same_task)
        if not stitch_lr_factor > 0:
            raise ValueError(
                f"stitch_lr_factor must be positive, or the units are never trained; it is {stitch_lr_factor}."
            )
        tasks = blueprint.num_tasks
        matrix = stitch_matrix(tasks, same_task)
        shapes = output_shapes(blueprint.base, blueprint.image_shape)
        units = [
            MixingUnit(tasks, matrix.expand(shapes[name][0], -1, -1) if per_channel else matrix)
            for name in blueprint.layer_names
        ]
        layers, heads = blueprint.layers_and_heads([tasks] * len(units))
        super().__init__(ColumnNetwork(layers, heads, units))
        self.gate_lr_factor = stitch_lr_factor
        self._layer_names = blueprint.layer_names

    def details(self) -> dict[str, Any]:
        """Returns `mixing`: the T x T matrix of each layer, averaged over channels if each has its own."""
        matrices = [unit.weight.detach().float() for unit in self.network.mixing_units]
        means = [matrix.mean(0) if matrix.dim() == 3 else matrix for matrix in matrices]
        return {"mixing": {name: mean.tolist() for name, mean in zip(self._layer_names, means, strict=True)}}


class CrossStitch(MultiTaskMethod):
    """Cross-stitch networks (Misra, Shrivastava, Gupta & Hebert 2016, arXiv 1604.03539).

    Every task has a column, a copy of the base network's learned layers. After each of these a cross-stitch unit
    replaces the columns' activations with linear combinations of them, the same at every position of an image (section
    3, equation 1). Weights and units are trained together.

    Variant:

    - The paper's tasks label the same image. Here every task has its own images: an image of task t goes through all
      columns, is mixed only with its own activations, and head t reads it from column t. A prediction of one task
      therefore needs all T columns, T times the parameters and arithmetic of a separate network, and a training step
      computes T^2 batches.
    - A unit has one T x T matrix per channel, as in the paper, or a single one with `per_channel: false`.
    - Batch normalisation keeps running statistics per task (`running_stats: per_task`), because a column sees the
      images of all tasks, unlike in the paper.
    - A unit starts with `same_task` on the diagonal and equal fractions of the rest elsewhere. The paper, too, starts
      from convex rows in [0, 1] (for two tasks, 0.9 and 0.1 among others). As there, training does not keep them
      convex.
    - The paper initialises the columns from trained single-task networks. Here, as for all methods, there is no
      pretraining on the tasks.
    - The paper trains the units with SGD at 10^2 to 10^3 times the learning rate of the layers, because their gradients
      are small. Adam normalises the size of gradients, so every parameter already moves by about `lr` per step; faster
      units do worse here (docs/methods.md).
    - Layers that the base network calls common stay common to all tasks and are not mixed.

    Args:
        same_task: The initial weight of a column's own activations, in [0, 1].
        per_channel: Whether every channel has its own matrix.
        stitch_lr_factor: Learning rate of the units relative to `lr`; positive.
        running_stats: See `MultiTaskMethod`.
        **options: See `MultiTaskMethod`. `max_images_per_pass` counts an image of a task T times.
    """

    state_options = MultiTaskMethod.state_options | {"per_channel"}
    start_options = MultiTaskMethod.start_options | {"same_task"}

    def __init__(
        self,
        same_task: float = 0.9,
        per_channel: bool = True,
        stitch_lr_factor: float = 1.0,
        running_stats: RunningStats = "per_task",
        **options: Any,
    ) -> None:
        design = Design(
            "cross_stitch", lambda blueprint: CrossStitchScheme(blueprint, same_task, per_channel, stitch_lr_factor)
        )
        super().__init__(design, running_stats=running_stats, **options)


def stitch_matrix(size: int, same: float) -> Tensor:
    """Returns `(size, size)` float32 with `same` on the diagonal and equal fractions of the rest; rows sum to 1."""
    if size == 1:
        return torch.ones(1, 1)
    rest = (1 - same) / (size - 1)
    return torch.full((size, size), rest).fill_diagonal_(same)
