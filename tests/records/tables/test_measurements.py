"""The numbers of a table's columns: their units, their positions and their range."""

import math

import pytest

from rnn_scaling.records.tables import measurements, text_tables
from tests.support.audit_tables import table


def find_column(cells, name):
    rows = [f"{devices}|{100 * devices}|{cell}" for devices, cell in cells]
    lines = table(f"GPUs|img/s|{name}", *rows).splitlines()
    [found] = text_tables.find_tables("x", enumerate(lines, 1))
    [layout] = measurements.read(found)
    return next(column for column in layout.columns if column.name == name)


def test_a_value_has_the_unit_of_its_column_even_if_its_bound_is_zero():
    column = find_column([(1, "-1 %"), (2, "-2 %"), (4, "5 %")], "change")
    values = [item.value for item in column.items]
    assert values == pytest.approx([-0.01, -0.02, 0.05])


def test_the_range_of_rough_numbers_is_that_of_the_printed_ones():
    column = find_column([(1, "~11"), (2, "~20")], "seconds")
    assert column.inner_range == pytest.approx(math.log(20 / 11))
