"""One column of layers per task, whose activations are mixed after each layer."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lws_lightning.sharing.gated import GatedNetworks, plan_all_copies, root_prefixes
from lws_lightning.sharing.layers import CommonLayer, SharedLayer, gather_nodes
from lws_lightning.sharing.memory import channels_last
from lws_lightning.sharing.mixing import MixingUnit
from lws_lightning.sharing.passes import PopulationPass
from lws_lightning.sharing.task_networks import split_tasks

__all__ = ["ColumnNetwork"]


class ColumnNetwork(GatedNetworks):
    """T columns side by side, with a unit after each learned layer that mixes their activations.

    Each task has its own images. An image of task t goes through all T columns, and head t reads column t after the
    last unit. A prediction therefore costs T times that of a separate network, and a training step T^2 instead of T
    batches.

    Common layers before the first learned one see each image once; between learned layers they are applied in every
    column; after the last one they follow the column that is read.

    In training each column's batch normalisation sees the batches of the T tasks as T visits, each with its own
    statistics.

    Args:
        layers: The chain; a learned layer has T copies, one per column.
        heads: T output layers.
        units: One per learned layer.
        skip: Indices of the learned layers, ascending and including the last, whose mixed outputs are summed for the
            head, weighted by `skip_weights`. All must have the same output shape. None: the head reads the last one.
        initial_skip: `(T, len(skip))`, the initial `skip_weights`.

    Raises:
        ValueError: If a learned layer does not have T copies.
    """

    layers: nn.ModuleList
    units: nn.ModuleList

    def __init__(
        self,
        layers: Sequence[SharedLayer],
        heads: Sequence[nn.Module],
        units: Sequence[MixingUnit],
        skip: Sequence[int] | None = None,
        initial_skip: Tensor | None = None,
    ) -> None:
        super().__init__({"layers": nn.ModuleList(layers), "units": nn.ModuleList(units)}, heads)
        self._chain, self._units = list(layers), list(units)
        sizes = [layer.num_weights for layer in self._learned()]
        if sizes != [len(heads)] * len(units):
            raise ValueError(f"Every one of {len(units)} learned layers needs {len(heads)} columns, but has {sizes}.")
        self.skip = None if skip is None else tuple(skip)
        self.skip_weights = None if initial_skip is None else nn.Parameter(initial_skip.clone())

    @property
    def weights_per_layer(self) -> list[int]:
        """The number of columns for each learned layer."""
        return [layer.num_weights for layer in self._learned()]

    @property
    def chain(self) -> list[SharedLayer]:
        """The layers, in order."""
        return list(self._chain)

    @property
    def mixing_units(self) -> list[MixingUnit]:
        """The unit after each learned layer."""
        return list(self._units)

    def _learned(self) -> list[SharedLayer]:
        return [layer for layer in self._chain if not isinstance(layer, CommonLayer)]

    def features(self, images: Tensor, tasks: Sequence[int], batch_size: int) -> Tensor:
        """Computes the mixed activations of each task's own column."""
        columns, index = len(self.heads), 0
        activations, prefixes = channels_last(images), root_prefixes(tasks)
        skipped: list[Tensor] = []
        for position, layer in enumerate(self._chain):
            common = isinstance(layer, CommonLayer)
            plan = plan_all_copies(1 if common else columns, prefixes, tasks, columns)
            activations = layer(activations, plan, batch_size, self.seed_function_at(position))
            prefixes = plan.prefixes
            if common:
                continue
            unit, last = self._units[index], index == len(self._units) - 1
            activations = unit.own_columns(activations, tasks) if last else unit(activations)
            prefixes = root_prefixes(tasks) if last else prefixes
            if self.skip is not None and index in self.skip:
                own = activations if last else _own_column(activations, tasks, columns)
                skipped.append(self._weighted(own, index, tasks))
                activations = torch.stack(skipped).sum(0) if last else activations
            index += 1
        return activations

    def _weighted(self, activations: Tensor, index: int, tasks: Sequence[int]) -> Tensor:
        """Scales `(T' * B, ...)` by each task's skip weight of a learned layer."""
        assert self.skip is not None
        assert self.skip_weights is not None
        weights = self.skip_weights[list(tasks), self.skip.index(index)]
        per_image = weights.repeat_interleave(len(activations) // len(tasks))
        return activations * per_image.view(-1, *[1] * (activations.dim() - 1))

    def task_modules(self, assignment: Tensor, task: int) -> list[nn.Module]:
        """Returns all columns and units, and the task's head; only one row of the last unit is used."""
        return [*self._chain, *self._units, self.heads[task]]

    def task_parameters(self, assignment: Tensor, task: int) -> list[nn.Parameter]:
        """Returns the distinct parameters that a prediction of one task uses."""
        skip = [] if self.skip_weights is None else [self.skip_weights]
        return super().task_parameters(assignment, task) + skip

    def gate_parameters(self) -> list[nn.Parameter]:
        """Returns the units' matrices and `skip_weights`."""
        skip = [] if self.skip_weights is None else [self.skip_weights]
        return [unit.weight for unit in self._units] + skip

    def passes(self, population: Tensor, batch_size: int, max_images: int | None) -> list[PopulationPass]:
        """Splits by task; each task's batch is T * B images in a layer."""
        columns = len(self.heads)
        smallest = f"{batch_size} in each of {columns} columns"
        return split_tasks(columns, columns * batch_size, max_images, smallest)


def _own_column(activations: Tensor, tasks: Sequence[int], columns: int) -> Tensor:
    """Selects each task's own column, `(T' * B, ...)`, from `(T * T' * B, ...)`."""
    nodes = torch.tensor(tasks) * len(tasks) + torch.arange(len(tasks))
    return gather_nodes(activations, nodes, len(activations) // (columns * len(tasks)))
