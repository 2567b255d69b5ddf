"""Two processes train what one does, and the same on both."""

import pytest
import torch
from distributed_runs import fit
from small import assert_same

DOUBLE = {"precision": "64-true"}
MODES = {
    # name: (network, options of the method, batch size and mode of two processes)
    "examples": ("plain", {}, {"batch_size": 4, "distribute": "examples"}),
    "tasks": ("norm", {}, {"batch_size": 8, "distribute": "tasks"}),
    "tasks per visit": ("norm", {"running_stats": "per_visit"}, {"batch_size": 8, "distribute": "tasks"}),
    "tasks per task": ("norm", {"running_stats": "per_task"}, {"batch_size": 8, "distribute": "tasks"}),
    "tasks on evidence": ("norm", {"critical_z": 1.5}, {"batch_size": 8, "distribute": "tasks"}),
    "tasks in passes": ("norm", {"max_images_per_pass": 16}, {"batch_size": 8, "distribute": "tasks"}),
}


def assert_close(one, other, tolerance, names=None):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if names is None or any(part in name for part in names):
            torch.testing.assert_close(value, other[name], rtol=tolerance, atol=tolerance, msg=f"{name} differs")


def run(pair, folder, mode, steps, precision):
    network, options, data = MODES[mode]
    trainer = {"max_steps": steps, "precision": precision, "limit_val_batches": 0}
    common = {"network": network, "trainer": trainer, "lr": 1e-2, **options}
    alone = fit(folder, data={"batch_size": 8}, **common)
    return alone, pair(fit, folder, data=data, every_step=True, **common)


