"""Axes that show the points and say where they begin, intervals that say when they are cut, one sign for a loss."""

from __future__ import annotations

import dataclasses
import re
import warnings

import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import EFFICIENCY, RATE, SPEEDUP
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import curves, figures, waterfall
from tests.support.scaling_runs import attributed, of, timed


def interval(value, low=None, high=None):
    return Interval(value, low, high, "", None, 0.0, ())


def texts(svg):
    return [re.sub(r"<[^>]+>", "", each) for each in re.findall(r"<text.*?</text>", svg, re.DOTALL)]


def test_numbers_near_each_other_have_an_axis_that_shows_them_and_says_where_it_begins():
    near = curves.frame([interval(v, v - 0.03, v + 0.03) for v in (0.9, 0.92, 0.95, 0.97)], 100, [100.0])
    assert 80 <= near.low <= 87 and 100 <= near.high <= 105 and not near.cuts
    assert near.start == f"axis from {near.low:g}, not from 0"
    far = curves.frame([interval(0.9), interval(0.3)], 100, [100.0])
    assert (far.low, far.start) == (0, "") and far.high > 100


def test_an_interval_much_wider_than_its_number_is_cut_and_the_picture_says_so():
    wide = curves.frame([interval(1.0, 0.01, 50.0), interval(1.0, 0.9, 1.1)], 1)
    assert wide.cuts and wide.high < 3
    runs = [timed(n, rate, variable_update="replicated") for n, rate in ((1, 100), (1, 240), (2, 100), (2, 400))]
    made = of(runs)
    narrow = of(attributed()).measured
    said = [texts(curves.lines(each, RATE.named_after("words"), legend=True)) for each in (made.measured, narrow)]
    assert [any("beyond the frame" in text for text in each) for each in said] == [True, False]


def test_what_grows_with_the_devices_is_drawn_from_0_and_efficiency_is_not():
    series = of([timed(n, 95 * n, k) for n in (1, 2) for k in range(3)]).measured
    assert curves.frame_of(series, RATE.named_after("words")).low == curves.frame_of(series, SPEEDUP).low == 0
    assert curves.frame_of(series, EFFICIENCY).low > 80
    drawn = texts(curves.lines(series, EFFICIENCY))
    assert any(text.startswith("devices (vertical axis from 9") for text in drawn)
    assert any(text.startswith("axis from 9") for text in texts(curves.dots(series, "d")))


@pytest.fixture
def loss():
    return next(each for each in of(attributed()).measured if "replicated" in each.title).largest.loss


def test_a_waterfall_tells_losses_as_the_tables_do_and_marks_bars_that_do_not_begin_at_0(loss):
    drawn = texts(waterfall.waterfall(loss, "w"))
    points = {plus_minus(part.points, 1) for part in loss.told}
    assert {text.split(" ± ")[0] for text in points} == {"20.0", "10.0"}
    assert {*points, "200", "140 (70.0 %)", "words/s (axis from 100, not from 0)"} <= set(drawn)
    assert waterfall.frame_of(loss).low == 100
    gaps = waterfall.waterfall(loss, "w").count(f"stroke: {figures.PAPER}")
    assert gaps == 4, "two strokes through each of the two bars that begin at 0"
    half = of(
        [
            timed(n, rate, k, variable_update=mode)
            for mode in ("independent",)
            for n, rate in ((1, 100), (2, 60))
            for k in range(3)
        ]
    )
    lost = half.measured[0].largest.loss
    assert waterfall.frame_of(lost).low == 0 and figures.PAPER not in waterfall.waterfall(lost, "w")


def test_a_gain_is_below_0_and_green():
    rates = {("independent", 1): 100, ("independent", 2): 160, ("replicated", 1): 80, ("replicated", 2): 150}
    made = of([timed(n, rate, k, variable_update=mode) for (mode, n), rate in rates.items() for k in range(3)])
    split = next(each for each in made.measured if "replicated" in each.title).largest.loss
    svg = waterfall.waterfall(split, "w")
    assert figures.GAIN in svg and any(text.startswith("\u221213.8") for text in texts(svg))


@pytest.mark.parametrize("metrics", [1, 2, 3, 4, 5])
def test_the_picture_has_no_panel_without_a_metric(metrics, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *rest, **options: drawn.append(figure))
    monkeypatch.setattr(figures, "drawn", lambda series: [RATE.named_after("words")] * metrics)
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
        drawn = texts(curves.lines(made.measured, SPEEDUP, legend=True))
        curves.render(made)
    assert {each.strip() for each in drawn} >= set(names)
