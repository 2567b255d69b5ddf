"""Every image is counted once, on whichever rank."""

import pytest
from distributed_runs import evaluate, fit


@pytest.mark.parametrize("tasks", [None, ["c"]])  # 11, 9 and 1 images; 1 image, so that rank 1 has none
def test_evaluation_is_that_of_one_process(pair, tmp_path, tasks):
    path = str(tmp_path / "weights.ckpt")
    trainer = {"max_steps": 1, "limit_val_batches": 0}
    fit(tmp_path, "FixedSharing", trainer=trainer, data={"tasks": tasks}, save=path, sharing="none")
    options = {"evaluation_batch_size": 4, "tasks": tasks}
    alone = evaluate(tmp_path, path, **options)
    both = pair(evaluate, tmp_path, path, **options)
    assert both[0]["evaluation"] == both[1]["evaluation"]
    found, expected = both[0]["evaluation"], alone["evaluation"]
    assert found.tasks == expected.tasks
    assert found.error == expected.error
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    assert both[0]["classes"] == both[1]["classes"] == alone["classes"]
    assert both[0]["wrong"] == both[1]["wrong"] == alone["wrong"]
    assert any(alone["wrong"])
    assert sorted(both[0]["seen"] + both[1]["seen"]) == sorted(alone["seen"])


def test_what_is_logged_while_training_is_the_same_on_all_ranks(pair, tmp_path):
    trainer = {"max_steps": 3, "val_check_interval": 1, "check_val_every_n_epoch": None, "log_every_n_steps": 1}
    one, other = pair(fit, tmp_path, trainer=trainer, data={"evaluation_batch_size": 4})
    assert one["logged"] == other["logged"]
    assert one["evaluations"] == other["evaluations"]
    images = {name: task.images for name, task in one["evaluations"]["test_curve"].tasks.items()}
    assert images == {"a": 11, "b": 9, "c": 1}
