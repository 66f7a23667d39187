"""alpha + bytes / beta, quantiles, neighbours and rounds: numbers without a clock."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from rnn_scaling.links import rounds, series, table
from rnn_scaling.links.series import (
    ALL_REDUCE,
    MEMORY,
    Point,
    Series,
    busbw_gb_per_s,
    join_passes,
    list_sizes,
)

SIZES = list_sizes(4, 2**28, 4)


def line(alpha_us, beta_gb_per_s, sizes=SIZES):
    return [1e-6 * alpha_us + n / beta_gb_per_s / 1e9 for n in sizes]


def test_sizes_end_at_the_largest():
    assert SIZES[0] == 4 and SIZES[-1] == 2**28 and len(SIZES) == 14
    assert list_sizes(4, 100, 3) == [4, 12, 36]


def test_a_line_is_found_exactly():
    result = series.fit_line(SIZES, line(12.5, 7.25))
    assert (result.alpha_us, result.beta_gb_per_s) == pytest.approx((12.5, 7.25))
    assert max(result.alpha_error_us, result.beta_error_gb_per_s) < 1e-6
    assert result.largest_residual < 1e-9
    assert result.seconds(1e9) == pytest.approx(12.5e-6 + 1 / 7.25)


def test_the_standard_error_covers_the_truth_as_often_as_it_should():
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(300):
        times = np.array(line(30, 8)) * (1 + 0.05 * rng.standard_normal(len(SIZES)))
        result = series.fit_line(SIZES, times.tolist())
        inside += abs(result.alpha_us - 30) <= result.alpha_error_us
    # 68 % of a normal, 66 % of Student's t with 12 degrees of freedom.
    assert 0.58 < inside / 300 < 0.76


def test_bytes_that_are_counted_twice_take_the_same_time():
    points = tuple(Point(n, (t,)) for n, t in zip(SIZES, line(30, 8)))
    once, twice = (
        Series(MEMORY, "copy", points, traffic=n).fit_medians() for n in (1, 2)
    )
    assert (once.beta_gb_per_s, twice.beta_gb_per_s) == pytest.approx((8, 16))
    for fit in (once, twice):
        assert fit.seconds(2**20) == pytest.approx(30e-6 + 2**20 / 8e9)


def test_a_time_that_does_not_grow_has_no_bandwidth():
    times = [
        1e-6 * t for t in itertools.islice(itertools.cycle([100, 101, 99]), len(SIZES))
    ]
    result = series.find_best_fit(SIZES, times)
    assert result.beta_gb_per_s is None
    assert result.alpha_us == pytest.approx(100, rel=0.02)
    assert result.seconds(2**28) == pytest.approx(1e-4, rel=0.02)


def test_where_the_line_holds_is_computed():
    times = line(50, 10)
    for index in range(5):
        times[index] /= 2  # Small transfers are faster.
    result = series.find_best_fit(SIZES, times)
    assert result.holds
    assert result.from_bytes == SIZES[5]
    assert result.beta_gb_per_s == pytest.approx(10)


def test_two_bandwidths_are_no_line():
    """A cache, then memory: every window has a break in it or too few points."""
    sizes = SIZES[-5:]
    times = [n / 100e9 for n in sizes[:3]] + [n / 10e9 for n in sizes[3:]]
    result = series.find_best_fit(sizes, times)
    assert not result.holds and result.num_points == 5


def test_a_negative_alpha_does_not_hold():
    times = [n / 10e9 * (1 - 3e4 / (n + 1e5)) for n in SIZES[7:]]
    result = series.fit_line(SIZES[7:], times)
    assert (
        result.alpha_us < -2 * result.alpha_error_us
        or result.largest_residual > series.MAX_FIT_RESIDUAL
    )
    assert not result.holds


def test_what_cannot_be_fitted():
    assert series.find_best_fit(SIZES[:3], line(1, 1, SIZES[:3])) is None
    for sizes, times in (
        ([4, 8], [1, 2]),
        ([4, 4, 4], [1, 1, 1]),
        ([16, 8, 4], [3, 2, 1]),
        ([4, 8, 16], [1, 0, 1]),
    ):
        with pytest.raises(ValueError, match="expected"):
            series.fit_line(sizes, times)


def test_bus_bandwidth_is_nccl_s():
    assert busbw_gb_per_s(8 * 10**9, 2.0, 4) == pytest.approx(4 * 2 * 3 / 4)
    assert busbw_gb_per_s(100, 1.0, 1) == 0
    with pytest.raises(ValueError):
        busbw_gb_per_s(1, 0.0, 2)


def test_passes_become_one_series():
    first = Series(
        ALL_REDUCE, "x", (Point(4, (1.0,), wrong=0), Point(8, (2.0,), wrong=3)), ranks=2
    )
    second = Series(
        ALL_REDUCE, "x", (Point(4, (3.0,), wrong=None),), ranks=2, error="hung"
    )
    both = join_passes([first, second])
    assert [(p.num_bytes, p.seconds, p.wrong) for p in both.points] == [
        (4, (1.0, 3.0), None),
        (8, (2.0,), 3),
    ]
    assert both.error == "hung"


def test_rounds_interleave_and_end_at_the_budget():
    order = []
    times = {"a": 1.0, "b": 10.0}

    def job(name):
        return SimpleNamespace(seconds=lambda: order.append(name) or times[name])

    done = []
    result = rounds.measure_rounds(
        [job("a"), job("b")], 6, 25.0, lambda n, seen: done.append(n)
    )
    assert result == [[1.0] * 6, [10.0] * 3] and done == [1, 2, 3, 4, 5, 6]
    assert all(set(order[i : i + 2]) == {"a", "b"} for i in (0, 2, 4))
    again = rounds.measure_rounds([job("a"), job("b")], 2, 0.0)
    assert [len(each) for each in again] == [2, 2]


def test_short_calls_are_repeated_within_a_repeat():
    now = itertools.count(0.0, 0.0001).__next__
    job = rounds.prepare(lambda: None, clock=now)
    assert job.calls == 19 or job.calls == 20
    calls = []
    ticks = itertools.count(0.0, 5.0).__next__
    counted = rounds.RoundJob(lambda: calls.append(1), 10, ticks)
    assert counted.seconds() == pytest.approx(0.5)
    assert len(calls) == 11  # One call is made before the clock starts.
    long = rounds.prepare(lambda: None, clock=itertools.count(0.0, 1.0).__next__)
    assert long.calls == 1


def test_passes_that_measured_different_machines_are_noted():
    def part(factor):
        return Series(
            ALL_REDUCE,
            "x",
            tuple(Point(n, (factor * t,)) for n, t in zip(SIZES, line(10, 1))),
            ranks=2,
        )

    assert join_passes([part(1.0), part(1.2)]).notes == ()
    assert "took 1.50 times" in join_passes([part(1.0), part(1.5)]).notes[0]
    assert "took 0.50 times" in join_passes([part(1.0), part(0.5)]).notes[0]
    assert join_passes([part(1.0)]).notes == ()


def test_values_are_written_to_the_second_digit_of_their_error():
    written = {
        (268.24, 2.19): "268.2 ± 2.2",
        (0.426, 0.12): "0.43 ± 0.12",
        (-0.007, 20.6): "0 ± 21",
    }
    written |= {
        (12345.6, 1000.0): "12,346 ± 1,000",
        (5.0, 0.0): "5.000 ± 0.000",
        (5.0, 1e-7): "5.000 ± 0.000",
    }
    assert {pair: table._round_to_error(*pair) for pair in written} == written
