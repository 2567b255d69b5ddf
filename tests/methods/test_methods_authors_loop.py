"""The authors' program as a plain loop, written from its description; with its options, results are equal.

Of the program: the NES pass in eval mode on a batch of its own; ranks, the lowest loss best; pi moves, is clamped and
renormalised. Then, assignment by assignment and task by task, a forward pass in train mode, which moves the running
statistics by 0.1, and a backward pass of the task's mean loss. A learned copy's gradient is divided by
`S * sum_t pi[t, copy]`, a common layer's by `S * T`, a head's by `S`. Adam moves every weight, unused ones too.
"""

import pytest
import torch
from lightning.pytorch import Callback
from small import digits
from torch import nn

from lws_lightning import LearnedWeightSharing
from lws_lightning.networks import BaseLayer, BaseNetwork, torch_default_

STEPS, K, NES_LR, LR, FLOOR = 20, 3, 0.1, 1e-3, 1e-3
EXACT = {"rtol": 1e-9, "atol": 1e-11}


def blocks(channels):
    """A common convolution, a learned one with pooling, a learned dense layer; each with batch normalisation."""
    return [
        nn.Sequential(nn.Conv2d(channels, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3), nn.ReLU()),
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU()),
    ]


def build(image_shape):
    layers = [BaseLayer(name, b, name != "stem") for name, b in zip(["stem", "conv", "dense"], blocks(1), strict=True)]
    return BaseNetwork(layers, lambda classes: nn.Linear(6, classes), 1, torch_default_)


class AuthorsProgram:
    """With its own weights, pi and Adam state; starts from a method's initial state."""

    def __init__(self, method):
        self.tasks = len(method.task_names)
        self.copies = []  # by layer of the chain
        for position, layer in enumerate(method.network.layers):
            plain = [blocks(1)[position].double() for _ in layer.copies]
            for ours, theirs in zip(plain, layer.copies, strict=True):
                ours.load_state_dict(theirs.state_dict())
            self.copies.append(plain)
        self.heads = [nn.Linear(6, head.out_features).double() for head in method.network.heads]
        for ours, theirs in zip(self.heads, method.network.heads, strict=True):
            ours.load_state_dict(theirs.state_dict())
        self.pi = method.distribution.probs.clone()
        torch.testing.assert_close(self.pi, torch.full((2, self.tasks, K), 1 / K, dtype=torch.float64))
        self.moments = {p: [torch.zeros_like(p), torch.zeros_like(p)] for p in self.parameters()}
        self.step = 0

    def modules(self):
        return [*(copy for layer in self.copies for copy in layer), *self.heads]

    def parameters(self):
        return [p for module in self.modules() for p in module.parameters()]

    def statistics(self):
        norms = [part for module in self.modules() for part in module.modules() if hasattr(part, "running_mean")]
        return [statistic for norm in norms for statistic in (norm.running_mean, norm.running_var)]

    def loss(self, images, labels, assignment, task):
        chain = [self.copies[0][0], *(self.copies[1 + n][int(assignment[n, task])] for n in range(2)), self.heads[task]]
        return nn.functional.cross_entropy(nn.Sequential(*chain)(images), labels)

    def losses(self, batch, population, backward):
        rows = []
        for assignment in population:
            rows.append([])
            for task in range(self.tasks):
                loss = self.loss(batch.images[task].double() / 255, batch.labels[task], assignment, task)
                rows[-1].append(loss.item())
                if backward:
                    loss.backward()
        return torch.tensor(rows, dtype=torch.float64)

    def nes_step(self, batch, population):
        for module in self.modules():
            module.eval()
        with torch.no_grad():
            losses = self.losses(batch, population, backward=False)
        fitness = losses.mean(1)
        size = len(population)
        gradient = torch.zeros_like(self.pi)
        for s, assignment in enumerate(population):
            worse = int((fitness > fitness[s]).sum()) + (int((fitness == fitness[s]).sum()) - 1) / 2
            utility = 2 * worse / (size - 1) - 1
            for layer in range(2):
                for task in range(self.tasks):
                    chosen = torch.zeros(K, dtype=torch.float64)
                    chosen[int(assignment[layer, task])] = 1
                    gradient[layer, task] += utility / size * (chosen - self.pi[layer, task])
        self.pi = (self.pi + NES_LR * gradient).clamp(min=FLOOR)
        self.pi = self.pi / self.pi.sum(-1, keepdim=True)
        return losses

    def gradients(self, batch, population):
        for module in self.modules():
            module.train()
        for parameter in self.parameters():
            parameter.grad = torch.zeros_like(parameter)
        losses = self.losses(batch, population, backward=True)
        size = len(population)
        for layer, copies in enumerate(self.copies):
            for number, copy in enumerate(copies):
                use = self.tasks if layer == 0 else self.pi[layer - 1, :, number].sum()
                for parameter in copy.parameters():
                    parameter.grad /= size * use
        for head in self.heads:
            for parameter in head.parameters():
                parameter.grad /= size
        return losses

    @torch.no_grad()
    def adam(self):
        self.step += 1
        for parameter, (first, second) in self.moments.items():
            first.mul_(0.9).add_(0.1 * parameter.grad)
            second.mul_(0.999).add_(0.001 * parameter.grad**2)
            root = (second / (1 - 0.999**self.step)).sqrt() + 1e-8
            parameter -= LR * (first / (1 - 0.9**self.step)) / root


