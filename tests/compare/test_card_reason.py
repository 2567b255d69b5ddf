"""What a model card says of how its network was chosen."""

from types import SimpleNamespace

import pytest

from lws_lightning.compare.ending import _chosen


@pytest.mark.parametrize(
    ("best", "reason", "use"),
    [
        ("full", "full, which had the lowest validation error.", "The test images chose nothing."),
        (
            "learned",
            "full, which has fewer parameters than learned, of the lowest validation error, and is at most a point "
            "worse by the whole 95 % interval.",
            "The test images decided this and nothing else.",
        ),
    ],
)
def test_a_card_says_what_the_test_images_were_used_for(best, reason, use):
    run = SimpleNamespace(validation=12.345, best=SimpleNamespace(step=1200))
    sentences = _chosen(SimpleNamespace(recommended="full", best=best), [run], run)
    assert sentences[0] == f"The comparison recommends {reason}"
    assert sentences[-1] == use
