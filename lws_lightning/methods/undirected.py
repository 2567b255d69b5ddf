"""The control of learned sharing: training under changing shared weights while nothing directs which."""

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
"""Which assignment undirected training ends with: see `UndirectedSharing`."""


class UndirectedScheme(Scheme):
    """Draws assignments without asking any loss, then trains under a given one.

    Args:
        blueprint: What the networks are made from.
        **options: See `UndirectedSharing`.
    """

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
            raise ValueError(f"undirected_part must be in [0, 1], a part of the run, but is {undirected_part}.")
        check_populations(nes_samples, sgd_samples, nes_lr, sampling)
        network = blueprint.network(weights_per_layer)
        draws = SearchDistribution(network.weights_per_layer, blueprint.num_tasks, min_probability)
        super().__init__(network, draws if then == "chance" else None)
        self.undirected_part = undirected_part
        self.sgd_samples, self.nes_samples, self.nes_lr = sgd_samples, nes_samples, nes_lr
        self.sampling: Sampling = sampling
        self.undirected_steps = float("inf")  # known once the run begins, and infinite for `chance`
        self._draws = draws
        self._given = None if then == "chance" else _given_assignment(then, draws, blueprint.seed)

    @property
    def assignment(self) -> Tensor:
        """The given assignment, or with `chance` the most likely one, `(L, T)`."""
        return self._draws.mode() if self._given is None else self._given

    def begin(self, steps: float) -> list[str]:
        """Works out how many steps draw assignments; refuses a run without an end, of which there is no part."""
        if self._given is not None:
            if steps == float("inf"):
                raise ValueError("undirected_part needs a run with an end: set trainer.max_steps or max_epochs.")
            self.undirected_steps = round(self.undirected_part * steps)
        return []

    def step(self, update: WeightUpdate, batch: StepBatch) -> dict[str, Tensor]:
        """Makes one Adam step under drawn assignments, or later under the given one."""
        if update.step >= self.undirected_steps:
            return super().step(update, batch)
        before = self._draws.probs.clone()
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
        """Moves pi by utilities that have nothing to do with losses."""
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
            f"then: none gives each of {tasks} tasks a copy of its own, but weights_per_layer is {sizes}. Set "
            f"model.weights_per_layer to at least {tasks}."
        )
    if then == "random":
        return draws.sample(1, generator_for(seed, "random sharing"))[0]
    return (torch.arange(tasks) * (then == "none")).repeat(len(sizes), 1)


class UndirectedSharing(MultiTaskMethod):
    """Trains as learned sharing does, but no loss has a say in which weights are shared. Not in the paper.

    Learned sharing does two things: it trains every copy by ever other tasks while pi is broad, and it chooses an
    assignment. This method does the first alone, so that a comparison shows what the second is worth.

    With `then` `none`, `full` or `random`, assignments are drawn uniformly for a part of the run, and then the weights
    are trained under the given assignment alone, with which evaluations are made throughout. With `chance`, pi moves in
    every step as in `LearnedWeightSharing`, by utilities that are permuted at random; equal assignments share theirs,
    as equal losses do there. Like there, the run ends with the most likely assignment. Losses are not computed for
    it, so there is no NES pass.

    Args:
        then: `none`: task t uses copy t. `full`: all tasks use the first copy. `random`: a copy drawn from the seed for
            each layer and task. `chance`: what pi drifts to.
        undirected_part: Which part of the run's steps is undirected, in [0, 1]; has no effect with `chance`.
        weights_per_layer: K, one number for all learned layers or one for each; with `none` at least T.
        sgd_samples: Assignments that a gradient of the weights is averaged over while they are drawn.
        nes_samples: Size of the populations that pi moves by with `chance`, at least 2.
        nes_lr: Step size of pi with `chance`.
        min_probability: Floor under pi's entries with `chance`.
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
