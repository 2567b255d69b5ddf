"""A linear head for each task on a frozen network: what learned sharing over a trunk has to beat."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lws_lightning.batches import StepBatch
from lws_lightning.methods.base import MultiTaskMethod
from lws_lightning.methods.fixed import FixedScheme
from lws_lightning.methods.prefix import frozen_prefix_of
from lws_lightning.methods.scheme import Design
from lws_lightning.randomness import generator_for
from lws_lightning.training import choose_penalty, fit_linear

__all__ = ["LinearProbe"]

_PENALTIES = tuple(10 ** (exponent / 2) for exponent in range(-10, 3))
_CHUNK = 256


class LinearProbe(MultiTaskMethod):
    """Fits one linear layer for each task on the features of a frozen network, in a single step.

    All layers are frozen. A head's L2 penalty is the one with the lowest cross-entropy on a fifth of the task's
    training images, with a head fitted on the others; then the head is fitted on all of them. It is a convex problem,
    solved by L-BFGS in float64, not by training steps: the first step fits all heads and ends the run, whatever
    `trainer.max_steps`. Features are centred, and scaled so that their mean square is 1; the penalty refers to them.
    Augmented views (`augmentation_views`) are further training images; augmentation without views has no effect.

    Args:
        penalties: Candidates: factors of half the squared norm of a head's weights, relative to the mean cross-entropy.
            None: from 1e-5 to 10 in steps of a factor of the root of 10.
        **options: See `MultiTaskMethod`; those of training have no effect.

    Raises:
        ValueError: If a penalty is not positive.
    """

    start_options = MultiTaskMethod.start_options | {"penalties"}

    penalty_of_task: Tensor

    def __init__(self, penalties: list[float] | None = None, **options: Any) -> None:
        candidates = list(_PENALTIES if penalties is None else penalties)
        if not candidates or not all(0 < penalty < float("inf") for penalty in candidates):
            raise ValueError(f"penalties must be positive numbers, at least one, but are {penalties}.")
        super().__init__(Design("probe", lambda blueprint: FixedScheme(blueprint.all_frozen(), "full")), **options)
        self._penalties = candidates
        self.register_buffer("penalty_of_task", torch.zeros(len(self.task_names)))
        for head in self.network.heads:
            head.requires_grad_(False)
            _linear_of(head).requires_grad_(True)

    def details(self) -> dict[str, Any]:
        """Adds each task's penalty; None before the fit."""
        penalties = [penalty or None for penalty in self.penalty_of_task.tolist()]  # 0: not fitted
        return super().details() | {"linear_probe": dict(zip(self.task_names, penalties, strict=True))}

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Fits all heads in the first step, and ends the run."""
        if self.global_step == 0:
            fitted = [self._fit(task, *examples) for task, examples in enumerate(self._features())]
            with torch.no_grad():
                for task, (solution, penalty) in enumerate(fitted):
                    linear = _linear_of(self.network.heads[task])
                    linear.weight.copy_(solution[:, :-1])
                    linear.bias.copy_(solution[:, -1])
                    self.penalty_of_task[task] = penalty
        self.update.skip()
        if self.average is not None:
            self.average.load_state_dict(self.network.state_dict())
        self.trainer.should_stop = True

    def _features(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields what each task's linear layer sees of the training images, `(N, F)` float64, and their labels."""
        data: Any = getattr(self.trainer, "datamodule", None)
        if not hasattr(data, "training_inputs"):
            raise ValueError(
                "LinearProbe needs all training images at once, from a lws_lightning.MultiTaskDataModule; pass "
                "datamodule=... to the Trainer."
            )
        tasks, layer = data.training_inputs()
        prefix = frozen_prefix_of(self, data, "memory")
        assert prefix is not None
        for task, (images, labels) in enumerate(tasks):
            chunks = []
            for start in range(0, len(images), _CHUNK):
                part = images[start : start + _CHUNK]
                if not isinstance(part, Tensor):
                    part = part.read()
                chunks.append(self._before_linear(part if layer else prefix.compute(part), task))
            yield torch.cat(chunks), labels.repeat(len(images) // len(labels))

    @torch.no_grad()
    def _before_linear(self, features: Tensor, task: int) -> Tensor:
        head = self.network.heads[task]
        seen: list[Tensor] = []
        handle = _linear_of(head).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        mode = head.training
        try:
            head.eval()(features.to(self.device, self.network.dtype))
        finally:
            handle.remove()
            head.train(mode)
        return seen[0].cpu().double()

    def _fit(self, task: int, features: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        """Returns a head's `(C, F + 1)` weights and bias, and its penalty."""
        mean = features.mean(0)
        centred = features - mean
        scale = centred.square().mean().sqrt().clamp(min=1e-12)
        # The minimum lies in the span of the features: with fewer images than features, that is a smaller problem.
        basis = torch.linalg.svd(centred, full_matrices=False).Vh if len(features) < features.shape[1] else None
        reduced = centred if basis is None else centred @ basis.T
        problem = (reduced / scale, labels, self.num_classes[task])
        penalty = choose_penalty(*problem, self._penalties, generator_for(self.seed, "held out", task))
        solution = fit_linear(*problem, penalty)
        weights = (solution[:, :-1] if basis is None else solution[:, :-1] @ basis) / scale
        return torch.cat([weights, (solution[:, -1] - weights @ mean).unsqueeze(1)], 1), penalty


def _linear_of(head: nn.Module) -> nn.Linear:
    """Returns the last linear layer of a head."""
    linear = [part for part in head.modules() if isinstance(part, nn.Linear)]
    if not linear or linear[-1].bias is None:
        raise ValueError(f"LinearProbe needs a head that ends with nn.Linear and has a bias, but has {head}.")
    return linear[-1]
