"""One training step against the paper's Algorithm 1 as a plain loop."""

import copy
from pathlib import Path

import pytest
import torch
from small import digits, fixed, learned, state_of, tiny_network
from torch.nn import functional as F

import lws_lightning.methods
from lws_lightning.randomness import generator_for
from lws_lightning.sharing.batch_norm import restore_batch_norms


class PlainAlgorithm:
    """Algorithm 1 with loops over assignments and tasks, torch's modules, and a separate update of pi."""

    def __init__(self, module):
        self.network = restore_batch_norms(copy.deepcopy(module.network), task=0).double()
        self.probs = module.distribution.probs.double().clone()
        self.module = module
        self.adam = torch.optim.Adam(self.network.parameters(), lr=module.lr)

    def losses(self, batch, population):
        rows = []
        for assignment in population:
            row = []
            for task, (images, labels) in enumerate(zip(batch.images, batch.labels, strict=True)):
                logits = self.network.forward_task(images.double() / 255, assignment, task)
                row.append(F.cross_entropy(logits, labels))
            rows.append(torch.stack(row))
        return torch.stack(rows)

    def sample(self, step, phase, size):
        self.module.distribution.restore({"probs": self.probs})
        return self.module.distribution.sample(size, generator_for(self.module.seed, "population", step, phase))

    def step(self, batch, step):
        population = self.sample(step, "nes", self.module.scheme.nes_samples)
        self.network.eval()
        with torch.no_grad():
            losses = self.losses(batch.nes, population).mean(1)
        order = losses.argsort(descending=True).tolist()
        gradient = torch.zeros_like(self.probs)
        for sample, assignment in enumerate(population):
            utility = 2 * order.index(sample) / (len(population) - 1) - 1
            one_hot = F.one_hot(assignment, self.probs.shape[-1]).double()
            gradient += utility * (one_hot - self.probs) / len(population)
        self.probs = (self.probs + self.module.scheme.nes_lr * gradient).clamp(min=1e-3)
        self.probs /= self.probs.sum(-1, keepdim=True)
        population = self.sample(step, "sgd", self.module.scheme.sgd_samples)
        self.network.train()
        self.adam.zero_grad()
        self.losses(batch.sgd, population).mean().backward()
        for parameter in self.network.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        self.adam.step()


