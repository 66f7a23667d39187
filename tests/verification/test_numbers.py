"""Distances and fits of gradients' sketches that are not finite."""

import math

import numpy as np
import pytest

from rnn_scaling.verification import numbers

FINITE = np.array([1.0, 2.0])
OVERFLOWED = np.array([1.0, math.inf])


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        (FINITE, FINITE + 1, math.sqrt(2)),
        (FINITE, OVERFLOWED, math.inf),
        (OVERFLOWED, FINITE, math.inf),
        (OVERFLOWED, OVERFLOWED, 0.0),
    ],
)
def test_a_tensor_that_overflows_on_one_side_is_infinitely_far(first, second, distance):
    with np.errstate(all="raise"):
        found = numbers.distances({"w": first}, {"w": second})
    assert found["w"] == pytest.approx(distance)


def test_nothing_explains_numbers_that_are_not_finite():
    for target, term in ((OVERFLOWED, FINITE), (FINITE, OVERFLOWED)):
        weights, residual = numbers.fit({"w": target}, [{"w": term}])
        assert weights == [0.0]
        assert residual == math.inf
