"""Routing networks: for each task an agent that learns which function blocks its images go through."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lws_lightning.batches import StepBatch
from lws_lightning.methods.searched import SearchedMethod
from lws_lightning.randomness import generator_for
from lws_lightning.search import RoutingPolicy

__all__ = ["RoutingNetworks"]


class RoutingNetworks(SearchedMethod):
    """Routing networks (Rosenbaum, Klinger & Riemer 2018, arXiv 1711.01239).

    At each depth there are K function blocks, K copies of the base network's layer. A router chooses one at each depth.
    It consists of an agent for each task with a tabular policy, a distribution over blocks for each depth, trained by
    the Weighted Policy Learner, a multi-agent algorithm (section 3; here `RoutingPolicy`, which states the update). A
    step draws one route for each task, trains the blocks on it by the loss, and the policies by the reward.

    Variant:

    - An agent for each task, and no dispatcher. The policy is a table over task and depth; it does not see the image.
      The approximated policies of the paper are not implemented.
    - The paper routes every sample by itself. Here a task's batch takes one route a step, so that batch normalisation
      sees one task's batch under one route, and the final reward is the mean over the batch of +1 for a correct and -1
      for a wrong prediction, on the training batch and in the training pass. An agent therefore gets one decision for
      each depth and step, with a reward of less variance, where the paper has B.
    - The paper's block that passes its input on is not implemented; every layer of the base network is applied.
    - The collaboration reward (option `collaboration`, the paper's rho) adds to the return of a depth, for this and all
      later depths, rho times the share that the chosen block has had of all agents' choices there. 0, the default,
      leaves it out.
    - Policies start uniform. Inference follows the most likely block at each depth.
    - Blocks are trained by Adam, as in all methods here; the paper uses SGD.
    - The rates of policy and average return were chosen here.

    What the policies look like is logged as for `LearnedWeightSharing` (entropies, pictures), and a prediction of one
    task needs one block a layer.

    Args:
        weights_per_layer: K, one number for all learned layers or one for each.
        policy_lr: Step size of the policies; not negative, 0 freezes them.
        average_rate: Step size of the average return, in (0, 1].
        collaboration: rho, in [0, 1].
        min_probability: Floor under the policies' entries.
        initial_probs: Initial policies, `(L, T, max K)` nested list (see `SearchDistribution`); None: uniform.
        **options: See `MultiTaskMethod`.
    """

    method_name = "routing"
    start_options = SearchedMethod.start_options | {"initial_probs"}
    distribution: RoutingPolicy

    def __init__(
        self,
        weights_per_layer: int | list[int] = 3,
        policy_lr: float = 0.1,
        average_rate: float = 0.05,
        collaboration: float = 0.0,
        min_probability: float = 1e-3,
        initial_probs: list[list[list[float]]] | None = None,
        **options: Any,
    ) -> None:
        if not policy_lr >= 0:
            raise ValueError(f"policy_lr must not be negative, but is {policy_lr}.")
        if not 0 < average_rate <= 1:
            raise ValueError(
                f"average_rate must be in (0, 1], for it is the share of the newest return; is {average_rate}."
            )
        if not 0 <= collaboration <= 1:
            raise ValueError(f"collaboration must be in [0, 1], as the paper's rho, but is {collaboration}.")
        self._requested_weights = weights_per_layer
        super().__init__(**options)
        self.policy_lr, self.average_rate, self.collaboration = policy_lr, average_rate, collaboration
        self.distribution = RoutingPolicy(self.weights_per_layer, len(self.task_names), min_probability, initial_probs)
        self._rewards = torch.zeros(len(self.task_names), dtype=torch.float64)

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Draws a route for each task, then takes one Adam step along it and one step of the policies."""
        generator = generator_for(self.seed, "population", self.global_step, "sgd")
        route = self.distribution.sample(1, generator)
        self._rewards = torch.zeros(len(self.task_names), dtype=torch.float64, device=self.device)
        losses = self.compute_gradients(batch.sgd, route)
        rewards = self.ranks.total(self._rewards).cpu()
        with self.whole_update():
            self.distribution.learn(route[0], rewards, self.policy_lr, self.average_rate, self.collaboration)
            self.apply_gradients()
        self.log_now({"train/loss": losses.mean()}, prog_bar=True)
        self.log_now({"routing/reward": rewards.mean()})

    def losses_of(self, logits: Sequence[Tensor], labels: Tensor, tasks: range) -> Tensor:
        """Computes losses `(1, T')`, and keeps each task's mean of +1 and -1 for right and wrong predictions."""
        hits = [(out[0].argmax(-1) == label).double().mean() for out, label in zip(logits, labels, strict=True)]
        self._rewards[tasks.start : tasks.stop] = 2 * torch.stack(hits) - 1
        return super().losses_of(logits, labels, tasks)