def test_five_steps_are_those_of_algorithm_1(quiet_trainer):
    data = digits()
    module = learned(data, running_stats="per_visit")
    reference_module = copy.deepcopy(module)
    reference_module.distribution.double()
    plain = PlainAlgorithm(reference_module)
    trainer = quiet_trainer(max_steps=5, precision="64-true", limit_val_batches=0)
    trainer.fit(module, datamodule=data)
    batches = data.train_dataloader().dataset
    for step in range(5):
        plain.step(batches[step], step)
    torch.testing.assert_close(module.distribution.probs, plain.probs, rtol=0, atol=1e-10)
    for one, other in zip(module.network.parameters(), plain.network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
    for one, other in zip(module.network.norms(), _norms(plain.network), strict=True):
        torch.testing.assert_close(one.running_mean, other.running_mean, rtol=0, atol=1e-8)
        torch.testing.assert_close(one.running_var, other.running_var, rtol=0, atol=1e-8)


def _norms(network):
    return [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]


def test_expected_use_divides_the_summed_gradient_as_the_authors_program(quiet_trainer):
    data = digits()
    modules = {scale: learned(data, gradient_scale=scale, clip_grad_norm=None) for scale in ("mean", "expected_use")}
    gradients = {}
    for scale, module in modules.items():
        trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
        trainer.fit(module, datamodule=data)
        gradients[scale] = {name: p.grad.clone() for name, p in module.network.named_parameters()}
    module, tasks, samples = modules["mean"], 4, 3
    for name, mean_gradient in gradients["mean"].items():
        summed = mean_gradient * tasks * samples
        if name.startswith("heads"):
            expected = summed / samples
        else:
            layer, copy_number = int(name.split(".")[1]), int(name.split(".")[3])
            expected = summed / (samples * module.distribution.probs[layer, :, copy_number].sum())
        torch.testing.assert_close(gradients["expected_use"][name], expected)


@pytest.mark.parametrize("rarely", [0.0, 1e-44, 1e-30])
def test_a_copy_that_is_never_drawn_has_no_gradient_under_expected_use(quiet_trainer, rarely):
    data = digits()
    probs = [[[1 - rarely, rarely, 0.0]] * 4] * 2
    module = learned(data, gradient_scale="expected_use", min_probability=0.0, nes_lr=0.0, initial_probs=probs)
    quiet_trainer(max_steps=2, limit_val_batches=0).fit(module, datamodule=data)
    for _, number, block in module.network.copies():
        gradients = [p.grad for p in block.parameters() if p.grad is not None]
        assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        assert any(bool(gradient.any()) for gradient in gradients) == (number == 0)


@pytest.mark.parametrize(("sharing", "expected"), [("full", 0), ("none", 1), ("prior", 2)])
def test_fixed_sharing_is_an_assignment_and_never_moves(quiet_trainer, sharing, expected):
    data = digits()
    module = fixed(data, sharing)
    before = module.assignment.clone()
    zero, own = [0, 0, 0, 0], [0, 1, 2, 3]
    assert before.tolist() == [[zero, zero], [own, own], [zero, own]][expected]
    quiet_trainer(max_steps=2, limit_val_batches=0).fit(module, datamodule=data)
    assert torch.equal(module.assignment, before)
    assert "distribution.probs" not in state_of(module)


def test_every_method_sees_the_same_sgd_batches(quiet_trainer, monkeypatch):
    seen = {}
    for name, make in (("learned", learned), ("fixed", fixed)):
        data = digits()
        module = make(data)
        record = seen.setdefault(name, [])
        original = module.update.gradients

        def spy(batch, population, record=record, original=original, **options):
            record.append(batch.labels.clone())
            return original(batch, population, **options)

        monkeypatch.setattr(module.update, "gradients", spy)
        quiet_trainer(max_steps=4, limit_val_batches=0).fit(module, datamodule=data)
    assert all(torch.equal(a, b) for a, b in zip(seen["learned"], seen["fixed"], strict=True))


def test_unused_weights_get_a_zero_gradient_and_keep_momentum(quiet_trainer):
    data = digits()
    module = learned(data, weights_per_layer=6, sgd_samples=1)
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, datamodule=data)
    gradients = [parameter.grad for parameter in module.network.parameters()]
    assert all(gradient is not None for gradient in gradients)
    assert any(not gradient.any() for gradient in gradients)


def test_clip_grad_norm_bounds_what_adam_receives(quiet_trainer, monkeypatch):
    data = digits()
    module = learned(data, clip_grad_norm=1e-3)
    norms = []
    original = module.update.apply

    def spy():
        grads = [parameter.grad for parameter in module.network.parameters()]
        norms.append(torch.nn.utils.get_total_norm(grads).item())
        original()

    monkeypatch.setattr(module.update, "apply", spy)
    quiet_trainer(max_steps=3, limit_val_batches=0).fit(module, datamodule=data)
    assert len(norms) == 3
    assert max(norms) <= 1e-3 * (1 + 1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"lr_schedule": "linear"}, [1.0, 0.75, 0.5, 0.25]),
        ({"lr_schedule": "cosine"}, [1.0, 0.853553, 0.5, 0.146447]),
        ({"warmup_steps": 2}, [0.5, 1.0, 1.0, 1.0]),
    ],
)
def test_the_schedule_really_steps(quiet_trainer, monkeypatch, options, expected):
    data = digits()
    module = learned(data, lr=0.01, **options)
    rates = []
    original = module.update.apply

    def spy():
        rates.append(module.optimizers().param_groups[0]["lr"] / 0.01)
        original()

    monkeypatch.setattr(module.update, "apply", spy)
    quiet_trainer(max_steps=4, limit_val_batches=0).fit(module, datamodule=data)
    assert rates == pytest.approx(expected, abs=1e-5)


