"""Axes that show the points and say where they begin; one sign for a loss."""

from __future__ import annotations

import dataclasses
import re
import warnings

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.records.options import Options
from rnn_scaling.reports import curves, scaling_data
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page import drawings
from rnn_scaling.reports.pictures import charts
from tests.support.scaling_runs import attributed, of, timed


def chart(runs, name):
    [group] = scaling_data.groups(of(runs))
    return next(group.chart(metric) for metric in group.drawn if metric.name == name)


def texts(svg):
    return [
        re.sub(r"<[^>]+>", "", text)
        for text in re.findall(r"<text.*?</text>", svg, re.DOTALL)
    ]


def test_an_axis_shows_numbers_near_each_other_and_cuts_wide_intervals():
    near = [Interval(value, value - 3, value + 3) for value in (90, 92, 95, 97)]
    low, high = charts.frame(near, [100.0], charts.NEAR)
    assert 80 <= low <= 87 and 100 <= high <= 105
    low, high = charts.frame([Interval(90), Interval(30)], [100.0], charts.NEAR)
    assert low == 0 and high > 100
    wide = [Interval(1.0, 0.01, 50.0), Interval(1.0, 0.9, 1.1)]
    assert charts.frame(wide, [], charts.NEAR)[1] < 3


def test_a_picture_names_a_cut_interval_and_an_axis_that_does_not_begin_at_0():
    steady = [timed(n, 95 * n, k) for n in (1, 2) for k in range(3)]
    rates = ((1, 100), (1, 240), (2, 100), (2, 400))
    unsteady = [timed(n, rate, variable_update="replicated") for n, rate in rates]
    for name, runs, notes in (
        ("words_per_second", steady, 0),
        ("speedup", steady, 0),
        ("efficiency", steady, 1),
        ("words_per_second", unsteady, 1),
    ):
        drawn = chart(runs, name)
        assert len(drawn.notes) == notes
        assert all(
            any(note in text for text in texts(charts.svg(drawn, "n")))
            for note in drawn.notes
        )


@pytest.mark.parametrize(("counts", "style"), [((1, 2), "none"), ((1, 2, 4), "-")])
def test_two_numbers_of_devices_are_dots_and_three_are_lines(
    counts, style, monkeypatch
):
    looks = []
    monkeypatch.setattr(Axes, "errorbar", lambda *_, **look: looks.append(look))
    runs = [timed(n, 95 * n, k) for n in counts for k in range(3)]
    charts.svg(chart(runs, "speedup"), "n")
    assert [look["linestyle"] for look in looks] == [style]


def loss_of(runs):
    series = of(runs).measured
    return next(s for s in series if "replicated" in s.title).largest_row.loss


@pytest.fixture
def bars(monkeypatch):
    """(row, end towards 0, other end) of each bar that is drawn."""
    drawn = []

    def barh(_, row, width, left, **look):
        drawn.append((row, left, left + width))

    monkeypatch.setattr(Axes, "barh", barh)
    monkeypatch.setattr(
        drawings.bars, "legend", lambda axes: dict.fromkeys(drawings.COLOURS)
    )
    monkeypatch.setattr(Figure, "legend", lambda *_, **__: None)
    return drawn


def test_a_loss_is_drawn_with_the_numbers_of_the_tables(monkeypatch):
    loss = loss_of(attributed())
    drawn = texts(drawings.losses_svg([("mine", loss)]))
    whole = plus_minus(loss.loss_points, 1)
    assert {"mine", "exchange 20.0", "contention 10.0", whole} <= set(drawn)


def test_the_bars_of_all_series_have_one_axis(bars):
    loss = loss_of(attributed())
    drawings.losses_svg([("a", loss), ("b", loss)])
    for row in (0, 1):
        own = [(left, right) for y, left, right in bars if y == row]
        assert own[0][0] == 0
        assert [right for _, right in own[:-1]] == [left for left, _ in own[1:]]
        assert own[-1][1] == pytest.approx(loss.loss_points.value)


def test_a_gain_is_left_of_0(bars):
    rates = {
        ("independent", 1): 100,
        ("independent", 2): 160,
        ("replicated", 1): 80,
        ("replicated", 2): 150,
    }
    runs = [
        timed(n, rate, k, variable_update=mode)
        for (mode, n), rate in rates.items()
        for k in range(3)
    ]
    drawings.losses_svg([("a", loss_of(runs))])
    assert [(start, round(end, 1)) for _, start, end in bars] == [(0, 20.0), (0, -13.8)]


@pytest.mark.parametrize("metrics", [1, 3, 4])
def test_the_picture_has_no_panel_without_a_metric(metrics, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)
    )
    made = of([timed(n, 95 * n, k) for n in (1, 2) for k in range(3)])
    [group] = scaling_data.groups(made)
    few = dataclasses.replace(group, drawn=[group.drawn[0]] * metrics)
    monkeypatch.setattr(curves, "groups", lambda _: [few])
    curves.render(made)
    assert len(drawn[0].axes) == metrics


def test_a_name_is_a_name_whatever_letters_it_has():
    """Neither mathematics, nor a line without a legend, nor warnings of a font."""
    names = ("$\\frac{$", "_mine", "\u8bad\u7ec3")
    runs = [
        dataclasses.replace(
            timed(n, 100 * n), options=Options({"trainer": name, "num_devices": n})
        )
        for name in names
        for n in (1, 2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = of(runs)
        curves.render(made)
        drawn = []
        for group in scaling_data.groups(made):
            drawn += texts(charts.svg(group.chart(group.drawn[0]), "n"))
    assert {text.strip() for text in drawn} >= set(names)
