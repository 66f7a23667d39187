"""The series of tables: which column is measured, and which rows belong together."""

import pytest

from rnn_scaling.records.tables import measurements, text_tables
from rnn_scaling.records.tables.series import find_series
from tests.support.audit_tables import table
from tests.support.paths import GOLDEN


def read_first_layout(text):
    [table] = text_tables.find_tables("x", enumerate(text.splitlines(), 1))
    return measurements.read(table)[0]


def make_series(text):
    """Return the name and the points of each series."""
    found = []
    for series in find_series(read_first_layout(text)):
        points = {point.devices: point.value for point in series.points}
        found.append((series.name, points))
    return found


@pytest.mark.parametrize(
    "cells, are_devices",
    [
        (("1", "2.0", "4", "8"), [True, True, True, True]),
        (("1", "2.5", "4", "8"), [True, False, True, True]),
        (("8120.10", "9980.55", "3.25", "4"), None),
    ],
)
def test_a_number_of_devices_never_has_decimals(cells, are_devices):
    layout = read_first_layout(table("GPUs|img/s", *(f"{cell}|100" for cell in cells)))
    devices = layout.devices
    assert (devices and [bool(item) for item in devices.items]) == are_devices


@pytest.mark.parametrize(
    "name, expected",
    [
        ("group_cells", [("samples/s", [1, 2, 4])] * 2),
        ("user_time", [("Wall Clock Time (s)", [1, 2, 4, 8])]),
        ("two_lengths", [("Throughput (seq/s)", [1, 4, 16])] * 2),
    ],
)
def test_the_series_that_a_document_holds(name, expected):
    path = GOLDEN / "audit/cases" / f"{name}.md"
    found = make_series(path.read_text())
    assert [(name.split(", ")[-1], list(points)) for name, points in found] == expected


def test_parts_of_a_step_are_not_series():
    head = "GPUs|compute (ms)|communication (ms)|step time (ms)"
    rows = ("1|200.0|0.0|200.0", "2|200.4|31.0|231.4", "4|200.9|44.5|245.4")
    [(name, points)] = make_series(table(head, *rows))
    assert name == "step time (ms)"
    assert points == pytest.approx({1: 0.2, 2: 0.2314, 4: 0.2454})
    parts = [row.rpartition("|")[0] for row in (head, *rows)]
    assert make_series(table(*parts)) == []


def test_a_label_that_repeats_the_number_of_devices_separates_nothing():
    rows = ("1x8|1|8|8|800.5", "2x8|2|8|16|1540.2", "4x8|4|8|32|3000.7")
    head = "Config|Nodes|GPUs per node|Total GPUs|img/s"
    [(_, points)] = make_series(table(head, *rows))
    assert list(points) == [8, 16, 32]


def test_names_separate_series():
    rows = ("A100|1|100.5", "A100|2|190.0", "V100|1|60.5", "V100|2|115.5")
    found = make_series(table("GPU type|GPUs|img/s", *rows))
    assert [points for _, points in found] == [
        pytest.approx({1: 100.5, 2: 190.0}),
        pytest.approx({1: 60.5, 2: 115.5}),
    ]
    rows = ("small|1|100.5", "medium|2|90.0", "large|4|60.5")
    assert make_series(table("Model|GPUs|img/s", *rows)) == []
