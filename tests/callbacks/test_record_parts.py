"""The small parts under the callbacks: tags and environment."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lws_lightning.callbacks import tags_of
from lws_lightning.callbacks.environment import hardware, versions


def test_tags():
    assert tags_of(["conv1", "Japanese_(katakana)", "a.b", "été/2"]) == ["conv1", "Japanese__katakana_", "a.b", "été_2"]
    assert tags_of(["a/b", "a_b", "a b", "mean", "/"]) == ["a_b_2", "a_b", "a_b_3", "mean_2", "_"]


@given(st.lists(st.text(max_size=4), unique=True, max_size=8))
def test_tags_are_distinct_and_plain(names):
    tags = tags_of(names)
    assert len(set(tags)) == len(names)
    assert all(tag and tag != "mean" and "/" not in tag and " " not in tag for tag in tags)


def test_environment():
    assert versions()["torch"].split("+")[0] == torch.__version__.split("+")[0]
    machine = hardware(torch.device("cpu"))
    assert machine.gpu is None
    assert machine.cpu
    assert machine.cores >= 1
    assert hardware(torch.device("mps")).gpu == "mps"
