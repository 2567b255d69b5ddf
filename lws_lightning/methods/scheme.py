"""What distinguishes one method from another: how its networks share, and what a training step does with them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lws_lightning.batches import StepBatch
from lws_lightning.networks import BaseNetwork, Initialization, make_layers_and_heads
from lws_lightning.search import SearchDistribution
from lws_lightning.sharing import MultiTaskNetwork, SharedLayer, TaskNetworks
from lws_lightning.training import Objective, WeightUpdate

__all__ = ["Blueprint", "Design", "Scheme"]


@dataclasses.dataclass(frozen=True)
class Blueprint:
    """What a scheme makes the networks from.

    Attributes:
        base: The base architecture.
        task_names: Names of the T tasks.
        num_classes: Classes of each task.
        image_shape: `(C, H, W)`.
        seed: The run's.
        initialization: How weights are drawn; None: as the base says.
        perturb_copies: See `MultiTaskMethod`.
    """

    base: BaseNetwork
    task_names: Sequence[str]
    num_classes: Sequence[int]
    image_shape: tuple[int, ...]
    seed: int
    initialization: Initialization | None = None
    perturb_copies: float = 0.0

    @property
    def num_tasks(self) -> int:
        """T."""
        return len(self.task_names)

    @property
    def layer_names(self) -> list[str]:
        """Names of the L learned layers."""
        return [layer.name for layer in self.base.learned_layers]

    def all_learned(self) -> "Blueprint":
        """Returns one in which no layer is common to all tasks."""
        layers = [dataclasses.replace(layer, learned=True) for layer in self.base.layers]
        return dataclasses.replace(self, base=dataclasses.replace(self.base, layers=layers))

    def copies_per_layer(self, weights_per_layer: int | Sequence[int]) -> list[int]:
        """Returns K_l for each learned layer from one number for all or one for each."""
        if isinstance(weights_per_layer, int):
            return [weights_per_layer] * len(self.layer_names)
        return list(weights_per_layer)

    def layers_and_heads(self, weights_per_layer: Sequence[int]) -> tuple[list[SharedLayer], list[torch.nn.Module]]:
        """Makes the layers with K_l copies of each learned one, and T heads."""
        return make_layers_and_heads(
            self.base, self.num_classes, weights_per_layer, self.seed, self.initialization, self.perturb_copies
        )

    def network(self, weights_per_layer: int | Sequence[int]) -> MultiTaskNetwork:
        """Makes networks that assignments choose among, with K_l copies of each learned layer."""
        return MultiTaskNetwork(*self.layers_and_heads(self.copies_per_layer(weights_per_layer)))


class Scheme:
    """How the networks of the tasks share weights, and what a training step does.

    As it is, a step trains the weights under `assignment`. A subclass gives the constructor's arguments, and changes
    what differs. It is called with the blueprint when a method is made (see `Design`).

    Args:
        network: The networks of the T tasks.
        distribution: Which assignments are searched; None: nothing is.

    Attributes:
        network, distribution: As given.
        gate_lr_factor: The learning rate of the network's gates is this times that of the weights.
    """

    gate_lr_factor: float = 1.0

    def __init__(self, network: TaskNetworks, distribution: SearchDistribution | None = None) -> None:
        self.network = network
        self.distribution = distribution

    @property
    def assignment(self) -> Tensor | None:
        """The assignment for inference, `(L, T)` int64 on the CPU: the most likely one; None if there is none."""
        return None if self.distribution is None else self.distribution.mode()

    def begin(self, steps: float) -> list[str]:
        """Called at the start of training.

        Args:
            steps: How many steps the run will have in all; infinite where it has no end.

        Returns:
            Sentences that the user should read.

        Raises:
            ValueError: If the scheme cannot work in such a run.
        """
        return []

    def step(self, update: WeightUpdate, batch: StepBatch) -> dict[str, Tensor]:
        """Makes one training step: exactly one `update.apply()`.

        Until `apply`, nothing that a checkpoint holds may have changed, or an exception must put it back.

        Args:
            update: Computes losses and gradients, and makes the step.
            batch: The two batches.

        Returns:
            What is logged, scalars by tag; `train/loss` is the mean loss.
        """
        assignment = self.assignment
        losses = update.gradients(batch.sgd, None if assignment is None else assignment.unsqueeze(0))
        update.apply()
        return {"train/loss": losses.mean()}

    def unshared(self) -> MultiTaskNetwork:
        """Returns networks with weights of its own for each task, in which `EarlyStopping` keeps the best ones.

        Raises:
            ValueError: If tasks cannot stop one by one, because the assignment is not fixed.
        """
        raise ValueError(f"{type(self).__name__} has no fixed assignment under which tasks could stop one by one.")

    def penalty(self) -> Tensor | None:
        """Returns what is minimised besides the objective, a scalar, or None."""
        return None

    def details(self) -> dict[str, Any]:
        """Returns what a record should say of the sharing beyond the assignment, as plain values."""
        return {}


@dataclasses.dataclass(frozen=True)
class Design:
    """What a method is made of.

    Attributes:
        name: What the record and the report call it.
        scheme: Makes the scheme from a blueprint.
        objective: Makes the objective from the number of tasks and their loss weights (see `Objective`).
        patience: Evaluations without a lower error after which a task stops (see `EarlyStopping`), for schemes with a
            fixed assignment; None: all tasks train throughout.
        all_learned: Whether layers that the base network calls common may be shared or not like the others.
    """

    name: str
    scheme: Callable[[Blueprint], Scheme]
    objective: Callable[[int, Tensor | None], Objective] = Objective
    patience: int | None = None
    all_learned: bool = False
