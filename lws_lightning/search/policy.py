"""The policy of routing networks, trained by the Weighted Policy Learner."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lws_lightning.search.distribution import SearchDistribution

__all__ = ["RoutingPolicy", "project_onto_simplex"]


class RoutingPolicy(SearchDistribution):
    r"""A tabular policy for each task: a distribution over the function blocks at each depth.

    Each task has an agent, whose state is the depth alone (Rosenbaum, Klinger & Riemer 2018, section 3: per-task agents
    with tabular policies). The agents are trained by the Weighted Policy Learner (Abdallah & Lesser 2006). After a
    route a with final rewards r, for each task t and depth l:

    .. math::
        R_{lt} &= r_t + \rho \sum_{j \ge l} c_j(a_{jt}) \\
        \bar R_{lt} &\leftarrow \bar R_{lt} + \beta (R_{lt} - \bar R_{lt}) \\
        \Delta &= R_{lt} - \bar R_{lt} \\
        \Delta &\leftarrow \Delta \, (1 - \pi_{lt}(a_{lt})) \text{ if } \Delta > 0,
            \text{ else } \Delta \, \pi_{lt}(a_{lt}) \\
        \pi_{lt} &\leftarrow \Pi(\pi_{lt} + \eta \, \Delta \, \mathrm{onehot}(a_{lt}))

    The weighting slows an agent down where it approaches the border of the simplex and speeds it up where it leaves, so
    that it can follow other agents. The price: under noisy returns a likely block loses more by a bad draw than it
    gains by a good one, and the policy does not become certain. `c_j(k)` is the collaboration reward: the fraction of
    all earlier choices at depth j, by all agents, that fell on block k; 1/K before the first. :math:`\Pi` is the
    Euclidean projection onto the distributions whose entries are at least `min_probability`. While 1 / (number of
    returns so far) exceeds :math:`\beta`, it takes its place: the average return is then the plain mean.

    Args:
        weights_per_layer: K_l, the function blocks at each of L depths.
        num_tasks: T.
        min_probability: Floor under every entry, so that no block is ruled out.
        initial_probs: As for `SearchDistribution`.
        dtype: Of `probs`, float32 or float64.

    Attributes:
        average_return: `(L, T)` float64, the running averages.
        choices: `(L, max K)` int64, how often each block has been chosen.
        steps: int64 scalar, the number of updates.
    """

    average_return: Tensor
    choices: Tensor
    steps: Tensor

    def __init__(
        self,
        weights_per_layer: Sequence[int],
        num_tasks: int,
        min_probability: float = 1e-3,
        initial_probs: Sequence[Sequence[Sequence[float]]] | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(weights_per_layer, num_tasks, min_probability, initial_probs, dtype)
        shape = (self.num_layers, num_tasks)
        self.register_buffer("average_return", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("choices", torch.zeros(self.num_layers, max(weights_per_layer), dtype=torch.int64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def returns(self, route: Tensor, rewards: Tensor, collaboration: float) -> Tensor:
        """Computes the return of each agent at each depth.

        Args:
            route: `(L, T)` int64, the chosen blocks.
            rewards: `(T,)` in [-1, 1], the final rewards.
            collaboration: rho, the weight of the collaboration reward.

        Returns:
            `(L, T)` float64.
        """
        counts = self.choices.double()
        total = counts.sum(1, keepdim=True)
        sizes = self.valid[:, 0].sum(1, keepdim=True).double()
        shares = torch.where(total > 0, counts / total.clamp(min=1), 1.0 / sizes)
        immediate = collaboration * shares.gather(1, route)
        return rewards.double() + immediate.flip(0).cumsum(0).flip(0)

    @torch.no_grad()
    def learn(
        self, route: Tensor, rewards: Tensor, learning_rate: float, average_rate: float, collaboration: float
    ) -> None:
        """Updates every agent after one route.

        Args:
            route: `(L, T)` int64, drawn from this policy.
            rewards: `(T,)` in [-1, 1].
            learning_rate: eta, the step size of the policy.
            average_rate: beta, the step size of the average return, in (0, 1].
            collaboration: rho.
        """
        returns = self.returns(route, rewards, collaboration)
        rate = max(average_rate, 1 / (int(self.steps) + 1))
        average = self.average_return + rate * (returns - self.average_return)
        gradient = returns - average
        chosen = self.probs.gather(-1, route.unsqueeze(-1)).squeeze(-1).double()
        step = learning_rate * gradient * torch.where(gradient > 0, 1 - chosen, chosen)
        stepped = self.probs.double().scatter_add(-1, route.unsqueeze(-1), step.unsqueeze(-1))
        probs = project_onto_simplex(stepped, self.valid.expand_as(stepped), self.min_probability)
        self.choices.scatter_add_(1, route, torch.ones_like(route))
        self.average_return.copy_(average)
        self.probs.copy_(torch.where((step == 0).unsqueeze(-1), self.probs.double(), probs))
        self.steps.add_(1)


def project_onto_simplex(values: Tensor, valid: Tensor, floor: float) -> Tensor:
    """Projects values onto the nearest distributions (Euclidean) with entries of at least `floor`.

    Args:
        values: `(..., K)` float64.
        valid: `(..., K)` bool, which entries exist; the others are set to 0.
        floor: Smallest entry, at most 1 / K.

    Returns:
        `(..., K)`; rows sum to 1.
    """
    sizes = valid.sum(-1, keepdim=True).to(values.dtype)
    mass = 1 - floor * sizes  # what is left above the floor
    above = (values - floor).masked_fill(~valid, -torch.inf)
    ordered = above.sort(-1, descending=True).values
    ranks = torch.arange(1, values.shape[-1] + 1)
    thresholds = (ordered.masked_fill(ordered == -torch.inf, 0).cumsum(-1) - mass) / ranks
    positive = (ordered - thresholds > 0) & (ranks <= sizes)
    last = positive.sum(-1, keepdim=True).clamp(min=1) - 1
    projected = (above - thresholds.gather(-1, last)).clamp(min=0) + floor
    return projected.masked_fill(~valid, 0.0)