@pytest.mark.parametrize(
    "mode", ["examples", "tasks", *(pytest.param(mode, marks=pytest.mark.slow) for mode in list(MODES)[2:])]
)
def test_fifty_steps_are_those_of_one_process(pair, tmp_path, mode):
    alone, both = run(pair, tmp_path, mode, 50, "64-true")
    assert_close(both[0]["state"], alone["state"], 1e-8)
    uniform = torch.full_like(alone["state"]["distribution.probs"], 1 / 3)
    assert (alone["state"]["distribution.probs"] - uniform).abs().max() > 0.1  # pi has moved
    assert [each["step"] for each in both] == [alone["step"]] * 2
    assert both[0]["epoch_steps"] == alone["epoch_steps"] == 8
    assert len(both[0]["states"]) == 50
    for one, other in zip(both[0]["states"], both[1]["states"], strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("mode", ["examples", "tasks"])
def test_one_step_in_float32(pair, tmp_path, mode):
    alone, both = run(pair, tmp_path, mode, 1, "32-true")
    # Not the weights: Adam divides a gradient that is rounding alone by its size.
    assert_close(both[0]["state"], alone["state"], 1e-6, ["probs", "running_", "exp_avg"])
    assert_same(both[0]["state"], both[1]["state"])


def test_statistics_are_the_mean_over_ranks_where_each_normalises_its_own_images(pair, tmp_path):
    trainer = {"max_steps": 1, "precision": "64-true", "limit_val_batches": 0}
    both = pair(fit, tmp_path, trainer=trainer, data={"batch_size": 4}, sgd_samples=1)
    assert_same(both[0]["state"], both[1]["state"])
    # The images of rank r are those of step r of a process alone.
    halves = [statistics_of_step(tmp_path, rank) for rank in range(2)]
    for name, value in both[0]["state"].items():
        if "running_" in name:
            torch.testing.assert_close(value, (halves[0][name] + halves[1][name]) / 2, rtol=1e-12, atol=1e-12)


def statistics_of_step(folder, step):
    """Running statistics after one pass of the first step's population over the batch of another step."""
    from distributed_small import Uneven
    from small import learned, tiny_network

    data = Uneven(batch_size=4, seed=1)
    data.setup()
    module = learned(data, network=tiny_network, seed=1, sgd_samples=1).double()
    # Both ranks draw from pi after the NES step on both batches; a copy of it comes from the run itself.
    module.distribution.restore({"probs": pi_after_first_nes_step(folder)})
    module.update.losses(data.train_dataloader().dataset[step].sgd, module.scheme.sample(1, module.update, "sgd"))
    module.network.commit_running_stats()
    return module.state_dict()


def pi_after_first_nes_step(folder):
    trainer = {"max_steps": 1, "precision": "64-true", "limit_val_batches": 0}
    return fit(folder, trainer=trainer, data={"batch_size": 8}, sgd_samples=1)["state"]["distribution.probs"]


KINDS = {
    "CrossStitch": {},
    "FixedSharing": {"sharing": "prior"},
    "FullyAdaptiveSharing": {"affinity_steps": 1, "branching_part": 1.0, "branch_cost": 0.2},
    "RoutingNetworks": {},
    "Sluice": {"penalty": 1.0},
    "UncertaintyWeighting": {},
    "LearnedWeightSharing": {"loss_weights": [1.0, 2.0, 3.0], "gradient_scale": "expected_use", "clip_grad_norm": 0.5},
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_methods(pair, tmp_path, kind):
    trainer = {"max_steps": 6, "limit_val_batches": 0, **DOUBLE}
    alone = fit(tmp_path, kind, trainer=trainer, **KINDS[kind])
    both = pair(fit, tmp_path, kind, trainer=trainer, data={"distribute": "tasks"}, every_step=True, **KINDS[kind])
    assert_close(both[0]["state"], alone["state"], 1e-8)
    for one, other in zip(both[0]["states"], both[1]["states"], strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("distribute", ["examples", "tasks"])
def test_early_stopping_stops_the_same_tasks_everywhere(pair, tmp_path, distribute):
    trainer = {"max_steps": 12, "val_check_interval": 1, "check_val_every_n_epoch": None, **DOUBLE}
    data = {"validation": "split", "distribute": distribute}
    options = {"trainer": trainer, "patience": 2, "lr": 0.1}
    both = pair(fit, tmp_path, "IndependentEarlyStopping", data=data, every_step=True, **options)
    for one, other in zip(both[0]["states"], both[1]["states"], strict=True):
        assert_same(one, other)
    assert both[0]["state"]["stopping.waited"].max() == 2
    if distribute == "tasks":
        alone = fit(tmp_path, "IndependentEarlyStopping", data={"validation": "split"}, **options)
        assert_close(both[0]["state"], alone["state"], 1e-8)


@pytest.mark.parametrize("strategy", ["ddp", "ddp_find_unused_parameters_true"])
def test_weights_that_a_step_does_not_use(pair, tmp_path, strategy):
    trainer = {"max_steps": 3, "strategy": strategy, "limit_val_batches": 0}
    both = pair(fit, tmp_path, trainer=trainer, weights_per_layer=8, sgd_samples=1, every_step=True)
    for one, other in zip(both[0]["states"], both[1]["states"], strict=True):
        assert_same(one, other)


def test_a_rank_without_a_task(pair, tmp_path):
    trainer = {"max_steps": 3, **DOUBLE}
    method = {"kind": "FixedSharing", "sharing": "none"}
    alone = fit(tmp_path, trainer=trainer, data={"tasks": ["a"]}, **method)
    both = pair(fit, tmp_path, trainer=trainer, data={"tasks": ["a"], "distribute": "tasks"}, **method)
    assert_close(both[1]["state"], alone["state"], 1e-8)


@pytest.mark.parametrize("distribute", ["examples", "tasks"])
def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(pair, tmp_path, distribute):
    def go(steps, **options):
        trainer = {"max_steps": steps, "val_check_interval": 2, "check_val_every_n_epoch": None}
        return pair(fit, tmp_path, trainer=trainer, data={"distribute": distribute}, **options)

    path = str(tmp_path / "half.ckpt")
    whole = go(7)
    go(3, save=path)
    resumed = go(7, ckpt_path=path)
    for rank in range(2):
        assert_same(resumed[rank]["state"], whole[rank]["state"])
    assert resumed[0]["evaluations"] == whole[0]["evaluations"]


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_ranks_agree_in_low_precision(pair, tmp_path, precision):
    both = pair(fit, tmp_path, trainer={"max_steps": 3, "precision": precision}, every_step=True)
    for one, other in zip(both[0]["states"], both[1]["states"], strict=True):
        assert_same(one, other)
    assert both[0]["state"]["distribution.probs"].dtype == torch.float32


def test_data_are_downloaded_by_one_process(pair, tmp_path):
    pair(fit, tmp_path, trainer={"max_steps": 1}, data={"root": str(tmp_path)})
    assert (tmp_path / "prepared").read_text() == "once\n"
