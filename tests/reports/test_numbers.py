"""A number for a person has as many digits as its interval allows, and one function makes it for every view."""

import random
import re

import pytest

from rnn_scaling.analysis.confidence import (
    Interval,
    compute_interval_over_runs,
    divide_rates,
)
from rnn_scaling.analysis.interval_kinds import Basis, EnergySource, IntervalKind, Note
from rnn_scaling.reports import series_statements, wording
from rnn_scaling.reports.wording import format_interval_kind


def interval(value, low, high):
    return Interval(value, low, high, IntervalKind(), 1.0, 2.0, (3,))


@pytest.mark.parametrize(
    "value, low, high, digits, text",
    [
        (13831.26, 12293.69, 15368.83, 1, "13,800 ± 1,500"),
        (1.89, 1.70, 2.08, 2, "1.89 ± 0.19"),
        (88.3, 67.1, 117.2, 1, "88.3 [67.1, 117.2]"),
        (0.3, -17.2, 32.9, 1, "0.3 [-17.2, 32.9]"),
        (1.23456, 1.23426, 1.23486, 2, "1.2346 ± 0.0003"),
        (-0.004, -1.0, 1.0, 1, "0.0 ± 1.0"),
    ],
)
def test_an_interval_says_how_many_digits_its_number_has(
    value, low, high, digits, text
):
    assert wording.format_interval(interval(value, low, high), digits) == text


def test_rounding_errors_are_no_interval():
    runs = compute_interval_over_runs([0.3, 0.1 + 0.2, 0.3])
    assert runs.half_width > 0
    assert wording.format_interval(runs.scaled(1000), 1) == "300.0"


def test_a_number_without_an_interval_has_four_digits():
    assert [
        wording.format_plain(value, 1) for value in (13831.26, 88.31, 0.0, 100.0)
    ] == ["13,830", "88.3", "0.0", "100.0"]
    assert (
        wording.format_interval(compute_interval_over_runs([13831.26]), 1) == "13,830"
    )
    assert wording.format_interval(None, 1) == "n/a"


def read_value(cell):
    return float(re.match(r"[\d,.]+", cell)[0].replace(",", ""))


def find_half_unit(cell):
    """Half a unit of the last digit of a number with a point."""
    return 0.5 * 10.0 ** -len(re.match(r"[\d,]+(?:\.(\d+))?", cell)[1] or "")


def test_every_printed_ratio_holds_within_the_printed_rounding():
    random_ = random.Random(3)
    for _ in range(500):
        scatter, n, mean = (
            10 ** random_.uniform(-3, 0.5),
            random_.choice([2, 3, 8]),
            10 ** random_.uniform(1.5, 6),
        )
        k = random_.randint(1, 4)
        one, many = (
            compute_interval_over_runs(
                [mean * grown * 10 ** random_.gauss(0, scatter / 4) for _ in range(k)]
            )
            for grown in (1, n * random_.uniform(0.4, 1.1))
        )
        speedup = divide_rates(many, one)
        rates = [wording.format_interval(rate, 1) for rate in (one, many)]
        printed, efficiency = (
            wording.format_interval(value, digits)
            for value, digits in ((speedup, 2), (speedup.scaled(100 / n), 1))
        )
        found = read_value(rates[1]) / read_value(rates[0])
        # Each number is accurate to 0.5 %: trailing zeros may or may not be significant.
        assert abs(found - read_value(printed)) <= 0.0101 * found + find_half_unit(
            printed
        ), (
            rates,
            printed,
        )
        off = 100 / n * find_half_unit(printed) + find_half_unit(efficiency)
        assert (
            abs(100 / n * read_value(printed) - read_value(efficiency)) <= off + 1e-9
        ), (
            printed,
            efficiency,
        )


def test_runs_that_differ_by_a_factor_get_that_factor_and_no_interval_that_says_nothing():
    one, many = (
        compute_interval_over_runs([14342 * 1.9, 14342 / 1.9]),
        compute_interval_over_runs([16656 * 2.3, 16656 / 2.3]),
    )
    cells = [
        wording.format_interval(value, digits)
        for value, digits in ((one, 1), (many, 1), (divide_rates(many, one), 2))
    ]
    assert [read_value(cell) for cell in cells] == [14342, 16656, 1.16]
    assert [re.findall(r"[\d.]+", cell)[-1] for cell in cells] == [
        "3.61",
        "5.29",
        "5.29",
    ]
    assert many.high > 1e8  # as data the interval stays
    assert "[" in wording.format_interval(compute_interval_over_runs([100, 130]), 1)
    shared = divide_rates(one, compute_interval_over_runs([10.0, 10.0])).scaled(50)
    assert shared.is_wide and shared.spread == pytest.approx(3.61)


def test_a_number_and_its_complement_are_printed_alike():
    for low, high in ((67.1, 117.2), (80, 97), (85, 92), (20, 400)):
        value = (low * high) ** 0.5
        efficiency, loss = (
            interval(value, low, high),
            interval(100 - value, 100 - high, 100 - low),
        )
        assert wording.has_ends(efficiency) == wording.has_ends(loss)


def test_points_are_rounded_up_to_what_can_be_remembered():
    assert [
        series_statements.round_up(points) for points in (3.2, 0.31, 12.01, 2.0)
    ] == ["4", "0.4", "13", "2"]


def test_each_kind_of_interval_has_words():
    for basis in Basis:
        text = format_interval_kind(IntervalKind(basis, (3, 5)))
        assert bool(text) == (basis is not Basis.UNKNOWN)
    notes = (Note.POOLED, Note.PRINTED)
    energy = EnergySource(("package",), (("dram", "needs root"),))
    runs = IntervalKind(Basis.RUNS, (3, 5), notes, energy)
    assert len(format_interval_kind(runs).split("; ")) == 5
