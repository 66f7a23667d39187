"""Axes that show the points and say where they begin, intervals that say when they are cut, one sign for a loss."""

from __future__ import annotations

import dataclasses
import re
import warnings

import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import EFFICIENCY, RATE, SPEEDUP
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import curves, figures, losses
from tests.support.scaling_runs import attributed, of, timed


def interval(value, low=None, high=None):
    return Interval(value, low, high, "", None, 0.0, ())


def texts(svg):
    return [
        re.sub(r"<[^>]+>", "", each)
        for each in re.findall(r"<text.*?</text>", svg, re.DOTALL)
    ]


def test_numbers_near_each_other_have_an_axis_that_shows_them_and_says_where_it_begins():
    near = curves.frame(
        [interval(v, v - 0.03, v + 0.03) for v in (0.9, 0.92, 0.95, 0.97)], 100, [100.0]
    )
    assert 80 <= near.low <= 87 and 100 <= near.high <= 105 and not near.cuts
    assert near.start == f"axis from {near.low:g}, not from 0"
    far = curves.frame([interval(0.9), interval(0.3)], 100, [100.0])
    assert (far.low, far.start) == (0, "") and far.high > 100


def test_an_interval_much_wider_than_its_number_is_cut_and_the_picture_says_so():
    wide = curves.frame([interval(1.0, 0.01, 50.0), interval(1.0, 0.9, 1.1)], 1)
    assert wide.cuts and wide.high < 3
    runs = [
        timed(n, rate, variable_update="replicated")
        for n, rate in ((1, 100), (1, 240), (2, 100), (2, 400))
    ]
    made = of(runs)
    narrow = of(attributed()).measured
    said = [
        texts(curves.lines(each, RATE.named_after("words")))
        for each in (made.measured, narrow)
    ]
    assert [any("beyond the frame" in text for text in each) for each in said] == [
        True,
        False,
    ]


def test_what_grows_with_the_devices_is_drawn_from_0_and_efficiency_is_not():
    series = of([timed(n, 95 * n, k) for n in (1, 2) for k in range(3)]).measured
    assert (
        curves.frame_of(series, RATE.named_after("words")).low
        == curves.frame_of(series, SPEEDUP).low
        == 0
    )
    assert curves.frame_of(series, EFFICIENCY).low > 80
    drawn = texts(curves.lines(series, EFFICIENCY))
    assert any(text.startswith("devices (vertical axis from 9") for text in drawn)


def test_two_numbers_of_devices_are_dots_and_three_are_lines():
    for counts, line in (((1, 2), "none"), ((1, 2, 4), "-")):
        series = of([timed(n, 95 * n, k) for n in counts for k in range(3)]).measured
        assert {look["linestyle"] for look in curves.looks(series)} == {line}


@pytest.fixture
def loss():
    return next(
        each for each in of(attributed()).measured if "replicated" in each.title
    ).largest.loss


def test_a_loss_is_drawn_with_the_numbers_of_the_tables(loss):
    drawn = texts(losses.losses([("mine", loss)], "l"))
    assert {
        "mine",
        "exchange 20.0",
        "contention 10.0",
        plus_minus(loss.loss_points, 1),
    } <= set(drawn)


@pytest.fixture
def bars(monkeypatch):
    """(row, end towards 0, other end) of each bar that is drawn."""
    from matplotlib.axes import Axes

    drawn = []
    monkeypatch.setattr(
        Axes,
        "barh",
        lambda axes, y, width, left, **look: drawn.append((y, left, left + width)),
    )
    return drawn


def test_the_bars_of_all_series_have_one_axis(bars, loss):
    losses.losses([("a", loss), ("b", loss)], "l")
    for row in (0, 1):
        own = [(left, right) for y, left, right in bars if y == row]
        assert own[0][0] == 0 and [right for _, right in own[:-1]] == [
            left for left, _ in own[1:]
        ]
        assert own[-1][1] == pytest.approx(loss.loss_points.value)


def test_a_gain_is_left_of_0(bars):
    rates = {
        ("independent", 1): 100,
        ("independent", 2): 160,
        ("replicated", 1): 80,
        ("replicated", 2): 150,
    }
    made = of(
        [
            timed(n, rate, k, variable_update=mode)
            for (mode, n), rate in rates.items()
            for k in range(3)
        ]
    )
    split = next(
        each for each in made.measured if "replicated" in each.title
    ).largest.loss
    losses.losses([("a", split)], "l")
    assert [(start, round(end, 1)) for _, start, end in bars] == [(0, 20.0), (0, -13.8)]


@pytest.mark.parametrize("metrics", [1, 2, 3, 4, 5])
def test_the_picture_has_no_panel_without_a_metric(metrics, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *rest, **options: drawn.append(figure)
    )
    monkeypatch.setattr(
        figures, "drawn", lambda series: [RATE.named_after("words")] * metrics
    )
    curves.render(of([timed(n, 95 * n, k) for n in (1, 2) for k in range(3)]))
    assert len(drawn[0].axes) == metrics


def test_a_name_is_a_name_whatever_letters_it_has():
    """Neither mathematics, nor a line without a legend, nor warnings of letters that a font lacks."""
    names = ("$\\frac{$", "_mine", "\u8bad\u7ec3")
    runs = [timed(n, 100 * n) for n in (1, 2)]
    made = of(
        [
            dataclasses.replace(r, config={"trainer": name, "num_devices": k})
            for name in names
            for k, r in enumerate(runs, 1)
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = texts(curves.lines(made.measured, SPEEDUP))
        curves.render(made)
    assert {each.strip() for each in drawn} >= set(names)
