"""Learned Weight Sharing: a natural evolution strategy searches the assignment while Adam trains the weights."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from lws_lightning.batches import FeatureBatch, StepBatch, TaskBatch
from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.checks import check_populations
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.randomness import generator_for
from lws_lightning.records import DECIDED
from lws_lightning.search import (
    Sampling,
    SearchDistribution,
    drift_half_life,
    false_alarm_probability,
    fastest_decision,
    marginal_parameters,
    rank_utilities,
    shared_parameters,
)
from lws_lightning.sharing import MultiTaskNetwork
from lws_lightning.training import Objective, WeightUpdate

__all__ = ["Credit", "GradientScale", "LearnedScheme", "LearnedWeightSharing", "NesBatch"]

Credit = Literal["joint", "per_task"]
"""Which losses update a task's categoricals: see `LearnedWeightSharing`."""

GradientScale = Literal["mean", "expected_use"]
"""How gradients of the weights are scaled: see `LearnedWeightSharing`."""

NesBatch = Literal["own", "training"]
"""Which losses move the search distribution: see `LearnedWeightSharing`."""


_RESTARTED_PART = 2 / 3  # of the run; in the rest pi decides


class LearnedScheme(Scheme):
    """One NES step and one Adam step per training step (paper, Algorithm 1); see `LearnedWeightSharing`."""

    network: MultiTaskNetwork
    distribution: SearchDistribution

    def __init__(
        self,
        blueprint: Blueprint,
        weights_per_layer: int | list[int] = 3,
        nes_samples: int = 8,
        sgd_samples: int = 8,
        nes_lr: float = 1e-2,
        min_probability: float = 1e-3,
        gradient_scale: GradientScale = "mean",
        credit: Credit = "joint",
        weight_price: float = 0.0,
        sampling: Sampling = "independent",
        initial_probs: list[list[list[float]]] | None = None,
        nes_batch: NesBatch = "own",
        critical_z: float = 0.0,
        search_restarts: int = 0,
    ) -> None:
        check_populations(nes_samples, sgd_samples, nes_lr, sampling)
        if nes_batch not in get_args(NesBatch):
            raise ValueError(f"nes_batch must be own or training, but is {nes_batch!r}.")
        if nes_batch == "training" and sgd_samples < 2:
            raise ValueError(f"nes_batch: training ranks sgd_samples assignments, at least 2, but is {sgd_samples}.")
        if credit not in get_args(Credit):
            raise ValueError(f"credit must be joint or per_task, but is {credit!r}.")
        if not 0 <= weight_price < float("inf"):
            raise ValueError(f"weight_price must be a finite, non-negative number of nats, but is {weight_price}.")
        if not 0 <= critical_z < float("inf"):
            raise ValueError(
                f"critical_z must be a finite, non-negative number of standard deviations, but is {critical_z}."
            )
        if search_restarts < 0:
            raise ValueError(f"search_restarts must not be negative, but is {search_restarts}.")
        blueprint.require_several_tasks()
        network = blueprint.network(weights_per_layer)
        distribution = SearchDistribution(
            network.weights_per_layer, blueprint.num_tasks, min_probability, initial_probs, critical_z=critical_z
        )
        super().__init__(network, distribution)
        self.nes_samples, self.sgd_samples, self.nes_lr = nes_samples, sgd_samples, nes_lr
        self.gradient_scale, self.credit, self.weight_price = gradient_scale, credit, weight_price
        self.sampling: Sampling = sampling
        self.critical_z = critical_z
        self.nes_batch: NesBatch = nes_batch
        self.search_restarts = search_restarts
        self._restarts: frozenset[int] = frozenset()  # steps before which pi begins again; set by `begin`

    def begin(self, steps: float) -> list[str]:
        """Warns if pi converges within the run by drift, whatever the losses, or cannot converge at all.

        Raises:
            ValueError: If pi is to begin again in a run without an end.
        """
        self._restarts = _restart_steps(self.search_restarts, steps)
        left = steps - max(self._restarts, default=0)  # the steps in which pi can decide
        samples = self.nes_samples if self.nes_batch == "own" else self.sgd_samples
        least = self._fewest_steps(samples)
        if left < least < float("inf"):
            return [
                f"With nes_lr {self.nes_lr:g} the search cannot decide in this run: even if only one choice mattered, "
                f"it would take about {least:,.0f} steps, and it has {left:,.0f}. Train longer or raise nes_lr."
            ]
        half_life = drift_half_life(samples, self.nes_lr, self.sampling)
        if not half_life < left < float("inf"):
            return []
        # Where a step needs evidence, chance decides only as far as it passes the test.
        if false_alarm_probability(self.critical_z, left, max(self.distribution.weights_per_layer)) < 0.5:
            return []
        return [
            f"With nes_lr {self.nes_lr:g} and populations of {samples} random drift alone halves the "
            f"diversity of pi in about {half_life:,.0f} steps, and it has {left:,.0f}. A smaller nes_lr "
            "gives the losses more weight."
        ]

    def _fewest_steps(self, samples: int) -> float:
        """Returns the steps that the most open choice of a copy takes to be decided, at the fastest.

        With `critical_z`, pi moves by whole sums of gradients, which can be faster: 0.
        """
        choices = self.distribution.probs[torch.tensor(self.distribution.weights_per_layer) > 1]
        if not len(choices) or self.critical_z > 0:
            return 0.0
        steps = fastest_decision(float(choices.amax(-1).min()), DECIDED, self.nes_lr)
        return steps * (1 - 1 / samples) if self.sampling == "systematic" else steps

    def step(self, update: WeightUpdate, batch: StepBatch) -> dict[str, Tensor]:
        """Makes one NES step and one Adam step, each on its own batch."""
        before = self.distribution.snapshot()
        try:
            if update.step in self._restarts:
                self.distribution.restart()
            if self.nes_batch == "own":
                nes_losses = self.update_distribution(update, batch.nes)
            population = self.sample(self.sgd_samples, update, "sgd")
            losses = update.gradients(batch.sgd, population, rescale=self.rescale_gradients)
            if self.nes_batch == "training":
                nes_losses = losses.cpu()
                self._move(nes_losses, population, update.objective)
        except BaseException:
            self.distribution.restore(before)
            raise
        update.apply()
        per_assignment = nes_losses.mean(1)
        return {
            "train/loss": losses.mean(),
            "nes/loss_mean": per_assignment.mean(),
            "nes/loss_best": per_assignment.min(),
        }

    def update_distribution(self, update: WeightUpdate, batch: TaskBatch | FeatureBatch) -> Tensor:
        """Makes one NES step (Algorithm 1, StepNES) in eval mode; returns the losses, `(S, T)` on the CPU."""
        population = self.sample(self.nes_samples, update, "nes")
        losses = update.evaluate(batch, population)
        self._move(losses, population, update.objective)
        return losses

    def _move(self, losses: Tensor, population: Tensor, objective: Objective) -> None:
        utilities = rank_utilities(self.ranked_losses(losses, population, objective))
        self.distribution.update(population, utilities, self.nes_lr)

    def ranked_losses(self, losses: Tensor, population: Tensor, objective: Objective) -> Tensor:
        """Returns the values that rank a population with losses `(S, T)`: `(S,)`, or `(S, T)` for per-task credit."""
        num_tasks = losses.shape[1]
        weighted = objective.weigh(losses, range(num_tasks))
        if self.weight_price == 0:  # a loss weight does not change the order of one task's losses
            return weighted.mean(1) if self.credit == "joint" else losses
        sizes = self.network.layer_parameters()
        price = self.weight_price / sum(sizes)
        if self.credit == "joint":
            return weighted.mean(1) + price / num_tasks * shared_parameters(population, sizes)
        return weighted + price * marginal_parameters(population, sizes)

    def rescale_gradients(self) -> None:
        """With `expected_use`, rescales gradients of the mean loss to those of the authors' program."""
        if self.gradient_scale == "mean":
            return
        tasks = len(self.network.heads)
        expected_users = self.distribution.probs.sum(1)  # (L, max K)
        for index, number, block in self.network.copies():
            if index is not None:
                use = float(expected_users[index, number])
                # A copy with so little expected use is never drawn; dividing its zero gradient by it would give NaN.
                _scale_gradients(block, tasks / use if use > 1e-12 else 0.0)
        for head in self.network.heads:
            _scale_gradients(head, tasks)

    def sample(self, size: int, update: WeightUpdate, phase: str) -> Tensor:
        """Draws the population `(S, L, T)` for a phase of the current step."""
        generator = generator_for(update.seed, "population", update.step, phase)
        return self.distribution.sample(size, generator, self.sampling)


