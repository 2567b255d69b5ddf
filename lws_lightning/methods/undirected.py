"""The control of learned sharing: training under changing shared weights while nothing directs which."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lws_lightning.batches import StepBatch
from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.checks import check_populations
from lws_lightning.methods.searched import weights_of_layers
from lws_lightning.networks import BaseNetwork
from lws_lightning.randomness import generator_for
from lws_lightning.search import Sampling, SearchDistribution, rank_utilities
from lws_lightning.sharing import MultiTaskNetwork

__all__ = ["Then", "UndirectedSharing"]

Then = Literal["none", "full", "random", "chance"]
"""Which assignment undirected training ends with: see `UndirectedSharing`."""


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

    method_name = "undirected"
    network: MultiTaskNetwork

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
        if then not in get_args(Then):
            raise ValueError(f"then must be one of {', '.join(get_args(Then))}, but is {then!r}.")
        if not 0 <= undirected_part <= 1:
            raise ValueError(f"undirected_part must be in [0, 1], a part of the run, but is {undirected_part}.")
        check_populations(nes_samples, sgd_samples, nes_lr, sampling)
        self._requested_weights = weights_per_layer
        super().__init__(**options)
        self.then, self.undirected_part = then, undirected_part
        self.sgd_samples, self.nes_samples, self.nes_lr = sgd_samples, nes_samples, nes_lr
        self.sampling: Sampling = sampling
        draws = SearchDistribution(self.weights_per_layer, len(self.task_names), min_probability)
        if then == "chance":
            self.distribution = draws
        self._uniform = draws if then != "chance" else None
        self._given = None if then == "chance" else self._given_assignment(then, draws)

    def choose_weights_per_layer(self, base: BaseNetwork) -> Sequence[int]:
        """Returns K_l as given."""
        return weights_of_layers(self._requested_weights, base)

    def _given_assignment(self, then: Then, draws: SearchDistribution) -> Tensor:
        layers, tasks = len(self.weights_per_layer), len(self.task_names)
        if then == "none" and min(self.weights_per_layer) < tasks:
            raise ValueError(
                f"then: none gives each of {tasks} tasks a copy of its own, but weights_per_layer is "
                f"{self.weights_per_layer}. Set model.weights_per_layer to at least {tasks}."
            )
        if then == "random":
            return draws.sample(1, generator_for(self.seed, "random sharing"))[0]
        return (torch.arange(tasks) * (then == "none")).repeat(layers, 1)

    @property
    def assignment(self) -> Tensor:
        """The given assignment, or with `chance` the most likely one, `(L, T)`."""
        if self._given is not None:
            return self._given
        assert self.distribution is not None
        return self.distribution.mode()

    @property
    def undirected_steps(self) -> float:
        """How many steps of the run draw assignments; infinite for `chance`."""
        if self._given is None:
            return float("inf")
        return round(self.undirected_part * self.trainer.estimated_stepping_batches)

    def on_train_start(self) -> None:
        """Refuses a run without an end, of which there is no part."""
        if self._given is not None and self.trainer.estimated_stepping_batches == float("inf"):
            raise ValueError("undirected_part needs a run with an end: set trainer.max_steps or max_epochs.")
        super().on_train_start()

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Takes one Adam step under drawn assignments, or later under the given one."""
        if self.global_step >= self.undirected_steps:
            super().training_step(batch, batch_idx)
            return
        draws = self._draws
        before = draws.probs.clone()
        try:
            if self._given is None:
                self._drift()
            losses = self.compute_gradients(batch.sgd, self._sample(self.sgd_samples, "sgd"))
        except BaseException:
            draws.restore(before)
            raise
        self.apply_gradients()
        self.log_now({"train/loss": losses.mean()}, prog_bar=True)

    def _drift(self) -> None:
        """Moves pi by utilities that have nothing to do with losses."""
        population = self._sample(self.nes_samples, "nes")
        ranks = torch.randperm(self.nes_samples, generator=generator_for(self.seed, "permutation", self.global_step))
        _, group = torch.unique(population.flatten(1), dim=0, return_inverse=True)
        equal = (group[:, None] == group).double()
        utilities = (equal / equal.sum(1, keepdim=True)) @ rank_utilities(ranks.double())
        self._draws.update(population, utilities, self.nes_lr)

    @property
    def _draws(self) -> SearchDistribution:
        draws = self._uniform if self.distribution is None else self.distribution
        assert draws is not None
        return draws

    def _sample(self, size: int, phase: str) -> Tensor:
        generator = generator_for(self.seed, "population", self.global_step, phase)
        return self._draws.sample(size, generator, self.sampling)
