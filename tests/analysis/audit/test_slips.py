"""Slips: the likeliest one is named, its price grows with what else it could have made."""

from __future__ import annotations

import pytest

from rnn_scaling.analysis.audit import slips
from rnn_scaling.records import printed_number


@pytest.mark.parametrize(
    ("printed", "right", "name"),
    [
        ("3.18", 3.78, "one digit wrong"), ("3.87", 3.78, "digits exchanged"),
        ("37.8", 3.78, "decimal point one place off"),
        ("0.95", 95.0, "percent and fraction mixed"), ("0.25", 4.0, "inverse"), ("480", 8.0, "unit of another size"),
    ],
)  # fmt: skip
def test_the_slip_that_explains_a_number(printed, right, name):
    slip = slips.cheapest(printed_number.parse(printed), right * 0.999, right * 1.001)
    assert slip and slip.name == name


def test_a_number_that_no_slip_explains():
    assert slips.cheapest(printed_number.parse("5.43"), 1.21, 1.22) is None


def test_more_digits_make_a_slip_dearer():
    short, long = (
        slips.cheapest(printed_number.parse(text), value, value)
        for text, value in (("31", 71), ("31234", 71234))
    )
    assert short and long and short.bits < long.bits


def test_devices_and_other_rows():
    assert slips.cheapest(
        printed_number.parse("0.92"), 7.3, 7.4, devices=8
    ).name.startswith("of one device")
    assert (
        slips.cheapest(
            printed_number.parse("68.8"), 59.0, 60.0, values={68.8: 2, 70.1: 1}
        ).name
        == "copied from another row"
    )