class LearnedWeightSharing(MultiTaskMethod):
    """Learned Weight Sharing (paper, Algorithm 1).

    Each training step draws a population of assignments from the search distribution pi, evaluates it on one batch in
    eval mode, and moves pi along the natural gradient of the rank-shaped utility. It then draws another population and
    takes one Adam step along the mean gradient over it on another batch. Inference uses the most likely assignment.

    Args:
        weights_per_layer: K, one number for all learned layers or one per layer.
        nes_samples: Population size of an update of pi (the paper's lambda_pi), at least 2.
        sgd_samples: Population size of an update of the weights (the paper's lambda_theta).
        nes_lr: Step size of pi (the paper's eta_pi).
        min_probability: Floor under the entries of pi (the paper's 0.1 %).
        gradient_scale: `mean`: the gradient of the mean loss over assignments and tasks (the paper's). `expected_use`:
            as in the authors' program, the gradient of the summed loss is divided, for a learned copy, by its expected
            use `sgd_samples * sum_t pi[t, copy]`, for a common layer by `sgd_samples * T` and for a head by
            `sgd_samples`. Under Adam the two are nearly equivalent.
        credit: `joint`: assignments are ranked by their mean loss over tasks, and all tasks get the same utilities (the
            paper's). `per_task`: each task's losses are ranked separately and update only that task's categoricals. A
            task's loss depends only on its own choices, so with many tasks the joint ranks are mostly noise from the
            other tasks (docs/algorithm.md). `loss_weights` weigh the joint mean; with `per_task` they matter only
            together with a `weight_price`.
        weight_price: Price of one more copy of all learned layers, in nats of one task's loss; 0: no price (the
            paper's). The price of an assignment's parameters is added to its losses before ranking; with `per_task`,
            that of the parameters which a task's choices add to the other tasks' (docs/algorithm.md, "A price on
            weights").
        sampling: How populations are drawn: `independent` (the paper's), or `systematic`, where each copy occurs in a
            population as often as pi says, which reduces the variance of the NES gradient.
        initial_probs: Initial pi, `(L, T, max K)` nested list (see `SearchDistribution`); None: uniform.
        nes_batch: `own`: pi is updated by the losses of a separate population on a separate batch, in eval mode (the
            paper's). `training`: by the losses of the population and the batch that train the weights, in train mode,
            before the step. This saves the NES pass; `nes_samples` then has no effect.
        critical_z: The categorical of a layer and task moves only once its gradients since its last step add up to more
            than this many standard deviations of what they would be if losses were random: only on evidence, by the
            whole sum (docs/algorithm.md, "A step only on evidence"). The test is repeated at every step, so useful
            values begin at 4; larger ones, such as 20, wait for more evidence. 0: with every gradient (the paper's).
        search_restarts: Number of times that pi begins again from `initial_probs`, without evidence, while the weights
            go on: at equal intervals in the first two thirds of the run, the last time at their end. What copies have
            learned by then is there for the next search to find (docs/algorithm.md, "Beginning the search again").
            Evaluations in between show a search that has just begun. 0: never (the paper's).
        **options: See `MultiTaskMethod`.
    """

    start_options = MultiTaskMethod.start_options | {"initial_probs"}
    state_values: ClassVar[Mapping[str, Any]] = {**MultiTaskMethod.state_values, "critical_z": 0.0}

    def __init__(
        self,
        weights_per_layer: int | list[int] = 3,
        nes_samples: int = 8,
        sgd_samples: int = 8,
        nes_lr: float = 1e-2,
        min_probability: float = 1e-3,
        gradient_scale: GradientScale = "mean",
        credit: Credit = "joint",
        weight_price: float = 0.0,
        sampling: Sampling = "independent",
        initial_probs: list[list[list[float]]] | None = None,
        nes_batch: NesBatch = "own",
        critical_z: float = 0.0,
        search_restarts: int = 0,
        **options: Any,
    ) -> None:
        design = Design(
            "learned",
            lambda blueprint: LearnedScheme(
                blueprint,
                weights_per_layer,
                nes_samples,
                sgd_samples,
                nes_lr,
                min_probability,
                gradient_scale,
                credit,
                weight_price,
                sampling,
                initial_probs,
                nes_batch,
                critical_z,
                search_restarts,
            ),
        )
        super().__init__(design, **options)


def _restart_steps(restarts: int, steps: float) -> frozenset[int]:
    if not restarts:
        return frozenset()
    if steps == float("inf"):
        raise ValueError("search_restarts needs a run with an end: set trainer.max_steps or max_epochs.")
    return frozenset(round(_RESTARTED_PART * steps * number / restarts) for number in range(1, restarts + 1)) - {0}


def _scale_gradients(module: torch.nn.Module, factor: float) -> None:
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
