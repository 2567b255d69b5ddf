"""Fully-adaptive feature sharing: from one network for all tasks, layers are copied for groups of related tasks."""

from typing import Any

import torch
from torch import Tensor

from lws_lightning.batches import FeatureBatch, StepBatch, TaskBatch
from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.search import TaskTree, difficulty_agreement
from lws_lightning.sharing import MultiTaskNetwork
from lws_lightning.training import WeightUpdate, to_inputs

__all__ = ["FullyAdaptiveScheme", "FullyAdaptiveSharing"]


class FullyAdaptiveScheme(Scheme):
    """Trains under a tree that branches, layer by layer, from the heads down; see `FullyAdaptiveSharing`."""

    network: MultiTaskNetwork
    distribution: TaskTree

    def __init__(self, blueprint: Blueprint, branching_part: float, branch_cost: float, affinity_steps: int) -> None:
        if not 0 < branching_part <= 1:
            raise ValueError(f"branching_part must be in (0, 1], a fraction of the run, but is {branching_part}.")
        if not branch_cost >= 0:
            raise ValueError(f"branch_cost must not be negative, but is {branch_cost}.")
        if affinity_steps < 1:
            raise ValueError(f"affinity_steps must be at least 1, but is {affinity_steps}.")
        blueprint.require_several_tasks()
        network = blueprint.network(blueprint.num_tasks)
        super().__init__(network, TaskTree(network.weights_per_layer, blueprint.num_tasks))
        self.branching_part, self.branch_cost, self.affinity_steps = branching_part, branch_cost, affinity_steps
        self._layer_at: dict[int, int] = {}  # step -> layer that branches before it; set by `begin`

    def begin(self, steps: float) -> list[str]:
        """Computes the steps at which layers branch; refuses a run without an end, or with fewer steps than layers."""
        if steps == float("inf"):
            raise ValueError("branching_part needs a run with an end: set trainer.max_steps or max_epochs.")
        layers = len(self.network.weights_per_layer)
        interval = int(self.branching_part * steps / layers)
        if interval < 1:
            raise ValueError(
                f"{layers} layers branch one after the other in the first {self.branching_part * steps:g} steps, at "
                "least one step apart. Train for longer (trainer.max_steps) or set a larger model.branching_part."
            )
        self._layer_at = {interval * (number + 1): layers - 1 - number for number in range(layers)}
        return []

    def step(self, update: WeightUpdate, batch: StepBatch) -> dict[str, Tensor]:
        """Branches a layer if it is its turn, measures agreement if a branching is near, and makes one Adam step."""
        before = {name: value.clone() for name, value in self.distribution.state_dict().items()}
        try:
            layer = self._layer_at.get(update.step)
            if layer is not None:
                for source, target in self.distribution.branch(layer, self.branch_cost):
                    update.duplicate(self.network.block_name(layer, source), self.network.block_name(layer, target))
            if any(0 < step - update.step <= self.affinity_steps for step in self._layer_at):
                self.distribution.observe(*self._agreement(update, batch.nes))
            return super().step(update, batch)
        except BaseException:
            self.distribution.load_state_dict(before)
            raise

    def _agreement(self, update: WeightUpdate, batch: TaskBatch | FeatureBatch) -> tuple[Tensor, int]:
        """Runs every task's network on the images of all tasks; returns their agreement and the number of images."""
        images = to_inputs(batch.images, self.network.dtype).flatten(0, 1)
        population = self.assignment.unsqueeze(0)
        confidences = []
        with torch.no_grad(), self.network.evaluating():
            for task in range(population.shape[-1]):
                options = {"tasks": [task], "first_layer": batch.layer}
                (logits,) = self.network(images.unsqueeze(0), population[..., [task]], **options)
                confidences.append(logits[0].float().softmax(-1).amax(-1))
        counts = difficulty_agreement(torch.stack(confidences)).to(images.device)
        if update.ranks.distribute == "examples":  # else all ranks have the same images
            counts = update.ranks.weighted_sum(counts)
        return counts.cpu(), len(images)


class FullyAdaptiveSharing(MultiTaskMethod):
    """Fully-adaptive feature sharing (Lu, Kumar, Zhai, Cheng, Javidi & Feris, CVPR 2017, arXiv 1611.05377).

    Training starts with one network for all tasks. Then, from the layer below the heads down to the first, the branches
    above a layer are grouped by their affinity, and each group gets a copy of the layer (section 3.3). The groups of
    one layer are the branches above the next, so the result is a tree, and a tree is an assignment. Two tasks are akin
    if they find the same images easy and the same images difficult. It is a directed method without a search.

    Variant:

    - The paper's tasks label the same images, and an image is difficult if the prediction is far from the label. Here
      each task has its own images, so every task's network predicts the images of all tasks, and an image is
      difficult if the largest class probability is below the task's mean.
    - The first network is the base network, not a thin one found by matching pursuit.
    - Groups are found by agglomeration, not by spectral clustering, and their number by `branch_cost`, the same for all
      layers; the paper weighs layers by the cost of a copy.
    - The layers branch at equal intervals in the first part of the run, one each time.

    Args:
        branching_part: Fraction of the run after which the last layer has branched, in (0, 1].
        branch_cost: Cost of a copy of a layer for each branch, compared with the mean distance within groups, 1 minus
            their agreement. Tasks that agree by chance on half of the images are at 0.5. 0: separates all tasks.
        affinity_steps: Steps before each branching whose images (those of the NES batch) measure the agreement; at most
            those since the last branching.
        **options: See `MultiTaskMethod`.

    Raises:
        ValueError: If an option is out of range.
    """

    def __init__(
        self,
        branching_part: float = 0.5,
        branch_cost: float = 0.4,
        affinity_steps: int = 50,
        **options: Any,
    ) -> None:
        design = Design(
            "fully_adaptive",
            lambda blueprint: FullyAdaptiveScheme(blueprint, branching_part, branch_cost, affinity_steps),
        )
        super().__init__(design, **options)
