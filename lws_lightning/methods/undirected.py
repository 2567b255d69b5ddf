"""A control for learned sharing: training under changing assignments that no loss directs."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lws_lightning.batches import StepBatch
from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.checks import check_populations
from lws_lightning.methods.scheme import Blueprint, Design, Scheme
from lws_lightning.randomness import generator_for
from lws_lightning.search import Sampling, SearchDistribution, rank_utilities
from lws_lightning.training import WeightUpdate

__all__ = ["Then", "UndirectedScheme", "UndirectedSharing"]

Then = Literal["none", "full", "random", "chance"]
"""The final assignment of undirected training: see `UndirectedSharing`."""


class UndirectedScheme(Scheme):
    """Draws assignments independently of losses, then trains under a given one; see `UndirectedSharing`."""

    def __init__(
        self,
        blueprint: Blueprint,
        then: Then,
        undirected_part: float,
        weights_per_layer: int | list[int],
        sgd_samples: int,
        nes_samples: int,
        nes_lr: float,
        min_probability: float,
        sampling: Sampling,
    ) -> None:
        if then not in get_args(Then):
            raise ValueError(f"then must be one of {', '.join(get_args(Then))}, but is {then!r}.")
        if not 0 <= undirected_part <= 1:
            raise ValueError(f"undirected_part must be in [0, 1], a fraction of the run, but is {undirected_part}.")
        check_populations(nes_samples, sgd_samples, nes_lr, sampling)
        blueprint.require_several_tasks()
        network = blueprint.network(weights_per_layer)
        draws = SearchDistribution(network.weights_per_layer, blueprint.num_tasks, min_probability)
        super().__init__(network, draws if then == "chance" else None)
        self.undirected_part = undirected_part
        self.sgd_samples, self.nes_samples, self.nes_lr = sgd_samples, nes_samples, nes_lr
        self.sampling: Sampling = sampling
        self.undirected_steps = float("inf")  # set by `begin`; infinite for `chance`
        self._draws = draws
        self._given = None if then == "chance" else _given_assignment(then, draws, blueprint.seed)

    @property
    def assignment(self) -> Tensor:
        """The given assignment, or with `chance` the most likely one, `(L, T)`."""
        return self._draws.mode() if self._given is None else self._given

    def begin(self, steps: float) -> list[str]:
        """Computes the number of undirected steps; refuses a run without an end."""
        if self._given is not None:
            if steps == float("inf"):
                raise ValueError("undirected_part needs a run with an end: set trainer.max_steps or max_epochs.")
            self.undirected_steps = round(self.undirected_part * steps)
        return []

    def step(self, update: WeightUpdate, batch: StepBatch) -> dict[str, Tensor]:
        """Makes one Adam step, first under drawn assignments and later under the given one."""
        if update.step >= self.undirected_steps:
            return super().step(update, batch)
        before = self._draws.snapshot()
        try:
            if self._given is None:
                self._drift(update)
            losses = update.gradients(batch.sgd, self._sample(self.sgd_samples, update, "sgd"))
        except BaseException:
            self._draws.restore(before)
            raise
        update.apply()
        return {"train/loss": losses.mean()}

    def _drift(self, update: WeightUpdate) -> None:
        """Updates pi with utilities that do not depend on losses."""
        population = self._sample(self.nes_samples, update, "nes")
        ranks = torch.randperm(self.nes_samples, generator=generator_for(update.seed, "permutation", update.step))
        _, group = torch.unique(population.flatten(1), dim=0, return_inverse=True)
        equal = (group[:, None] == group).double()
        utilities = (equal / equal.sum(1, keepdim=True)) @ rank_utilities(ranks.double())
        self._draws.update(population, utilities, self.nes_lr)

    def _sample(self, size: int, update: WeightUpdate, phase: str) -> Tensor:
        generator = generator_for(update.seed, "population", update.step, phase)
        return self._draws.sample(size, generator, self.sampling)


def _given_assignment(then: Then, draws: SearchDistribution, seed: int) -> Tensor:
    sizes, tasks = list(draws.weights_per_layer), draws.num_tasks
    if then == "none" and min(sizes) < tasks:
        raise ValueError(
            f"then: none gives each of {tasks} tasks its own copy, but weights_per_layer is {sizes}. Set "
            f"model.weights_per_layer to at least {tasks}."
        )
    if then == "random":
        return draws.sample(1, generator_for(seed, "random sharing"))[0]
    return (torch.arange(tasks) * (then == "none")).repeat(len(sizes), 1)


class UndirectedSharing(MultiTaskMethod):
    """Trains like learned sharing, but independently of losses in what is shared. Not in the paper.

    Learned sharing does two things: while pi is broad it trains every copy with changing tasks, and it chooses an
    assignment. This method does only the first, so that a comparison shows the value of the second.

    With `then` set to `none`, `full` or `random`, assignments are drawn uniformly for a fraction of the run; after
    that, the weights are trained only under the given assignment, which evaluations use throughout. With `chance`, pi
    is updated in every step as in `LearnedWeightSharing`, but with randomly permuted utilities, which equal assignments
    share, as equal losses do there. The run ends with the most likely assignment. There is no NES pass, because no
    losses are needed.

    Args:
        then: `none`: task t uses copy t. `full`: all tasks use the first copy. `random`: a copy drawn for each layer
            and task, by the seed. `chance`: the assignment that pi drifts to.
        undirected_part: Fraction of the run's steps that is undirected, in [0, 1]; no effect with `chance`.
        weights_per_layer: K, one number for all learned layers or one per layer; with `none` at least T.
        sgd_samples: Population size of an update of the weights in undirected steps.
        nes_samples: Population size of an update of pi with `chance`, at least 2.
        nes_lr: Step size of pi with `chance`.
        min_probability: Floor under the entries of pi with `chance`.
        sampling: `independent` or `systematic`, see `LearnedWeightSharing`.
        **options: See `MultiTaskMethod`.

    Raises:
        ValueError: If an option is out of range, or `none` has too few copies.
    """

    def __init__(
        self,
        then: Then,
        undirected_part: float = 2 / 3,
        weights_per_layer: int | list[int] = 3,
        sgd_samples: int = 8,
        nes_samples: int = 8,
        nes_lr: float = 1e-2,
        min_probability: float = 1e-3,
        sampling: Sampling = "independent",
        **options: Any,
    ) -> None:
        design = Design(
            "undirected",
            lambda blueprint: UndirectedScheme(
                blueprint,
                then,
                undirected_part,
                weights_per_layer,
                sgd_samples,
                nes_samples,
                nes_lr,
                min_probability,
                sampling,
            ),
        )
        super().__init__(design, **options)
