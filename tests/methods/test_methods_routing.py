"""Routing networks."""

import pytest
import torch
from small import assert_resumes_bit_for_bit, assert_same, batch_of, digits, fixed, losses_and_gradients, make, state_of
from torch.nn import functional as F

from lws_lightning import RoutingNetworks
from lws_lightning.randomness import generator_for
from lws_lightning.search import RoutingPolicy
from lws_lightning.search.policy import project_onto_simplex

EXACT = {"rtol": 0, "atol": 1e-10}
OWN = F.one_hot(torch.arange(4), 4).double().repeat(2, 1, 1).tolist()  # block t for task t, at both layers


def frozen(data):
    return make(RoutingNetworks, data, weights_per_layer=4, initial_probs=OWN, min_probability=0.0, policy_lr=0.0)


def test_a_frozen_one_hot_policy_is_the_fixed_assignment():
    data = digits()
    batch = batch_of(data)
    module, independent = frozen(data), fixed(data, "none")
    route = module.distribution.sample(1, generator_for(0, "any"))
    assert torch.equal(route[0], independent.assignment)
    losses, gradients = losses_and_gradients(module, batch, route)
    expected, wanted = losses_and_gradients(independent, batch, independent.assignment.unsqueeze(0))
    torch.testing.assert_close(losses, expected, **EXACT)
    assert gradients.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(gradients[name], gradient, **EXACT)


def test_a_run_with_a_frozen_policy_is_the_run_without_sharing(quiet_trainer):
    states = []
    for build in (frozen, lambda data: fixed(data, "none")):
        data = digits()
        module = build(data)
        trainer = quiet_trainer(max_steps=4, limit_val_batches=0)
        trainer.fit(module, datamodule=data)
        states.append({k: v for k, v in state_of(module, trainer).items() if not k.startswith("distribution")})
        if build is frozen:
            assert module.distribution.probs.tolist() == OWN
    assert_same(*states)


class LoopOfAgents:
    """The Weighted Policy Learner, one agent and one depth after the other."""

    def __init__(self, sizes, tasks, floor, learning_rate, average_rate, collaboration):
        self.policies = [[[1 / size] * size for _ in range(tasks)] for size in sizes]
        self.averages = [[0.0] * tasks for _ in sizes]
        self.counts = [[0] * size for size in sizes]
        self.floor, self.steps = floor, 0
        self.learning_rate, self.average_rate, self.collaboration = learning_rate, average_rate, collaboration

    def learn(self, route, rewards):
        self.steps += 1
        before = [list(counts) for counts in self.counts]
        for task, reward in enumerate(rewards):
            to_go = 0.0
            for depth in reversed(range(len(self.policies))):
                block, total = route[depth][task], sum(before[depth])
                share = before[depth][block] / total if total else 1 / len(before[depth])
                to_go += self.collaboration * share
                self.step(task, depth, block, reward + to_go)
                self.counts[depth][block] += 1

    def step(self, task, depth, block, value):
        rate = max(self.average_rate, 1 / self.steps)
        self.averages[depth][task] += rate * (value - self.averages[depth][task])
        delta = value - self.averages[depth][task]
        policy = self.policies[depth][task]
        weight = 1 - policy[block] if delta > 0 else policy[block]
        if delta == 0:
            return
        policy[block] += self.learning_rate * delta * weight
        self.policies[depth][task] = self.project(policy)

    def project(self, values):
        """Bisection for the shift after which the floored values sum to one."""
        low, high = min(values) - 1, max(values)
        for _ in range(200):
            shift = (low + high) / 2
            total = sum(max(value - shift, self.floor) for value in values)
            low, high = (shift, high) if total > 1 else (low, shift)
        return [max(value - high, self.floor) for value in values]


@pytest.mark.parametrize("collaboration", [0.0, 0.3])
@pytest.mark.parametrize("learning_rate", [0.05, 1.5])
def test_the_update_is_that_of_a_loop_over_agents(collaboration, learning_rate):
    sizes, tasks = [3, 1, 4], 5
    policy = RoutingPolicy(sizes, tasks, min_probability=0.01, dtype=torch.float64)
    loop = LoopOfAgents(sizes, tasks, 0.01, learning_rate, 0.1, collaboration)
    for step in range(40):
        route = policy.sample(1, generator_for(0, "route", step))[0]
        rewards = 2 * torch.rand(tasks, generator=generator_for(0, "reward", step), dtype=torch.float64) - 1
        policy.learn(route, rewards, learning_rate, 0.1, collaboration)
        loop.learn(route.tolist(), rewards.tolist())
    for depth, size in enumerate(sizes):
        expected = torch.tensor(loop.policies[depth], dtype=torch.float64)
        torch.testing.assert_close(policy.probs[depth, :, :size], expected, rtol=0, atol=1e-9)
        assert not policy.probs[depth, :, size:].any()
        assert policy.choices[depth, :size].tolist() == loop.counts[depth]
    torch.testing.assert_close(policy.average_return, torch.tensor(loop.averages, dtype=torch.float64), **EXACT)
    assert float(policy.probs.where(policy.valid, 1.0).min()) >= 0.01 - 1e-12
    torch.testing.assert_close(policy.probs.sum(-1), torch.ones(3, tasks, dtype=torch.float64))


