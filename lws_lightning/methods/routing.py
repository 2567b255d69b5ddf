"""Routing networks: for each task, an agent learns which function blocks its images pass through."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lws_lightning.batches import StepBatch
from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.randomness import generator_for
from lws_lightning.search import RoutingPolicy
from lws_lightning.training import WeightUpdate

__all__ = ["RoutingNetworks", "RoutingScheme"]


class RoutingScheme(Scheme):
    """Trains blocks along one drawn route per task, and policies by its reward; see `RoutingNetworks`."""

    distribution: RoutingPolicy

    def __init__(
        self,
        blueprint: Blueprint,
        weights_per_layer: int | list[int],
        policy_lr: float,
        average_rate: float,
        collaboration: float,
        min_probability: float,
        initial_probs: list[list[list[float]]] | None,
    ) -> None:
        if not policy_lr >= 0:
            raise ValueError(f"policy_lr must not be negative, but is {policy_lr}.")
        if not 0 < average_rate <= 1:
            raise ValueError(f"average_rate must be in (0, 1], the weight of the newest return, but is {average_rate}.")
        if not 0 <= collaboration <= 1:
            raise ValueError(f"collaboration must be in [0, 1], like the paper's rho, but is {collaboration}.")
        blueprint.require_several_tasks()
        network = blueprint.network(weights_per_layer)
        policy = RoutingPolicy(network.weights_per_layer, blueprint.num_tasks, min_probability, initial_probs)
        super().__init__(network, policy)
        self.policy_lr, self.average_rate, self.collaboration = policy_lr, average_rate, collaboration

    def step(self, update: WeightUpdate, batch: StepBatch) -> dict[str, Tensor]:
        """Draws a route for each task, then makes one Adam step along the routes and one policy step."""
        generator = generator_for(update.seed, "population", update.step, "sgd")
        route = self.distribution.sample(1, generator)
        rewards = torch.zeros(route.shape[-1], dtype=torch.float64, device=batch.sgd.labels.device)

        def observe(logits: Sequence[Tensor], labels: Tensor, tasks: range) -> None:
            hits = [(out[0].argmax(-1) == label).double().mean() for out, label in zip(logits, labels, strict=True)]
            rewards[tasks.start : tasks.stop] = 2 * torch.stack(hits) - 1

        losses = update.gradients(batch.sgd, route, observe=observe)
        mean_rewards = update.ranks.weighted_sum(rewards).cpu()
        with update.engine.uninterrupted():
            self.distribution.learn(route[0], mean_rewards, self.policy_lr, self.average_rate, self.collaboration)
            update.apply()
        return {"train/loss": losses.mean(), "routing/reward": mean_rewards.mean()}


class RoutingNetworks(MultiTaskMethod):
    """Routing networks (Rosenbaum, Klinger & Riemer 2018, arXiv 1711.01239).

    At each depth there are K function blocks, K copies of the base network's layer, of which a router chooses one. The
    router has an agent for each task with a tabular policy, a distribution over blocks at each depth, trained by the
    Weighted Policy Learner, a multi-agent algorithm (section 3; `RoutingPolicy` states the update). A step draws one
    route for each task, trains the blocks on it by the loss, and the policies by the reward.

    Variant:

    - One agent per task, and no dispatcher. The policy is a table over task and depth; it does not see the image.
      The paper's approximated policies are not implemented.
    - The paper routes every sample separately. Here a task's batch takes one route per step, so that batch
      normalisation sees one task's batch under one route. The final reward is the mean over the batch of +1 for a
      correct and -1 for a wrong prediction, in the training pass on the training batch. An agent therefore makes one
      decision per depth and step, with a reward of lower variance, where the paper has B.
    - The paper's identity block is not implemented; every layer of the base network is applied.
    - The collaboration reward (option `collaboration`, the paper's rho) adds to the return of a depth, for this and all
      later depths, rho times the fraction of all agents' choices there that fell on the chosen block. 0, the default,
      disables it.
    - Policies start uniform. Inference follows the most likely block at each depth.
    - Blocks are trained by Adam, as in all methods here; the paper uses SGD.
    - The paper does not give `policy_lr` and `average_rate`; they were chosen here.

    Policies are logged as for `LearnedWeightSharing` (entropies, pictures), and a prediction of one task needs one
    block per layer.

    Args:
        weights_per_layer: K, one number for all learned layers or one per layer.
        policy_lr: Step size of the policies, not negative; 0 freezes them.
        average_rate: Step size of the average return, in (0, 1].
        collaboration: rho, in [0, 1].
        min_probability: Floor under the entries of the policies.
        initial_probs: Initial policies, `(L, T, max K)` nested list (see `SearchDistribution`); None: uniform.
        **options: See `MultiTaskMethod`.
    """

    start_options = MultiTaskMethod.start_options | {"initial_probs"}

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
        design = Design(
            "routing",
            lambda blueprint: RoutingScheme(
                blueprint, weights_per_layer, policy_lr, average_rate, collaboration, min_probability, initial_probs
            ),
        )
        super().__init__(design, **options)
