"""Whether a search has decided."""

import pytest

from lws_lightning.drawing.assignment import DECIDED as DRAWN_AS_DECIDED
from lws_lightning.records import DECIDED, Decisions, probabilities_by_copy


def test_pictures_and_records_have_the_same_threshold():
    assert DRAWN_AS_DECIDED == DECIDED


def test_only_layers_with_a_choice_count():
    assert Decisions.of(None) is None
    assert Decisions.of([[[1.0], [1.0]]]) is None
    found = Decisions.of([[[1.0], [1.0]], [[0.9, 0.1], [0.11, 0.89]], [[0.5, 0.5], [0.05, 0.95]]])
    assert found == Decisions(4, 2)
    assert found.to_json() == {"choices": 4, "undecided": 2, "settled": False}
    assert Decisions.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("undecided", "settled", "says"),
    [(0, True, "settled, all 20 choices"), (2, True, "settled, but 2 of 20"), (3, False, "not settled: 3 of 20")],
)
def test_a_tenth_may_be_open(undecided, settled, says):
    decisions = Decisions(20, undecided)
    assert decisions.settled == settled
    assert str(decisions).startswith(says)


def test_padding_is_not_a_copy():
    padded = [[[0.5, 0.5, 0.0]], [[0.2, 0.3, 0.5]]]
    assert probabilities_by_copy(padded, [2, 3]) == [[[0.5, 0.5]], [[0.2, 0.3, 0.5]]]
