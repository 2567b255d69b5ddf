"""The search distribution over assignments and its natural gradient."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from lws_lightning.search.evidence import Evidence, null_variance

__all__ = ["Sampling", "SearchDistribution"]

Sampling = Literal["independent", "systematic"]
"""How a population is drawn: see `SearchDistribution.sample`."""


class SearchDistribution(nn.Module):
    r"""Independent categorical distributions, one for each layer and task (paper, section "Natural Gradient").

    The probabilities of a categorical are its expectation parameters, so the natural gradient of the log-probability
    has the closed form :math:`T(a) - \pi`, with the one-hot sufficient statistic :math:`T(a)`. The paper drops the
    last, redundant probability of each categorical. Keeping all K gives the same update, because the last component of
    the gradient is minus the sum of the others.

    `probs` is a buffer, saved in every checkpoint, and only this class writes it. It stays on the CPU in at least
    float32, whatever the device and precision of the networks: sampling and planning run on the host, and rows in
    bfloat16 would not sum to 1.

    Args:
        weights_per_layer: K_l, the number of copies, for each of L layers.
        num_tasks: T.
        min_probability: Floor under every probability after an update (the paper's 0.1 %), so that no copy is ruled
            out. Entries are clamped and then renormalised, so one may end just below the floor, as in the paper. 0: no
            floor.
        initial_probs: Prior knowledge, `(L, T, max K)` nested list or tensor; row (l, t) sums to 1 over the first
            K_l entries and the rest is 0. None (the paper's choice) starts from the uniform distribution.
        dtype: float32 or float64.
        critical_z: A categorical moves only once its gradients since its last step add up to more than this many
            standard deviations of pure chance (see `Evidence`). 0 (the paper's): with every update.

    Attributes:
        probs: `(L, T, max K)`. `probs[l, t]` sums to 1; entries beyond K_l are exact zeros.
        initial: The first `probs`, where `restart` begins again; not saved.
        evidence: The gradients held back; None without `critical_z`.

    Raises:
        ValueError: If a size is not positive, the floor does not leave room for K probabilities, or
            `initial_probs` is not a distribution of the right shape.
    """

    probs: Tensor
    valid: Tensor
    initial: Tensor

    def __init__(
        self,
        weights_per_layer: Sequence[int],
        num_tasks: int,
        min_probability: float = 1e-3,
        initial_probs: Sequence[Sequence[Sequence[float]]] | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        critical_z: float = 0.0,
    ) -> None:
        super().__init__()
        _check_sizes(weights_per_layer, num_tasks, min_probability)
        self.weights_per_layer = tuple(weights_per_layer)
        self.num_tasks = num_tasks
        self.min_probability = min_probability
        sizes = torch.tensor(self.weights_per_layer)
        valid = torch.arange(int(sizes.max())) < sizes[:, None, None]
        if initial_probs is None:
            probs = (valid.double() / sizes[:, None, None]).repeat(1, num_tasks, 1)
        else:
            probs = _checked_probs(initial_probs, valid, num_tasks)
        self.register_buffer("valid", valid, persistent=False)
        self.register_buffer("probs", probs.to(dtype))
        self.register_buffer("initial", self.probs.clone(), persistent=False)
        shape = (self.num_layers, num_tasks, valid.shape[-1])
        self.evidence = Evidence(shape, critical_z) if critical_z > 0 else None

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.weights_per_layer)

    def sample(
        self,
        population_size: int,
        generator: torch.Generator,
        sampling: Sampling = "independent",
    ) -> Tensor:
        """Draws a population of assignments.

        Args:
            population_size: S.
            generator: CPU generator. The result depends only on it, `probs` and `sampling`.
            sampling: `independent`: independent draws (the paper's). `systematic`: systematic sampling. For each layer
                and task, the S draws are spaced 1 / S apart in the cumulative distribution, from a random start and in
                random order, so that the number of times a copy is drawn differs from S times its probability by less
                than one. The distribution of each single assignment is unchanged.

        Returns:
            `(S, L, T)` int64, entry (s, l, t) in `[0, K_l)`.
        """
        shape = (population_size, self.num_layers, self.num_tasks, 1)
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        if sampling == "systematic":
            order = torch.rand(shape, generator=generator, dtype=torch.float64).argsort(0)
            uniform = (order + uniform[:1]) / population_size
        thresholds = self.probs.double().cumsum(-1)
        # Rounding may leave the last threshold below 1; draws above it take the last copy with a positive probability.
        last = self.probs.shape[-1] - 1 - (self.probs > 0).flip(-1).to(torch.uint8).argmax(-1)
        return (uniform >= thresholds).sum(-1).minimum(last)

    def mode(self) -> Tensor:
        """Returns the most likely assignment, `(L, T)` int64 (paper, section "Inference"); the first copy wins ties."""
        return self.probs.argmax(-1)

    def entropy(self) -> Tensor:
        """Returns the entropy of each categorical in nats, `(L, T)`, in [0, log K_l]."""
        return torch.special.entr(self.probs).sum(-1)  # type: ignore[no-any-return]

    def normalized_entropy(self) -> Tensor:
        """Returns the entropy of each categorical divided by log K_l, `(L, T)`, in [0, 1]; 0 where K_l = 1."""
        largest = torch.tensor(self.weights_per_layer, dtype=self.probs.dtype).log()[:, None]
        return torch.where(largest > 0, self.entropy() / largest, 0.0)

    def log_prob(self, population: Tensor) -> Tensor:
        """Returns the log-probability of each assignment.

        Args:
            population: `(S, L, T)` int64.

        Returns:
            `(S,)`, -inf for impossible assignments.
        """
        probs = self.probs.expand(len(population), -1, -1, -1)
        return probs.gather(-1, population.unsqueeze(-1)).log().sum((1, 2, 3))

    def natural_gradient(self, population: Tensor, utilities: Tensor) -> Tensor:
        r"""Estimates the natural gradient of the expected utility (paper, equation for the search gradient).

        .. math:: \frac{1}{S} \sum_s u_s (\mathrm{onehot}(a_s) - \pi)

        Args:
            population: `(S, L, T)` int64, drawn from this distribution.
            utilities: `(S,)`, one for each assignment, or `(S, T)`, one for each assignment and task.

        Returns:
            `(L, T, max K)`; sums to 0 over the copies, 0 in the padding.

        Raises:
            ValueError: If the shapes do not match.
        """
        size, layers, tasks = population.shape
        expected = (self.num_layers, self.num_tasks)
        if (layers, tasks) != expected or utilities.shape not in ((size,), (size, tasks)):
            raise ValueError(
                f"A population of shape {tuple(population.shape)} with utilities of shape "
                f"{tuple(utilities.shape)} does not match a distribution over (L, T) = {expected}."
            )
        weights = utilities.to(self.probs.dtype).reshape(size, 1, -1, 1)
        one_hot = nn.functional.one_hot(population, self.probs.shape[-1]).to(self.probs.dtype)
        return (weights * (one_hot - self.probs)).mean(0)

    @torch.no_grad()
    def update(self, population: Tensor, utilities: Tensor, learning_rate: float) -> None:
        """Takes one NES step (Algorithm 1, StepNES): ascends the natural gradient, clamps and renormalises.

        Args:
            population: `(S, L, T)` int64, drawn from this distribution.
            utilities: `(S,)` or `(S, T)` in [-1, 1].
            learning_rate: The paper's eta_pi.
        """
        gradient = self.natural_gradient(population, utilities)
        if self.evidence is not None:
            per_task = utilities.dim() == 2
            gradient = self.evidence.release(gradient, null_variance(population, gradient.shape[-1], per_task))
            gradient = gradient.to(self.probs.dtype)
        stepped = self.probs + learning_rate * gradient
        floored = stepped.clamp(min=self.min_probability).where(self.valid, 0.0)
        moved = floored / floored.sum(-1, keepdim=True)
        if self.evidence is not None:  # rounding and the floor do not move a categorical, either
            moved = moved.where((gradient != 0).any(-1, keepdim=True), self.probs)
        self.probs.copy_(moved)

    @torch.no_grad()
    def restart(self) -> None:
        """Begins again from the first probabilities, without evidence."""
        self.probs.copy_(self.initial)
        if self.evidence is not None:
            self.evidence.clear()

    def snapshot(self) -> dict[str, Tensor]:
        """Returns a copy of the state, for `restore`."""
        return {name: value.clone() for name, value in self.state_dict().items()}

    @torch.no_grad()
    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        """Restores an earlier state after a failed step."""
        self.load_state_dict(snapshot)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SearchDistribution":
        """Applies casts to float64, and no other cast or move."""
        if fn(torch.empty(0, dtype=self.probs.dtype)).dtype == torch.float64:
            self.probs, self.initial = self.probs.double(), self.initial.double()
        return self


def _check_sizes(weights_per_layer: Sequence[int], num_tasks: int, min_probability: float) -> None:
    if not weights_per_layer or min(weights_per_layer) < 1:
        raise ValueError(f"weights_per_layer must be positive for each layer, but is {list(weights_per_layer)}.")
    if num_tasks < 1:
        raise ValueError(f"There must be at least one task, but num_tasks is {num_tasks}.")
    largest = max(weights_per_layer)
    if not min_probability >= 0 or min_probability * largest >= 1:
        raise ValueError(
            f"min_probability {min_probability} cannot hold for weights_per_layer {largest}: {largest} "
            f"probabilities of at least {min_probability} would sum to more than 1. Choose min_probability in "
            f"[0, {1 / largest:.4g}) or fewer copies."
        )


def _checked_probs(initial: Sequence[Sequence[Sequence[float]]] | Tensor, valid: Tensor, num_tasks: int) -> Tensor:
    try:
        probs = torch.as_tensor(initial, dtype=torch.float64).cpu()
    except (TypeError, ValueError) as error:
        raise ValueError(f"initial_probs is not a rectangular (L, T, max K) array: {error}") from error
    shape = (valid.shape[0], num_tasks, valid.shape[-1])
    if probs.shape != shape:
        raise ValueError(f"initial_probs must have the shape (L, T, max K) = {shape}, not {tuple(probs.shape)}.")
    sums_to_one = torch.allclose(probs.sum(-1), torch.ones(shape[:2], dtype=torch.float64), atol=1e-4)
    if not sums_to_one or bool((probs < 0).any()) or bool((probs * ~valid).any()):
        raise ValueError(
            "initial_probs must be non-negative, sum to 1 over the copies of each layer and task, and be 0 beyond "
            "weights_per_layer."
        )
    return probs / probs.sum(-1, keepdim=True)
