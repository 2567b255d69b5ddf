"""A signal that reaches any rank stops all after the same step; given again, the run is the unbroken one."""

import pytest
from distributed_runs import stoppable
from stopped_runs import STATUS, assert_left_the_same, newest


@pytest.fixture(scope="module")
def unbroken(pair, tmp_path_factory):
    """By decay, what each rank of an unbroken run has."""
    return {decay: pair(stoppable, tmp_path_factory.mktemp("unbroken"), decay=decay) for decay in (None, 0.9)}


@pytest.mark.parametrize(
    ("moment", "how", "ranks", "decay"),
    [
        ("nes", "SIGTERM", (0, 1), 0.9),
        ("nes", "SIGINT", (1,), None),
        ("gradient", "SIGUSR1", (1,), 0.9),
        ("update", "SIGINT", (0,), 0.9),
        ("update", "SIGTERM", (1,), None),
        ("before_step", "SIGTERM", (0,), None),
        ("after_step", "SIGUSR1", (0, 1), None),
        ("after_step", "SIGINT", (0, 1), 0.9),
        ("evaluation", "SIGINT", (0,), 0.9),
        ("evaluation", "SIGTERM", (0, 1), 0.9),
        ("evaluation", "SIGUSR1", (1,), None),
        ("evaluation_end", "SIGTERM", (1,), 0.9),
        ("saving", "SIGTERM", (0, 1), None),
        ("saving", "SIGINT", (0,), 0.9),
    ],
)
def test_ranks_stop_together_and_go_on_as_if_nothing_had_been(pair, tmp_path, unbroken, moment, how, ranks, decay):
    stopped = pair(stoppable, tmp_path, strike=(moment, how, ranks), decay=decay)
    assert [code for code, _ in stopped] == [STATUS[how]] * 2
    resumed = pair(stoppable, tmp_path, ckpt_path=str(newest(tmp_path)), decay=decay)
    for (_, images), found, expected in zip(stopped, resumed, unbroken[decay], strict=True):
        found["images"] = images | found["images"]
        assert_left_the_same(found, expected)
