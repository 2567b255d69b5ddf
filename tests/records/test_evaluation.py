"""The interval of an error over images."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from lws_lightning.records import wilson_interval


@given(images=st.integers(1, 5000), share=st.floats(0, 1))
def test_the_interval_is_that_of_scipy(images, share):
    wrong = round(share * images)
    expected = binomtest(wrong, images).proportion_ci(0.95, "wilson")
    low, high = wilson_interval(100 * wrong / images, images)
    assert low == pytest.approx(100 * expected.low, abs=1e-9)
    assert high == pytest.approx(100 * expected.high, abs=1e-9)


def test_without_images_everything_is_possible_and_nan_stays_nan():
    assert wilson_interval(0.0, 0) == (0.0, 100.0)
    assert all(math.isnan(end) for end in wilson_interval(math.nan, 10))