def test_an_agent_learns_the_block_that_is_rewarded():
    for good, likely in ((torch.tensor([[0, 2]]), 0.9), (torch.tensor([[0, 2], [1, 1]]), 0.5)):
        policy = RoutingPolicy([3] * len(good), 2)
        for step in range(2000):
            route = policy.sample(1, generator_for(0, "route", step))[0]
            policy.learn(route, 2 * (route == good).double().mean(0) - 1, 0.1, 0.05, 0.0)
        assert torch.equal(policy.mode(), good)
        assert float(policy.probs.gather(-1, good.unsqueeze(-1)).min()) > likely


def test_the_collaboration_reward_makes_agents_use_the_same_block():
    policy = RoutingPolicy([4], 6)
    for step in range(4000):
        route = policy.sample(1, generator_for(0, "route", step))[0]
        policy.learn(route, torch.zeros(6), 0.2, 0.05, 1.0)
    assert len(set(policy.mode()[0].tolist())) == 1


def test_projection_is_the_nearest_distribution():
    generator = generator_for(0, "points")
    values = 2 * torch.randn(30, 5, generator=generator, dtype=torch.float64)
    everything = torch.ones_like(values, dtype=torch.bool)
    found = project_onto_simplex(values, everything, 0.05)
    torch.testing.assert_close(found.sum(-1), torch.ones(30, dtype=torch.float64))
    assert float(found.min()) >= 0.05
    for _ in range(200):
        others = torch.rand(30, 5, generator=generator, dtype=torch.float64)
        others = 0.05 + 0.75 * others / others.sum(-1, keepdim=True)
        assert bool(((found - values).norm(dim=-1) <= (others - values).norm(dim=-1) + 1e-12).all())
    torch.testing.assert_close(project_onto_simplex(found, everything, 0.05), found, **EXACT)


@pytest.mark.parametrize("bound", [None, 8])
def test_the_reward_is_the_mean_of_plus_and_minus_one(quiet_trainer, monkeypatch, bound):
    data = digits()
    module = make(RoutingNetworks, data, max_images_per_pass=bound)
    batch = batch_of(data)
    seen = []
    monkeypatch.setattr(RoutingPolicy, "learn", lambda self, route, rewards, *rates: seen.append((route, rewards)))
    twin = make(RoutingNetworks, data)
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, datamodule=data)
    ((route, rewards),) = seen
    logits = twin.network(twin._to_inputs(batch.images), route.unsqueeze(0))
    for task in range(4):
        hits = (logits[task][0].argmax(-1) == batch.labels[task]).float()
        assert float(rewards[task]) == pytest.approx(float((2 * hits - 1).mean()))


def test_two_and_two_steps_are_four(tmp_path, quiet_trainer):
    record = assert_resumes_bit_for_bit(RoutingNetworks, tmp_path, quiet_trainer, collaboration=0.2)
    assert record["method"] == "routing"
    assert len(record["assignment"]) == 2
    assert record["entropies"]["normalized_mean"] <= 1
    assert record["inference"]["upright_parity"]["parameters"] == 4 * 9 + 4 + 8 + 64 * 8 + 8 + 9 * 2


def test_a_failed_step_does_not_move_the_policies(quiet_trainer):
    data = digits()
    module = make(RoutingNetworks, data)
    before = {}
    original = module.objective.losses

    def poisoned(*arguments):
        losses = original(*arguments)
        if module.global_step == 2:
            before.update(state_of(module))
            losses = losses * float("nan")
        return losses

    module.objective.losses = poisoned
    with pytest.raises(RuntimeError, match="Step 2: the loss of task"):
        quiet_trainer(max_steps=5, limit_val_batches=0).fit(module, datamodule=data)
    assert int(module.distribution.steps) == 2
    assert_same(state_of(module), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy_lr": -1.0}, "policy_lr must not be negative"),
        ({"average_rate": 0.0}, r"average_rate must be in \(0, 1\]"),
        ({"collaboration": 1.5}, r"collaboration must be in \[0, 1\]"),
        ({"min_probability": 0.5}, "min_probability 0.5 cannot hold"),
        ({"weights_per_layer": [3]}, "weights_per_layer has 1 entries"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(RoutingNetworks, digits(), **options)