class Recorded(Callback):
    """What a method draws and computes in each step."""

    def __init__(self):
        self.steps = []

    def setup(self, trainer, pl_module, stage):
        scheme = pl_module.scheme
        sample, move, compute = scheme.sample, scheme.update_distribution, pl_module.update.gradients

        def sampled(size, update, phase):
            population = sample(size, update, phase)
            self.steps[-1][phase] = population.clone()
            return population

        def moved(update, batch):
            losses = move(update, batch)
            self.steps[-1]["nes losses"] = losses.clone()
            return losses

        def computed(batch, population, **options):
            losses = compute(batch, population, **options)
            self.steps[-1]["sgd losses"] = losses.clone()
            self.steps[-1]["gradients"] = [p.grad.clone() for p in pl_module.network.parameters()]
            return losses

        scheme.sample, scheme.update_distribution, pl_module.update.gradients = sampled, moved, computed

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.steps.append({"batch": batch})

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        norms = [part for part in pl_module.network.modules() if hasattr(part, "running_mean")]
        self.steps[-1] |= {
            "pi": pl_module.distribution.probs.clone(),
            "weights": [p.detach().clone() for p in pl_module.network.parameters()],
            "statistics": [s.clone() for norm in norms for s in (norm.running_mean, norm.running_var)],
        }


@pytest.mark.parametrize("bound", [None, 8])
def test_twenty_steps_are_those_of_the_authors_loop(quiet_trainer, bound):
    data = digits()
    method = LearnedWeightSharing(
        network=build, weights_per_layer=K, nes_samples=4, sgd_samples=3, nes_lr=NES_LR, min_probability=FLOOR, lr=LR,
        gradient_scale="expected_use", running_stats="per_visit", max_images_per_pass=bound, seed=5, **data.task_info,
    )  # fmt: skip
    program = AuthorsProgram(method.double())
    recorded = Recorded()
    quiet_trainer(max_steps=STEPS, precision="64-true", limit_val_batches=0, callbacks=[recorded]).fit(method, data)
    assert len(recorded.steps) == STEPS
    for step in recorded.steps:
        torch.testing.assert_close(step["nes losses"], program.nes_step(step["batch"].nes, step["nes"]), **EXACT)
        torch.testing.assert_close(step["pi"], program.pi, **EXACT)
        torch.testing.assert_close(step["sgd losses"], program.gradients(step["batch"].sgd, step["sgd"]), **EXACT)
        torch.testing.assert_close(step["gradients"], [p.grad for p in program.parameters()], **EXACT)
        program.adam()
        torch.testing.assert_close(step["weights"], [p.detach() for p in program.parameters()], **EXACT)
        torch.testing.assert_close(step["statistics"], program.statistics(), **EXACT)
    moved = (program.pi - 1 / K).abs().max()
    assert moved > 0.05
