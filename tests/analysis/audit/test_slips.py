"""Slips: the likeliest one is named; it costs more, the more numbers it could produce."""

import pytest

from rnn_scaling.analysis.audit import slips
from rnn_scaling.records import cell_numbers
from rnn_scaling.records.tables.measurements import CellNumber, CellPosition


def find_cheapest_slip(printed, low, high, devices=1.0):
    number = cell_numbers.parse_cell(printed)
    item = CellNumber(number, CellPosition(0, 0), number.low, number.high)
    return slips.find_cheapest(item, (low, high), devices)


@pytest.mark.parametrize(
    "printed, right, name",
    [
        ("3.18", 3.78, "one digit wrong"),
        ("3.87", 3.78, "digits exchanged"),
        ("37.8", 3.78, "decimal point one place off"),
        ("0.95", 95.0, "percent and fraction mixed"),
        ("480", 8.0, "unit of another size"),
        ("0.92", 7.35, "of one device, not of all"),
    ],
)
def test_the_slip_that_explains_a_number(printed, right, name):
    slip = find_cheapest_slip(printed, right * 0.999, right * 1.001, devices=8.0)
    assert slip and slip[1] == name


def test_a_number_that_no_slip_explains():
    assert find_cheapest_slip("5.43", 1.21, 1.22) is None


def test_more_digits_make_a_slip_dearer():
    assert find_cheapest_slip("31", 71, 71) < find_cheapest_slip("31234", 71234, 71234)