def test_the_nes_pass_leaves_modes_as_they_were(quiet_trainer):
    data = digits()
    module = learned(data)
    frozen = next(iter(module.network.norms()))
    frozen.eval()
    statistics = frozen.running_mean.clone()
    module.train = lambda mode=True: module  # Lightning's own call would thaw it
    quiet_trainer(max_steps=3, limit_val_batches=0).fit(module, datamodule=data)
    others = [norm for norm in module.network.norms() if norm is not frozen]
    assert not frozen.training
    assert torch.equal(frozen.running_mean, statistics)
    assert all(norm.training for norm in others)


@pytest.mark.parametrize(
    ("precision", "weights", "probs"),
    [
        ("32-true", torch.float32, torch.float32),
        ("bf16-mixed", torch.float32, torch.float32),
        ("bf16-true", torch.bfloat16, torch.float32),
        ("64-true", torch.float64, torch.float64),
    ],
)
def test_precision_never_touches_pi(quiet_trainer, precision, weights, probs):
    data = digits()
    module = learned(data)
    trainer = quiet_trainer(max_steps=20, precision=precision, limit_val_batches=2)
    trainer.fit(module, datamodule=data)
    assert module.distribution.probs.dtype == probs
    torch.testing.assert_close(module.distribution.probs.sum(-1), torch.ones(2, 4, dtype=probs))
    assert {parameter.dtype for parameter in module.network.parameters()} == {weights}
    assert all(bool(torch.isfinite(parameter).all()) for parameter in module.network.parameters())


def test_backward_only_goes_through_lightning():
    folder = Path(lws_lightning.methods.__file__).parent
    assert not [
        path for path in folder.glob("*.py") if ".backward(" in path.read_text().replace("manual_backward(", "")
    ]


def test_names_that_checkpoint_callbacks_misuse_are_not_taken():
    module = learned(digits(), network=tiny_network)
    assert not hasattr(module, "saved_models")
    assert not hasattr(module, "layer")


def test_decoupled_decay_shrinks_all_weights_before_the_step(quiet_trainer):
    """Adam's step from the start is the same with and without it, since it is no part of the gradient."""
    data, lr, decay = digits(), 0.01, 0.5
    start = state_of(learned(data, seed=3))
    ends = {}
    for value in (0.0, decay):
        module = learned(data, seed=3, lr=lr, weight_decay=value, decoupled_decay=True)
        quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, datamodule=data)
        ends[value] = state_of(module)
    for name, parameter in learned(data).named_parameters():
        torch.testing.assert_close(ends[decay][name], ends[0.0][name] - lr * decay * start[name], msg=name)
        assert parameter.requires_grad


def test_unused_copies_shrink_under_decoupled_decay(quiet_trainer):
    data, lr, decay = digits(), 0.01, 0.5
    first = [[[1.0, 0.0]] * len(data.task_names)] * 2
    fixed_probs = {"initial_probs": first, "nes_lr": 0.0, "min_probability": 0.0, "weights_per_layer": 2}
    module = learned(data, lr=lr, weight_decay=decay, decoupled_decay=True, **fixed_probs)
    start = state_of(module)
    quiet_trainer(max_steps=3, limit_val_batches=0).fit(module, datamodule=data)
    end = state_of(module)
    unused = [name for name, _ in module.named_parameters() if ".copies.1." in name]
    assert len(unused) == 6
    for name in unused:
        torch.testing.assert_close(end[name], start[name] * (1 - lr * decay) ** 3, msg=name)


def test_a_run_does_not_resume_with_the_other_decay(quiet_trainer, tmp_path):
    data = digits()
    trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
    trainer.fit(learned(data, weight_decay=0.1), datamodule=data)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    module = learned(data, weight_decay=0.1, decoupled_decay=True)
    with pytest.raises(ValueError, match="decoupled_decay is True, but the checkpoint was trained with False"):
        quiet_trainer(max_steps=2, limit_val_batches=0).fit(module, datamodule=data, ckpt_path=tmp_path / "run.ckpt")
