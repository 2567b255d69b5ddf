"""What cannot work is refused at start, and an error on one rank is an error on all."""

import pytest
import torch
from distributed_runs import fit
from distributed_small import Uneven, small_trainer
from lightning.pytorch.strategies import (
    DDPStrategy,
    DeepSpeedStrategy,
    FSDPStrategy,
    ModelParallelStrategy,
    ParallelStrategy,
)
from small import learned

from lws_lightning.methods import check_trainer


class Unknown(ParallelStrategy):
    root_device = property(lambda self: torch.device("cpu"))
    barrier = broadcast = model_to_device = reduce = None


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (DDPStrategy(static_graph=True), "static_graph=True cannot work"),
        (DDPStrategy(model_averaging_period=2), "model_averaging_period has no effect"),
        (FSDPStrategy(), "FSDPStrategy cannot work"),
        (ModelParallelStrategy(), "ModelParallelStrategy cannot work"),
        (object.__new__(DeepSpeedStrategy), "DeepSpeedStrategy cannot work"),  # its package is not installed
        (Unknown(), "Unknown is not supported"),
    ],
)
def test_strategies_that_cannot_work_are_refused(tmp_path, strategy, message):
    trainer = small_trainer(tmp_path)
    trainer._accelerator_connector.strategy = strategy  # Lightning itself lets some of them run on GPUs only
    with pytest.raises(ValueError, match=message) as error:
        check_trainer(trainer)
    assert "docs/distributed.md" in str(error.value) or "Leave" in str(error.value)


def test_a_strategy_is_refused_before_data_are_read(tmp_path):
    data = Uneven()
    data.load_tasks = lambda: pytest.fail("data were read")
    trainer = small_trainer(tmp_path, max_steps=1, strategy=DDPStrategy(static_graph=True))
    with pytest.raises(ValueError, match="static_graph"):
        trainer.fit(learned(data), datamodule=data)


@pytest.mark.parametrize("options", [{"sync_batchnorm": True}, {"overfit_batches": 1}])
def test_options_that_cannot_work_with_several_processes(pair, tmp_path, options):
    (option,) = options
    for name, message in pair(fit, tmp_path, trainer={"max_steps": 1, **options}):
        assert name == "ValueError"
        assert f"trainer.{option}" in message


@pytest.mark.parametrize("fault", ["sgd", "nes"])
@pytest.mark.parametrize("distribute", ["examples", "tasks"])
def test_a_loss_that_is_not_finite_on_one_rank_stops_both(pair, tmp_path, fault, distribute):
    results = pair(fit, tmp_path, trainer={"max_steps": 5}, data={"distribute": distribute}, fault=fault)
    for name, message in results:
        assert name == "NonFiniteError"
        assert message.startswith("Step 2")
    assert results[0] == results[1]
    again = pair(fit, tmp_path, trainer={"max_steps": 1})  # nobody waits for an answer to an old question
    assert [each["step"] for each in again] == [1, 1]


@pytest.mark.parametrize(("fault", "named"), [("seed", "the seeds"), ("pi", "pi, weights or running statistics")])
def test_processes_that_do_not_agree_do_not_start(pair, tmp_path, fault, named):
    for name, message in pair(fit, tmp_path, trainer={"max_steps": 1}, fault=fault):
        assert name == "ValueError"
        assert named in message
        assert "do not agree" in message
