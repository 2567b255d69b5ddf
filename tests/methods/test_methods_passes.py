"""`max_images_per_pass`: the same training in less memory."""

import copy
import warnings
import weakref

import pytest
import torch
from fakes import Tiny
from lightning.pytorch.callbacks import ModelCheckpoint
from small import assert_same, digits, fixed, learned, state_of

from lws_lightning import NonFiniteError
from lws_lightning.randomness import generator_for

QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")


def count_passes(module):
    """Records the number of passes of each population."""
    counts, last, original = [], [], module.network.forward

    def spy(images, population, **options):
        if not last or last[-1] is not images:
            counts.append(0)
            last.append(images)
        counts[-1] += 1
        return original(images, population, **options)

    module.network.forward = spy
    return counts


def trained(quiet_trainer, method, steps=4, **options):
    data = digits()
    module = method(data, **options)
    counts = count_passes(module)
    trainer = quiet_trainer(max_steps=steps, precision="64-true", limit_val_batches=0)
    trainer.fit(module, datamodule=data)
    return module, trainer, counts


def assert_close(one, other, tolerance):
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(
            one[key], other[key], rtol=tolerance, atol=tolerance, msg=lambda m, k=key: f"{k}:{m}"
        )


@pytest.mark.parametrize(("running_stats", "gradient_scale"), [("mean", "mean"), ("per_visit", "expected_use")])
@pytest.mark.parametrize("bound", [4, 13])  # B is 4; 4 tasks, up to 4 assignments
def test_a_run_in_passes_is_the_run_in_one(quiet_trainer, running_stats, gradient_scale, bound):
    options = {"running_stats": running_stats, "gradient_scale": gradient_scale, "clip_grad_norm": 1.0}
    expected, expected_trainer, _ = trained(quiet_trainer, learned, **options)
    module, trainer, counts = trained(quiet_trainer, learned, **options, max_images_per_pass=bound)
    assert len(counts) == 8
    assert min(counts) > 1
    assert_close(state_of(module, trainer), state_of(expected, expected_trainer), 1e-8)
    assert trainer.global_step == 4
    assert {int(s["step"]) for s in trainer.optimizers[0].state.values()} == {4}


@pytest.mark.parametrize("sharing", ["full", "none", "prior"])
def test_fixed_sharing_in_passes(quiet_trainer, sharing):
    expected, expected_trainer, _ = trained(quiet_trainer, fixed, sharing=sharing)
    module, trainer, counts = trained(quiet_trainer, fixed, sharing=sharing, max_images_per_pass=9)
    assert counts == [2] * 4
    assert_close(state_of(module, trainer), state_of(expected, expected_trainer), 1e-8)


def test_a_bound_that_everything_fits_in_changes_no_bit(quiet_trainer):
    expected, expected_trainer, _ = trained(quiet_trainer, learned)
    module, trainer, counts = trained(quiet_trainer, learned, max_images_per_pass=4 * 4 * 4)
    assert counts == [1] * 8
    assert_same(state_of(module, trainer), state_of(expected, expected_trainer))


def step_parts(data, module):
    """A batch and a broad population."""
    data.setup("fit")
    population = module.distribution.sample(6, generator_for(0, "test"))
    return data.train_dataloader().dataset[0].sgd, population


def test_losses_and_gradients_to_ten_digits():
    data = digits()
    whole = learned(data, weights_per_layer=5).double()
    batch, population = step_parts(data, whole)
    parts = copy.deepcopy(whole)
    parts.max_images_per_pass = 4
    found = []
    for module in (whole, parts):
        module.manual_backward = lambda loss: loss.backward()
        losses = module.update.losses(batch, population, backward=True)
        assert not losses.requires_grad
        found.append(
            {"losses": losses} | {n: p.grad for n, p in module.network.named_parameters() if p.grad is not None}
        )
    assert_close(found[1], found[0], 1e-10)


class LiveBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes of activations held by autograd graphs."""

    def __init__(self):
        self.live, self.peak = 0, 0
        super().__init__(self._pack, lambda box: box.tensor)

    def _pack(self, tensor):
        box = _Box(tensor.detach())
        size = tensor.numel() * tensor.element_size()
        self._change(size)
        weakref.finalize(box, self._change, -size)
        return box

    def _change(self, size):
        self.live += size
        self.peak = max(self.peak, self.live)


class _Box:
    def __init__(self, tensor):
        self.tensor = tensor


def peak_of_a_step(bound):
    data = digits(batch_size=8)
    module = learned(data, weights_per_layer=5, max_images_per_pass=bound)
    batch, population = step_parts(data, module)
    at_start = []
    original = module.network.forward
    module.manual_backward = lambda loss: loss.backward()
    counter = LiveBytes()

    def spy(*arguments, **options):
        at_start.append(counter.live)
        return original(*arguments, **options)

    module.network.forward = spy
    with counter:
        module.update.losses(batch, population, backward=True)
    return counter.peak, at_start, counter.live


def test_activations_of_a_pass_are_freed_before_the_next():
    whole, one_start, _ = peak_of_a_step(None)
    assert one_start == [0]
    peaks = {}
    for bound in (8, 24, 96):
        peaks[bound], starts, live = peak_of_a_step(bound)
        assert len(starts) > 1
        assert starts == [0] * len(starts)
        assert live == 0
    assert peaks[8] < peaks[24] < peaks[96] < whole
    assert peaks[8] < whole / 8


@pytest.mark.parametrize("bound", [0, -16])
def test_a_bound_that_is_not_positive_is_refused(bound):
    with pytest.raises(ValueError, match=rf"max_images_per_pass must be positive, but is {bound}"):
        learned(digits(), max_images_per_pass=bound)


def test_a_bound_below_the_batch_is_refused_before_data_are_read(quiet_trainer):
    data = Tiny(batch_size=4)
    module = learned(data, max_images_per_pass=3)
    with pytest.raises(ValueError, match=r"max_images_per_pass is 3.*batch size, 4.*data\.batch_size"):
        quiet_trainer(max_steps=1).fit(module, datamodule=data)
    assert data.loads == 0
    quiet_trainer().test(module, datamodule=data)  # evaluation does not care


def test_a_bound_below_the_batch_of_a_plain_loader_is_refused_in_the_first_step(quiet_trainer):
    data = digits()
    data.setup("fit")
    module = learned(data, max_images_per_pass=3)
    before = state_of(module)
    with pytest.raises(ValueError, match=r"max_images_per_pass is 3.*batch size, 4"):
        quiet_trainer(max_steps=1, limit_val_batches=0).fit(module, train_dataloaders=data.train_dataloader())
    assert_same(state_of(module), before)


def failing_in_the_middle(module, fail):
    """Injects an action into the second pass of the fourth step's gradient."""
    original, state = module.objective.losses, {"calls": 0}

    def spy(logits, labels, tasks):
        backward = torch.is_grad_enabled()
        state["calls"] += backward and module.global_step == 3
        losses = original(logits, labels, tasks)
        return fail(losses) if state["calls"] == 2 and backward else losses

    module.objective.losses = spy


@pytest.mark.parametrize("kind", ["loss", "interrupt", "error"])
def test_a_step_that_fails_between_passes_leaves_no_trace(tmp_path, quiet_trainer, kind):
    def fail(losses):
        if kind == "interrupt":
            raise KeyboardInterrupt  # as a second Ctrl-C does
        if kind == "error":
            raise RuntimeError("in the middle")
        return losses * float("nan")

    def run(steps, **options):
        data = digits()
        module = learned(data, max_images_per_pass=8)
        trainer = quiet_trainer(max_steps=steps, limit_val_batches=0)
        trainer.fit(module, datamodule=data, **options)
        return state_of(module, trainer)

    data = digits()
    module = learned(data, max_images_per_pass=8)
    failing_in_the_middle(module, fail)
    callback = ModelCheckpoint(dirpath=tmp_path / "ckpt", filename="{step}")
    trainer = quiet_trainer(max_steps=6, callbacks=[callback], enable_checkpointing=True, limit_val_batches=0)
    errors = {"loss": NonFiniteError, "interrupt": (KeyboardInterrupt, SystemExit), "error": RuntimeError}
    with pytest.raises(errors[kind]):
        trainer.fit(module, datamodule=data)
    assert_same(state_of(module, trainer), run(3))
    (path,) = (tmp_path / "ckpt").glob("*.ckpt")
    assert_same(run(6, ckpt_path=path), run(6))


