"""The networks of all tasks, made of weight sets and run for a whole population of assignments at once."""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from lws_lightning.sharing.layers import CommonLayer, SharedLayer, gather_nodes
from lws_lightning.sharing.memory import channels_last
from lws_lightning.sharing.nodes import node_context
from lws_lightning.sharing.passes import PopulationPass, split_population
from lws_lightning.sharing.plan import plan_population
from lws_lightning.sharing.task_networks import TaskNetworks

__all__ = ["MultiTaskNetwork"]


class MultiTaskNetwork(TaskNetworks):
    """A chain of layers with weight sets and common layers, and a head for each task.

    Parameters are stored in channels_last, which is fastest for convolutions.

    Args:
        layers: The chain.
        heads: T output layers.
    """

    layers: nn.ModuleList

    def __init__(self, layers: Sequence[SharedLayer], heads: Sequence[nn.Module]) -> None:
        super().__init__({"layers": nn.ModuleList(layers)}, heads)
        self._chain = list(layers)
        learned = iter(range(len(layers)))
        self._learned_layers = [None if isinstance(layer, CommonLayer) else next(learned) for layer in layers]

    @property
    def weights_per_layer(self) -> list[int]:
        """K_l of each learned layer."""
        return [layer.num_weights for layer in self._chain if not isinstance(layer, CommonLayer)]

    def layer_parameters(self) -> list[int]:
        """Counts the parameters that one more copy of each learned layer adds."""
        learned = [layer for layer in self._chain if not isinstance(layer, CommonLayer)]
        return [sum(p.numel() for p in layer.copies[0].parameters() if p.requires_grad) for layer in learned]

    def forward(
        self,
        images: Tensor,
        population: Tensor,
        tasks: Sequence[int] | None = None,
        population_pass: PopulationPass | None = None,
        first_layer: int = 0,
    ) -> list[Tensor]:
        """Runs a population of assignments on one batch of each task.

        The result equals that of a loop over assignments and tasks that runs each task's network alone on its B images,
        in training and in eval mode, but each distinct prefix is computed once and each copy runs once.

        Args:
            images: `(T', B, ...)` floating point, a batch of each of T' tasks.
            population: `(S, L, T')` int64 on the CPU, entry (s, l, t) in `[0, K_l)`.
            tasks: The T' tasks; None: all T in order.
            population_pass: The tasks and assignments to compute (see `split_population`); None: all. In training, a
                step runs all its passes between `discard_running_stats` and `commit_running_stats`.
            first_layer: p, at most `frozen_prefix`, if the images are the features that `prefix_features` computes.

        Returns:
            The logits of each of the T' tasks, `(S, B, classes_t)`; with `population_pass`, of its tasks and
            assignments.

        Raises:
            ValueError: If the population does not match the network, the images or the tasks.
        """
        tasks = range(len(self.heads)) if tasks is None else tasks
        self._check_population(population, len(images), len(tasks))
        batch_size = images.shape[1]
        if population_pass is not None:
            images, tasks = (
                images[population_pass.tasks.start : population_pass.tasks.stop],
                [tasks[task] for task in population_pass.tasks],
            )
        plan = plan_population(population, self._learned_layers, population_pass, tasks)
        activations = channels_last(images.flatten(0, 1))
        layers = list(enumerate(zip(self._chain, plan.layers, strict=True)))
        for position, (layer, layer_plan) in layers[first_layer:]:
            activations = layer(activations, layer_plan, batch_size, self.seed_function_at(position))
        features = gather_nodes(activations, plan.leaves, batch_size)
        leaves_of_tasks = torch.split(features, [nodes.size * batch_size for nodes in plan.heads])
        logits = []
        for task, nodes, leaves in zip(tasks, plan.heads, leaves_of_tasks, strict=True):
            with node_context([self.heads[task]], [nodes], self.seed_function_at("head")):
                outputs = self.heads[task](leaves)
            outputs = outputs.view(-1, batch_size, outputs.shape[-1])
            logits.append(outputs.index_select(0, nodes.visits.to(outputs.device, non_blocking=True)))
        return logits

    def forward_task(self, images: Tensor, assignment: Tensor, task: int) -> Tensor:
        """Runs one task's own network.

        Args:
            images: `(N, ...)` floating point.
            assignment: `(L, T)` int64.
            task: Which task's network, in `[0, T)`.

        Returns:
            `(N, classes)` logits.
        """
        activations = channels_last(images)
        for layer, number in zip(self._chain, self._copies_of(assignment, task), strict=True):
            activations = layer.forward_copy(activations, number, task)
        return self.heads[task](activations)  # type: ignore[no-any-return]

    @property
    def frozen_prefix(self) -> int:
        """The number of layers before the first one that is trained or has several copies."""
        fixed = [layer.frozen and layer.num_weights == 1 and not layer.trains for layer in self._chain]
        return [*fixed, False].index(False)

    def prefix_features(self, images: Tensor, layers: int) -> Tensor:
        """Runs images `(N, ...)` through the first layers, at most `frozen_prefix` of them."""
        activations = channels_last(images)
        for layer in self._chain[:layers]:
            activations = layer.forward_copy(activations, 0, 0)
        return activations

    def _check_population(self, population: Tensor, num_batches: int, num_tasks: int) -> None:
        sizes = torch.tensor(self.weights_per_layer)
        if population.shape[1:] != (len(sizes), num_tasks) or num_batches != num_tasks:
            raise ValueError(
                f"A population of shape {tuple(population.shape)} does not match {len(sizes)} learned layers, "
                f"{num_tasks} tasks and images of {num_batches} tasks."
            )
        if bool((population < 0).any()) or bool((population >= sizes[:, None]).any()):
            raise ValueError(f"A population contains copies outside [0, K_l) for K = {self.weights_per_layer}.")

    def task_modules(self, assignment: Tensor, task: int) -> list[nn.Module]:
        """Returns the blocks and the head of one task's network, in order."""
        numbers = self._copies_of(assignment, task)
        return [*(layer.copies[n] for layer, n in zip(self._chain, numbers, strict=True)), self.heads[task]]

    def _copies_of(self, assignment: Tensor, task: int) -> list[int]:
        """Returns the copy that a task uses, for each layer of the chain."""
        copies = assignment[:, task].tolist()
        return [0 if index is None else copies[index] for index in self._learned_layers]

    def unshared(self) -> "MultiTaskNetwork":
        """Returns networks of the same architecture with separate weights for each task at every layer.

        Task t uses copy t everywhere. All weights are initially those of each layer's first copy. Frozen weights are
        the same tensors as in this network.
        """
        tasks = len(self.heads)
        layers = [SharedLayer(layer.copies[0], tasks, frozen=layer.frozen) for layer in self._chain]
        return MultiTaskNetwork(layers, [copy.deepcopy(head) for head in self.heads])

    def block_name(self, layer: int, number: int) -> str:
        """Returns the name, among the submodules, of a copy of a learned layer."""
        return f"layers.{self._learned_layers.index(layer)}.copies.{number}"

    def copies(self) -> Iterator[tuple[int | None, int, nn.Module]]:
        """Yields (index of the learned layer, or None if common; number of the copy; block)."""
        for layer, index in zip(self._chain, self._learned_layers, strict=True):
            for number, block in enumerate(layer.copies):
                yield index, number, block

    def passes(self, population: Tensor, batch_size: int, max_images: int | None) -> list[PopulationPass]:
        """Splits a population so that no pass computes more than `max_images` images at any layer."""
        return split_population(population, batch_size, max_images)
