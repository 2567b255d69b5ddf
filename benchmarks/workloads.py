"""The steps that are timed: networks, batches and populations of given sizes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from benchmarks.plain_loop import PlainLoop
from lws_lightning.networks import build_network, make_multi_task_network
from lws_lightning.randomness import generator_for
from lws_lightning.search import SearchDistribution, rank_utilities
from lws_lightning.sharing import MultiTaskNetwork
from lws_lightning.training import task_losses
from lws_lightning.training.optimization import gradient_norm, zero_gradients

__all__ = ["PI", "WORKLOADS", "Step", "Workload"]

Step = Callable[[Tensor, Tensor], object]
"""One training step on a population for NES and one for the weights."""

PI = ("uniform", "converged")
"""Search distributions at the start and at the end of a run: there every entry but one is at the floor of 0.1 %."""


@dataclass(frozen=True)
class Workload:
    """What a training step computes.

    Attributes:
        network: A name in `NETWORKS`.
        image_shape: `(C, H, W)`.
        num_classes: Of each of T tasks.
        copies: K of each learned layer.
        size: S, of both populations.
        batch_size: B.
    """

    network: str
    image_shape: tuple[int, int, int]
    num_classes: tuple[int, ...]
    copies: int
    size: int = 8
    batch_size: int = 16

    @property
    def num_tasks(self) -> int:
        """T."""
        return len(self.num_classes)

    def __str__(self) -> str:
        sizes = f"T={self.num_tasks}, K={self.copies}, S={self.size}, B={self.batch_size}"
        return f"{self.network}, {'x'.join(map(str, self.image_shape))}, {sizes}"

    def changed(self, **sizes: int) -> "Workload":
        """Returns a workload of other sizes, T being `num_tasks`."""
        tasks = sizes.pop("num_tasks", self.num_tasks)
        return replace(self, num_classes=tuple(self.num_classes[t % self.num_tasks] for t in range(tasks)), **sizes)  # type: ignore[arg-type]

    def make_network(self) -> MultiTaskNetwork:
        """Makes the networks of the tasks."""
        base = build_network(self.network, self.image_shape)
        copies = [self.copies] * len(base.learned_layers)
        return make_multi_task_network(base, self.num_classes, copies, seed=0)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Returns random images `(T, B, C, H, W)` and labels `(T, B)`."""
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(self.num_tasks, self.batch_size, *self.image_shape, generator=generator)
        draws = [torch.randint(classes, (self.batch_size,), generator=generator) for classes in self.num_classes]
        return images, torch.stack(draws)

    def distribution(self, pi: str) -> SearchDistribution:
        """Returns pi, one of `PI`; the converged one's most likely copies are drawn at random."""
        layers = len(build_network(self.network, self.image_shape).learned_layers)
        if pi == "uniform" or self.copies == 1:
            return SearchDistribution([self.copies] * layers, self.num_tasks)
        chosen = torch.randint(self.copies, (layers, self.num_tasks), generator=torch.Generator().manual_seed(1))
        probs = torch.full((layers, self.num_tasks, self.copies), 1e-3, dtype=torch.float64)
        probs.scatter_(2, chosen.unsqueeze(2), 1 - 1e-3 * (self.copies - 1))
        return SearchDistribution([self.copies] * layers, self.num_tasks, initial_probs=probs)

    def populations(self, pi: str, rounds: int) -> list[tuple[Tensor, Tensor]]:
        """Draws populations for NES and the weights for each of some steps."""
        distribution = self.distribution(pi)
        draws = [
            [distribution.sample(self.size, generator_for(0, "benchmark", step, phase)) for phase in ("nes", "sgd")]
            for step in range(rounds)
        ]
        return [(nes, sgd) for nes, sgd in draws]

    def our_step(self, network: MultiTaskNetwork, precision: str = "float32") -> Step:
        """Makes the training step of this package, without Lightning."""
        images, labels = self.batch()
        update = self._update(network, precision)

        def step(nes: Tensor, sgd: Tensor) -> None:
            with _autocast(precision), torch.no_grad(), network.evaluating():
                task_losses(network(images, nes), labels)
            update(sgd)

        return step

    def one_pass_step(self, pi: str, precision: str = "float32") -> Step:
        """Makes the step of `sgd_samples: 2`, `sampling: systematic` and `nes_batch: training`, as a whole.

        It draws two assignments from pi, trains with them, ranks their losses by task and updates pi, with a step size
        of 0, so that pi stays what it is.
        """
        update, distribution = self._update(self.make_network(), precision), self.distribution(pi)
        generator = generator_for(0, "benchmark", "one pass")

        def step(nes: Tensor, sgd: Tensor) -> None:
            population = distribution.sample(2, generator, "systematic")
            distribution.update(population, rank_utilities(update(population)), learning_rate=0.0)

        return step

    def fixed_step(self, precision: str = "float32") -> Step:
        """Makes the step of the same images under one assignment: no NES, one forward and backward pass, Adam."""
        update = self._update(self.make_network(), precision)
        assignment = self.distribution("converged").mode().unsqueeze(0)
        return lambda nes, sgd: update(assignment)

    def _update(self, network: MultiTaskNetwork, precision: str) -> Callable[[Tensor], Tensor]:
        """Makes the update of the weights under a population, which returns the losses."""
        images, labels = self.batch()
        parameters = list(network.parameters())
        optimizer = torch.optim.Adam(parameters, fused=True)

        def update(population: Tensor) -> Tensor:
            zero_gradients(parameters)
            with _autocast(precision):
                losses = task_losses(network(images, population), labels)
            losses.mean().backward()
            gradient_norm(parameters)
            network.commit_running_stats()
            optimizer.step()
            return losses.detach()

        return update

    def plain_step(self, network: MultiTaskNetwork, layout: str, precision: str = "float32") -> Step:
        """Makes the step as a plain loop over assignments and tasks, in PyTorch's default layout or channels_last."""
        images, labels = self.batch()
        loop = PlainLoop(network)
        if layout == "default":
            for parameter in loop.parameters():
                parameter.data = torch.empty(parameter.shape).copy_(parameter.data)
        optimizer = torch.optim.Adam(loop.parameters(), fused=True)

        def mean_loss(assignment: Tensor) -> Tensor:
            with _autocast(precision):
                losses = [
                    nn.functional.cross_entropy(loop.visit(images[task], assignment, task), labels[task])
                    for task in range(len(images))
                ]
                return torch.stack(losses).mean()

        def step(nes: Tensor, sgd: Tensor) -> None:
            loop.eval()
            with torch.no_grad():
                for assignment in nes:
                    mean_loss(assignment)
            loop.train()
            zero_gradients(loop.parameters())
            for assignment in sgd:
                (mean_loss(assignment) / len(sgd)).backward()
            gradient_norm(loop.parameters())
            optimizer.step()

        return step


def _autocast(precision: str) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed")


WORKLOADS = {
    "dkl_convnet": Workload("dkl_convnet", (1, 28, 28), (10, 26, 10), copies=3),
    "cifar100_convnet": Workload("cifar100_convnet", (3, 32, 32), (5,) * 20, copies=20),
    "omniglot_convnet": Workload("omniglot_convnet", (1, 105, 105), (20, 26, 14), copies=3, size=4, batch_size=8),
    "resnet18_cifar100": Workload("resnet18_cifar100", (3, 32, 32), (5,) * 3, copies=3, size=3, batch_size=8),
}
"""The paper's four networks; DKL-MNIST and the CIFAR-100 ConvNet in the paper's sizes, the others smaller."""