def test_a_module_goes_on_after_a_step_that_failed_between_passes(quiet_trainer):
    """Running statistics collected by the failed step must not be committed by the next one."""
    data = digits()
    module, fresh = (learned(data, max_images_per_pass=8) for _ in range(2))
    batch, population = step_parts(data, module)
    for one in (module, fresh):
        one.manual_backward = lambda loss: loss.backward()
        one.trainer = quiet_trainer()
    original, calls = module.objective.losses, []

    def spy(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("in the middle")
        return original(*arguments)

    module.objective.losses = spy
    with pytest.raises(RuntimeError, match="in the middle"):
        module.update.gradients(batch, population.flip(0))
    for one in (module, fresh):
        one.update.gradients(batch, population)
        one.network.commit_running_stats()
    assert_same(state_of(module), state_of(fresh))


def saved_run(tmp_path, quiet_trainer, bound):
    data = digits()
    module = learned(data, max_images_per_pass=bound)
    callback = ModelCheckpoint(dirpath=tmp_path / "ckpt", filename="{step}", every_n_train_steps=3, save_top_k=-1)
    trainer = quiet_trainer(max_steps=6, callbacks=[callback], enable_checkpointing=True, limit_val_batches=0)
    trainer.fit(module, datamodule=data)
    return state_of(module, trainer), tmp_path / "ckpt/step=3.ckpt"


def test_a_run_in_passes_resumes_bit_for_bit(tmp_path, quiet_trainer):
    expected, path = saved_run(tmp_path, quiet_trainer, 9)
    data = digits()
    module = learned(data, max_images_per_pass=9)
    trainer = quiet_trainer(max_steps=6, limit_val_batches=0)
    trainer.fit(module, datamodule=data, ckpt_path=path)
    assert_same(state_of(module, trainer), expected)


def test_another_bound_on_resume_is_obeyed(tmp_path, quiet_trainer):
    _, path = saved_run(tmp_path, quiet_trainer, None)
    data = digits()
    module = learned(data, max_images_per_pass=9)
    counts = count_passes(module)
    trainer = quiet_trainer(max_steps=6, limit_val_batches=0)
    trainer.fit(module, datamodule=data, ckpt_path=path)
    assert min(counts) > 1
    assert module.hparams["max_images_per_pass"] == 9


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_every_precision_trains_in_passes(quiet_trainer, precision):
    data = digits()
    module = learned(data, max_images_per_pass=8)
    before = {name: parameter.detach().clone() for name, parameter in module.network.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet_trainer(max_steps=10, precision=precision, limit_val_batches=0).fit(module, datamodule=data)
    for name, parameter in module.network.named_parameters():
        assert bool(torch.isfinite(parameter).all())
        if parameter.dim() > 1:  # in bfloat16 a scale of 1 does not feel a step of 1e-3
            assert not torch.equal(parameter.float(), before[name]), name


def test_the_option_of_the_command(lws, tmp_path, capsys):
    options = ("--model", "LearnedWeightSharing", "--model.network", "digits_convnet", "--data", "Digits", *QUIET)
    lws("fit", *options, "--data.batch_size", 4, "--model.max_images_per_pass", 32, "--trainer.max_steps", 2,
        "--trainer.val_check_interval", 2, "--trainer.default_root_dir", tmp_path)  # fmt: skip
    (config,) = tmp_path.rglob("config.yaml")
    assert "max_images_per_pass: 32" in config.read_text()
    with pytest.raises(SystemExit):
        lws("fit", "--model.help", "LearnedWeightSharing")
    assert "--model.max_images_per_pass" in capsys.readouterr().out
