"""Learned Weight Sharing: a natural evolution strategy finds the assignment while Adam trains the weights."""

from typing import Any, Literal, get_args

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from lws_lightning.batches import StepBatch, TaskBatch
from lws_lightning.methods.checks import check_populations
from lws_lightning.methods.searched import SearchedMethod
from lws_lightning.randomness import generator_for
from lws_lightning.search import (
    Sampling,
    SearchDistribution,
    drift_half_life,
    marginal_parameters,
    rank_utilities,
    shared_parameters,
)
from lws_lightning.sharing import MultiTaskNetwork

__all__ = ["Credit", "GradientScale", "LearnedWeightSharing"]

Credit = Literal["joint", "per_task"]
"""Which losses move a task's part of the search distribution: see `LearnedWeightSharing`."""

GradientScale = Literal["mean", "expected_use"]
"""How gradients of the weights are scaled: see `LearnedWeightSharing`."""


class LearnedWeightSharing(SearchedMethod):
    """Learned Weight Sharing (paper, Algorithm 1).

    Each training step draws a population of assignments from the search distribution pi, evaluates it on one batch in
    eval mode, and moves pi along the natural gradient of the rank-shaped utility; then it draws another population and
    takes one Adam step on the mean gradient over it on another batch. Inference uses the most likely assignment.

    Args:
        weights_per_layer: K, one number for all learned layers or one for each.
        nes_samples: Assignments that an update of pi is estimated from (the paper's lambda_pi), at least 2.
        sgd_samples: Assignments that a gradient of the weights is averaged over (the paper's lambda_theta).
        nes_lr: Step size of pi (the paper's eta_pi).
        min_probability: Floor under pi's entries (the paper's 0.1 %).
        gradient_scale: `mean`: the gradient of the mean loss over assignments and tasks (the paper's). `expected_use`:
            as in the authors' program, a learned copy's gradient of the loss summed over assignments and tasks is
            divided by its expected use `sgd_samples * sum_t pi[t, copy]`, a common layer's by `sgd_samples * T` and a
            head's by `sgd_samples`. Adam makes the two nearly alike.
        credit: `joint`: a population is ranked by the mean loss over the tasks, and all tasks get the same utilities
            (the paper's). `per_task`: each task's losses are ranked among themselves and move that task's categoricals
            alone. A task's loss depends on its own part of an assignment only, so with many tasks the joint ranks are
            mostly the noise of the others (docs/algorithm.md). `loss_weights` weigh the joint mean; in `per_task`,
            where every task is ranked by itself, they matter only beside a `weight_price`.
        weight_price: What one more copy of all learned layers may cost, in nats of one task's loss; 0: nothing (the
            paper's). The parameters that an assignment uses are added to the losses before they are ranked, with
            `per_task` those that a task's choices add to the other tasks' (docs/algorithm.md, "A price on weights").
        sampling: How populations are drawn: `independent` (the paper's), or `systematic`, so that each of them holds a
            task's choices as often as pi says; less of the NES gradient is then left to chance.
        freeze_entropy: pi stays as it is from when its mean normalised entropy is below this, and then the weights are
            trained under the most likely assignment alone, in one pass a task. 0: never (the paper's).
        initial_probs: Prior knowledge, `(L, T, max K)` nested list (see `SearchDistribution`); None: uniform.
        **options: See `MultiTaskMethod`.
    """

    method_name = "learned"
    start_options = SearchedMethod.start_options | {"initial_probs"}
    distribution: SearchDistribution
    network: MultiTaskNetwork

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
        freeze_entropy: float = 0.0,
        initial_probs: list[list[list[float]]] | None = None,
        **options: Any,
    ) -> None:
        check_populations(nes_samples, sgd_samples, nes_lr, sampling)
        if credit not in get_args(Credit):
            raise ValueError(f"credit must be joint or per_task, but is {credit!r}.")
        if not 0 <= weight_price < float("inf"):
            raise ValueError(f"weight_price must be a finite number of nats, not negative, but is {weight_price}.")
        if not 0 <= freeze_entropy < 1:
            raise ValueError(f"freeze_entropy must be in [0, 1), but is {freeze_entropy}.")
        self._requested_weights = weights_per_layer
        super().__init__(**options)
        self.weight_price = weight_price
        self.nes_samples, self.sgd_samples, self.nes_lr = nes_samples, sgd_samples, nes_lr
        self.gradient_scale, self.credit = gradient_scale, credit
        self.sampling: Sampling = sampling
        self.freeze_entropy = freeze_entropy
        self.distribution = SearchDistribution(
            self.weights_per_layer, len(self.task_names), min_probability, initial_probs
        )

    def on_train_start(self) -> None:
        """Says if `nes_lr` is so large that pi settles within the run whatever the losses are."""
        super().on_train_start()
        steps, half_life = (
            self.trainer.estimated_stepping_batches,
            drift_half_life(self.nes_samples, self.nes_lr, self.sampling),
        )
        if half_life < steps < float("inf"):
            rank_zero_info(
                f"With nes_lr {self.nes_lr:g} and nes_samples {self.nes_samples} chance alone settles pi halfway in "
                f"about {half_life:,.0f} steps, and this run has {steps:,.0f}. A smaller nes_lr leaves more to losses."
            )

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Does one NES step on one batch and one Adam step on the other."""
        if self.frozen:
            super().training_step(batch, batch_idx)
            return
        before = self.distribution.probs.clone()
        try:
            nes_losses = self.update_distribution(batch.nes)
            losses = self.compute_gradients(batch.sgd, self._sample(self.sgd_samples, "sgd"))
        except BaseException:
            self.distribution.restore(before)
            raise
        self.apply_gradients()
        per_assignment = nes_losses.mean(1)
        self.log_now({"train/loss": losses.mean()}, prog_bar=True)
        self.log_now({"nes/loss_mean": per_assignment.mean(), "nes/loss_best": per_assignment.min()})

    @property
    def frozen(self) -> bool:
        """Whether pi stays as it is from now on; nothing but pi says so, and then nothing changes that any more."""
        return self.freeze_entropy > 0 and bool(self.distribution.normalized_entropy().mean() < self.freeze_entropy)

    def update_distribution(self, batch: TaskBatch) -> Tensor:
        """Does one NES step (Algorithm 1, StepNES), the networks in eval mode.

        Returns:
            Losses of the population, `(S, T)` on the CPU.
        """
        population = self._sample(self.nes_samples, "nes")
        with torch.no_grad(), self.network.evaluating():
            losses = self.ranks.total(self.population_losses(batch, population)).cpu()
        self.refuse_non_finite(losses, "NES")
        self.distribution.update(population, rank_utilities(self.ranked_losses(losses, population)), self.nes_lr)
        return losses

    def ranked_losses(self, losses: Tensor, population: Tensor) -> Tensor:
        """Returns what a population is ranked by, from losses `(S, T)`: `(S,)`, or `(S, T)` for per-task credit."""
        num_tasks = losses.shape[1]
        weighted = self.weigh(losses, range(num_tasks))
        if self.weight_price == 0:  # a weight would not change the order of a task's own losses
            return weighted.mean(1) if self.credit == "joint" else losses
        sizes = self.network.layer_parameters()
        price = self.weight_price / sum(sizes)
        if self.credit == "joint":
            return weighted.mean(1) + price / num_tasks * shared_parameters(population, sizes)
        return weighted + price * marginal_parameters(population, sizes)

    def rescale_gradients(self) -> None:
        """Scales gradients of the mean loss to those of the authors' program for `expected_use`."""
        if self.gradient_scale == "mean":
            return
        tasks = len(self.task_names)
        expected_users = self.distribution.probs.sum(1)  # (L, max K)
        for index, number, block in self.network.copies():
            if index is not None:
                use = float(expected_users[index, number])
                # A copy that is used so rarely is not drawn; divided by next to nothing, its zeros would be no numbers.
                _scale_gradients(block, tasks / use if use > 1e-12 else 0.0)
        for head in self.network.heads:
            _scale_gradients(head, tasks)

    def _sample(self, size: int, phase: str) -> Tensor:
        generator = generator_for(self.seed, "population", self.global_step, phase)
        return self.distribution.sample(size, generator, self.sampling)


def _scale_gradients(module: torch.nn.Module, factor: float) -> None:
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
