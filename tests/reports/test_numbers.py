"""A number for a person has as many digits as its interval allows, and one function makes it for every view."""

from __future__ import annotations

import pytest

from rnn_scaling.analysis.confidence import Interval, over_processes
from rnn_scaling.reports import loss_text, numbers


def interval(value, low, high):
    return Interval(value, low, high, "", 1.0, 2.0, (3,))


@pytest.mark.parametrize(
    "value, low, high, digits, text",
    [
        (13831.26, 12293.69, 15368.83, 1, "13,800 ± 1,500"),
        (70.0, 69.19, 70.81, 1, "70.0 ± 0.8"),
        (1.89, 1.70, 2.08, 2, "1.89 ± 0.19"),
        (88.3, 67.1, 117.2, 1, "88 [67, 117]"),
        (11.7, -17.2, 32.9, 1, "12 [-17, 33]"),
        (0.3, -17.2, 32.9, 1, "0 [-17, 33]"),
        (1.23456, 1.23426, 1.23486, 2, "1.2346 ± 0.0003"),
        (-0.004, -1.0, 1.0, 1, "0.0 ± 1.0"),
        (20000.0, 1.0, 1645000.0, 1, "20,000 [0, 1,640,000]"),
    ],
)
def test_an_interval_says_how_many_digits_its_number_has(value, low, high, digits, text):
    assert numbers.plus_minus(interval(value, low, high), digits) == text


def test_a_number_without_an_interval_has_four_digits():
    assert [numbers.plain(value, 1) for value in (13831.26, 88.31, 0.0, 100.0)] == ["13,830", "88.3", "0.0", "100.0"]
    assert numbers.plus_minus(over_processes([13831.26]), 1) == "13,830" and numbers.plus_minus(None, 1) == "n/a"


def test_a_number_and_its_complement_are_printed_alike():
    for low, high in ((67.1, 117.2), (80, 97), (85, 92), (20, 400)):
        value = (low * high) ** 0.5
        efficiency, loss = interval(value, low, high), interval(100 - value, 100 - high, 100 - low)
        assert numbers.has_ends(efficiency) == numbers.has_ends(loss)


def test_points_are_rounded_up_to_what_can_be_remembered():
    assert [loss_text.rounded_up(points) for points in (3.2, 0.31, 12.01, 2.0)] == ["4", "0.4", "13", "2"]
