"""The interface of all tasks' networks, whatever their kind of sharing."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from lws_lightning.sharing.batch_norm import RunningStats, TaskBatchNorm, convert_batch_norms, norms_of
from lws_lightning.sharing.layers import SharedLayer
from lws_lightning.sharing.memory import channels_last
from lws_lightning.sharing.nodes import SeedFunction, modules_of
from lws_lightning.sharing.passes import PopulationPass
from lws_lightning.sharing.random_layers import convert_random_layers

__all__ = ["TaskNetworks", "split_tasks"]


class TaskNetworks(nn.Module, ABC):
    """The networks of T tasks, with a head for each.

    `forward(images (T', B, ...), population, population_pass=None)` runs one batch of each task and returns each task's
    logits, `(S, B, classes_t)`. Where tasks mix activations instead of choosing copies there is nothing to assign:
    assignments are `(0, T)`, and S is 1.

    Args:
        modules: The networks' modules besides the heads, by name.
        heads: T output layers.
    """

    def __init__(self, modules: dict[str, nn.Module], heads: Sequence[nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.heads = nn.ModuleList(convert_random_layers(convert_batch_norms(head)) for head in heads)
        self._seed_function: SeedFunction | None = None
        for parameter in self.parameters():
            parameter.data = channels_last(parameter.data)

    @property
    @abstractmethod
    def weights_per_layer(self) -> list[int]:
        """The number of blocks of each of L learned layers."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, which images must have."""
        return next(self.parameters()).dtype

    @abstractmethod
    def forward_task(self, images: Tensor, assignment: Tensor, task: int) -> Tensor:
        """Runs one task's own network.

        Args:
            images: `(N, ...)` floating point.
            assignment: `(L, T)` int64.
            task: Which task's network, in `[0, T)`.

        Returns:
            `(N, classes)` logits.
        """

    @abstractmethod
    def task_modules(self, assignment: Tensor, task: int) -> Sequence[nn.Module]:
        """Returns the modules that a prediction of one task uses."""

    @abstractmethod
    def passes(self, population: Tensor, batch_size: int, max_images: int | None) -> list[PopulationPass]:
        """Splits a step so that no pass computes more than `max_images` images at any layer.

        Args:
            population: As for `forward`.
            batch_size: B.
            max_images: None: no limit, one pass.

        Raises:
            ValueError: If not even the smallest pass fits.
        """

    def gate_parameters(self) -> list[nn.Parameter]:
        """Returns the parameters that control the sharing, as opposed to the layers' weights."""
        return []

    def task_parameters(self, assignment: Tensor, task: int) -> list[nn.Parameter]:
        """Returns the distinct parameters that a prediction of one task uses."""
        modules = self.task_modules(assignment, task)
        return list(dict.fromkeys(parameter for module in modules for parameter in module.parameters()))

    def parameters_in_use(self, assignment: Tensor, trained_only: bool = False) -> int:
        """Counts the distinct parameters of all tasks' networks, or those that are not frozen."""
        used = {p for task in range(len(self.heads)) for p in self.task_parameters(assignment, task)}
        return sum(parameter.numel() for parameter in used if parameter.requires_grad or not trained_only)

    def seed_random_layers(self, seed_function: SeedFunction | None) -> None:
        """Sets the seeds of dropout and related layers in training.

        Args:
            seed_function: Maps counters to a seed; the network adds the layer, the task and the copies that the task's
                batch has passed. Must be set anew in every step. None: torch's global generator is used.
        """
        self._seed_function = seed_function

    def seed_function_at(self, position: int | str) -> SeedFunction | None:
        """Returns the seed function of random layers at a position of the networks; None if unset or in eval mode."""
        return partial(self._seed_function, position) if self.training and self._seed_function is not None else None

    def norms(self) -> Iterator[TaskBatchNorm]:
        """Yields every batch normalisation with running statistics, which `commit_running_stats` updates."""
        return (norm for norm in norms_of(self) if norm.track_running_stats)

    def set_running_stats(self, running_stats: RunningStats) -> None:
        """Sets how running statistics follow the visits of a step (see `TaskBatchNorm`).

        `per_task` is irreversible. With it, heads, which belong to one task each, use `mean`.
        """
        in_heads = set(norms_of(self.heads))
        for norm in self.norms():
            if norm.running_stats == "per_task":
                continue
            if running_stats != "per_task":
                norm.running_stats = running_stats
            elif norm not in in_heads:
                norm.keep_statistics_per_task(len(self.heads))

    def commit_running_stats(self) -> None:
        """Updates all running statistics from the training passes since the last commit or discard."""
        for norm in self.norms():
            norm.commit()

    def discard_running_stats(self) -> None:
        """Discards the statistics collected since the last commit."""
        for norm in self.norms():
            norm.discard()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switches to eval mode, and afterwards restores each submodule's mode."""
        modes = [(module, module.training) for module in modules_of(self)]
        if any(type(module).train not in (nn.Module.train, SharedLayer.train) for module, _ in modes):
            self.eval()  # a user's module that overrides `train`
        else:
            _set_modes((module, False) for module, _ in modes)
        try:
            yield
        finally:
            _set_modes(modes)


def _set_modes(modes: Iterable[tuple[nn.Module, bool]]) -> None:
    for module, mode in modes:
        if module.training is mode:
            continue
        if "training" in vars(module):
            object.__setattr__(module, "training", mode)  # see `node_context`
        else:
            module.training = mode


def split_tasks(num_tasks: int, images_per_task: int, max_images: int | None, smallest: str) -> list[PopulationPass]:
    """Splits tasks into passes if every task computes the same number of images.

    Args:
        num_tasks: T'.
        images_per_task: Images that a layer computes for one task's batch.
        max_images: None: no limit.
        smallest: The composition of `images_per_task`, for the message.

    Raises:
        ValueError: If one task does not fit.
    """
    if max_images is None:
        return [PopulationPass(range(num_tasks), (0,))]
    if images_per_task > max_images:
        raise ValueError(
            f"max_images_per_pass is {max_images}, but a layer computes {images_per_task} images ({smallest}) for one "
            "task's batch, which cannot be split. Set model.max_images_per_pass to at least that."
        )
    size = max_images // images_per_task
    return [PopulationPass(range(i, min(i + size, num_tasks)), (0,)) for i in range(0, num_tasks, size)]
