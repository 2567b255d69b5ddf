"""What distinguishes one method from another: how its networks share weights, and its training step."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lws_lightning.batches import StepBatch
from lws_lightning.networks import BaseNetwork, Initialization, make_layers_and_heads
from lws_lightning.search import SearchDistribution
from lws_lightning.sharing import Copies, MultiTaskNetwork, SharedLayer, TaskNetworks
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
        seed: The run's seed.
        initialization: How weights are initialised; None: the base network's default.
        perturb_copies: See `MultiTaskMethod`; so for the following.
        copies: What the copies of a learned layer are.
        copy_rank: Rank of the copies `adapter` and `lora`.
    """

    base: BaseNetwork
    task_names: Sequence[str]
    num_classes: Sequence[int]
    image_shape: tuple[int, ...]
    seed: int
    initialization: Initialization | None = None
    perturb_copies: float = 0.0
    copies: Copies = "weights"
    copy_rank: int = 8

    @property
    def num_tasks(self) -> int:
        """T."""
        return len(self.task_names)

    @property
    def layer_names(self) -> list[str]:
        """Names of the L learned layers."""
        return [layer.name for layer in self.base.learned_layers]

    def require_several_tasks(self) -> None:
        """Raises ValueError if there is only one task, with which nothing can be shared."""
        if self.num_tasks < 2:
            raise ValueError(
                f"{self.task_names[0]!r} is the only task, so there is nothing to share. Use FixedSharing with "
                "sharing: none (--model FixedSharing --model.sharing none), or give more tasks (data.tasks)."
            )

    def all_learned(self) -> "Blueprint":
        """Returns a blueprint in which all layers are learned, none common except frozen ones."""
        layers = [dataclasses.replace(layer, learned=layer.learned or not layer.frozen) for layer in self.base.layers]
        return dataclasses.replace(self, base=dataclasses.replace(self.base, layers=layers))

    def all_frozen(self) -> "Blueprint":
        """Returns a blueprint in which no layer is trained, and layers have no copies beside them."""
        layers = [dataclasses.replace(layer, frozen=True) for layer in self.base.layers]
        return dataclasses.replace(self, base=dataclasses.replace(self.base, layers=layers), copies="weights")

    def copies_per_layer(self, weights_per_layer: int | Sequence[int]) -> list[int]:
        """Returns K_l for each learned layer, given one number for all or one per layer."""
        if isinstance(weights_per_layer, int):
            return [weights_per_layer] * len(self.layer_names)
        return list(weights_per_layer)

    def layers_and_heads(self, weights_per_layer: Sequence[int]) -> tuple[list[SharedLayer], list[torch.nn.Module]]:
        """Makes all layers, with K_l copies of each learned one, and T heads."""
        return make_layers_and_heads(
            self.base,
            self.num_classes,
            weights_per_layer,
            self.seed,
            self.initialization,
            self.perturb_copies,
            self.copies,
            self.copy_rank,
        )

    def network(self, weights_per_layer: int | Sequence[int]) -> MultiTaskNetwork:
        """Makes a `MultiTaskNetwork` with K_l copies of each learned layer."""
        return MultiTaskNetwork(*self.layers_and_heads(self.copies_per_layer(weights_per_layer)))


class Scheme:
    """How the networks of the tasks share weights, and the training step.

    By default, a step trains the weights under `assignment`. A subclass passes the network and the distribution to this
    constructor, and overrides what differs. It is created with the blueprint of a method (see `Design`).

    Args:
        network: The networks of the T tasks.
        distribution: The search distribution; None: no search.

    Attributes:
        gate_lr_factor: Learning rate of the network's gates relative to that of the weights.
    """

    gate_lr_factor: float = 1.0

    def __init__(self, network: TaskNetworks, distribution: SearchDistribution | None = None) -> None:
        self.network = network
        self.distribution = distribution

    @property
    def assignment(self) -> Tensor:
        """The assignment for inference, `(L, T)` int64 on the CPU: the most likely one; without a search `(0, T)`."""
        no_layers = torch.empty(0, len(self.network.heads), dtype=torch.int64)
        return no_layers if self.distribution is None else self.distribution.mode()

    def begin(self, steps: float) -> list[str]:
        """Called at the start of training.

        Args:
            steps: Total steps of the run; infinite if it has no end.

        Returns:
            Messages for the user.

        Raises:
            ValueError: If the scheme cannot work in such a run.
        """
        return []

    def step(self, update: WeightUpdate, batch: StepBatch) -> dict[str, Tensor]:
        """Makes one training step: exactly one `update.apply()`.

        No checkpointed state may change before `apply`, or an exception must restore it.

        Args:
            update: Computes losses and gradients, and applies them.
            batch: The two batches.

        Returns:
            Scalars to log, by tag; `train/loss` is the mean loss.
        """
        losses = update.gradients(batch.sgd, self.assignment.unsqueeze(0))
        update.apply()
        return {"train/loss": losses.mean()}

    def unshared(self) -> MultiTaskNetwork:
        """Returns networks with separate weights for each task, in which `EarlyStopping` keeps the best weights.

        Raises:
            ValueError: If the assignment is not fixed, so that tasks cannot stop individually.
        """
        raise ValueError(f"{type(self).__name__} has no fixed assignment, so tasks cannot stop individually.")

    def penalty(self) -> Tensor | None:
        """Returns a scalar to minimise besides the objective, or None."""
        return None

    def details(self) -> dict[str, Any]:
        """Returns what a record stores about the sharing besides the assignment, as plain values."""
        return {}


@dataclasses.dataclass(frozen=True)
class Design:
    """The components of a method.

    Attributes:
        name: The method's name in records and reports.
        scheme: Makes the scheme from a blueprint.
        objective: Makes the objective from the number of tasks and their loss weights (see `Objective`).
        patience: Evaluations without a lower error after which a task stops (see `EarlyStopping`); requires a scheme
            with a fixed assignment. None: no early stopping.
        all_learned: Whether to treat layers that the base network calls common as learned, too.
    """

    name: str
    scheme: Callable[[Blueprint], Scheme]
    objective: Callable[[int, Tensor | None], Objective] = Objective
    patience: int | None = None
    all_learned: bool = False
