"""Axes of figures: they show all points and their origin; losses have one sign."""

import dataclasses
import itertools
import re
import warnings

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.history.curves import build_timeline
from rnn_scaling.records.options import Options
from rnn_scaling.reports import curves, scaling_data
from rnn_scaling.reports.page import drawings, history
from rnn_scaling.reports.pictures import charts
from rnn_scaling.reports.wording import format_interval
from tests.analysis.test_load_correction import make_runs_beside_busy_process
from tests.support.histories import entry
from tests.support.scaling_runs import (
    make_attributed_runs,
    make_repeats,
    make_runs_at_rates,
    make_timed_run,
    summarise_records,
)


def find_chart(runs, name):
    [group] = scaling_data.list_groups(summarise_records(runs))
    return next(
        group.chart(metric) for metric in group.picture_metrics if metric.name == name
    )


def texts(svg):
    return [
        re.sub(r"<[^>]+>", "", text)
        for text in re.findall(r"<text.*?</text>", svg, re.DOTALL)
    ]


def test_an_axis_shows_numbers_near_each_other_and_cuts_wide_intervals():
    near = [Interval(value, value - 3, value + 3) for value in (90, 92, 95, 97)]
    low, high = charts.choose_frame(near, [100.0], charts.CLOSE_RATIO)
    assert 80 <= low <= 87 and 100 <= high <= 105
    low, high = charts.choose_frame(
        [Interval(90), Interval(30)], [100.0], charts.CLOSE_RATIO
    )
    assert low == 0 and high > 100
    wide = [Interval(1.0, 0.01, 50.0), Interval(1.0, 0.9, 1.1)]
    assert charts.choose_frame(wide, [], charts.CLOSE_RATIO)[1] < 3


def test_a_picture_names_a_cut_interval_and_an_axis_that_does_not_begin_at_0():
    steady = make_repeats({1: 95, 2: 190})
    rates = ((1, 100), (1, 240), (2, 100), (2, 400))
    unsteady = [
        make_timed_run(n, rate, variable_update="replicated") for n, rate in rates
    ]
    for name, runs, notes in (
        ("words_per_second", steady, 0),
        ("speedup", steady, 1),
        ("efficiency", steady, 1),
        ("words_per_second", unsteady, 1),
    ):
        drawn = find_chart(runs, name)
        assert len(drawn.notes) == notes
        assert all(
            any(note in text for text in texts(charts.draw_svg(drawn, "n")))
            for note in drawn.notes
        )


@pytest.fixture
def dots(monkeypatch):
    """Return a list of the drawn points: x, y and the arguments of their look."""
    drawn = []
    monkeypatch.setattr(
        Axes, "errorbar", lambda _, x, y, *__, **look: drawn.append((x, y, look))
    )
    return drawn


def test_three_numbers_of_devices_are_a_line(dots):
    charts.draw_svg(find_chart(make_repeats({1: 95, 2: 190, 4: 380}), "speedup"), "n")
    [(x, _, look)] = dots
    assert len(x) == 3 and look["linestyle"] == "-"


def two_modes(*counts):
    modes = ("independent", "replicated")
    return [
        make_timed_run(n, 95 * n + 5 * k, k, variable_update=mode)
        for mode in modes
        for n in counts
        for k in range(3)
    ]


def test_two_numbers_of_devices_are_a_row_of_dots_with_intervals(dots):
    charts.draw_svg(find_chart(two_modes(1, 2), "words_per_second"), "n")
    rows = [round(y) for _, [y], _ in dots]
    assert rows == [0, 0, 1, 1]
    for (x, _, look), (two, _, filled) in zip(dots[::2], dots[1::2]):
        assert x[0] < two[0] and look["xerr"] and filled["xerr"]
        assert look["markerfacecolor"] == "none" != filled["markerfacecolor"]


@pytest.mark.parametrize("name", ["efficiency", "speedup"])
def test_a_definition_is_no_dot(name, dots):
    """An efficiency on one device is 100 % by definition."""
    charts.draw_svg(find_chart(two_modes(1, 2), name), "n")
    values = [x[0] for x, _, _ in dots]
    assert len(values) == 2 and 100 not in values and 1 not in values
    dots.clear()
    charts.draw_svg(find_chart(two_modes(1), name), "n")
    assert len(dots) == 2, "without another number it is all there is"


def find_loss(runs):
    series = summarise_records(runs).measured
    return next(s for s in series if "replicated" in s.title).largest_loss


@pytest.fixture
def bars(monkeypatch):
    """Return a list of the drawn bars: row, end towards 0, other end."""
    drawn = []

    def barh(_, row, width, left, **look):
        drawn.append((row, left, left + width))

    monkeypatch.setattr(Axes, "barh", barh)
    monkeypatch.setattr(drawings.figures, "add_legend", lambda *_: None)
    return drawn


def test_a_loss_is_drawn_with_the_numbers_of_the_tables(monkeypatch):
    loss = find_loss(make_attributed_runs())
    drawn = texts(drawings.draw_losses_svg([("mine", loss)]))
    whole = format_interval(loss.loss_points, 1)
    assert {"mine", "exchange 20.0", "contention 10.0", whole} <= set(drawn)


def test_the_bars_of_all_series_have_one_axis(bars):
    loss = find_loss(make_attributed_runs())
    drawings.draw_losses_svg([("a", loss), ("b", loss)])
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
    runs = make_runs_at_rates(rates)
    drawings.draw_losses_svg([("a", find_loss(runs))])
    assert [(start, round(end, 1)) for _, start, end in bars] == [(0, 20.0), (0, -13.8)]


def test_a_name_is_a_name_whatever_letters_it_has():
    """Neither mathematics, nor a line without a legend, nor warnings of a font."""
    names = ("$\\frac{$", "_mine", "\u8bad\u7ec3")
    runs = [
        dataclasses.replace(
            make_timed_run(n, 100 * n),
            options=Options({"trainer": name, "num_devices": n}),
        )
        for name in names
        for n in (1, 2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = summarise_records(runs)
        curves.render(made)
        drawn = []
        for group in scaling_data.list_groups(made):
            drawn += texts(charts.draw_svg(group.chart(group.picture_metrics[0]), "n"))
    assert {text.strip() for text in drawn} >= set(names)


def list_drawn_boxes(monkeypatch, render):
    """Return the places of all texts of the figure that `render` draws, by text."""
    boxes = []

    def find_texts(figure, *_):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text().strip():
                boxes.append((text.get_text(), text.get_window_extent()))
        return b""

    monkeypatch.setattr(charts.figures, "draw_to_file", find_texts)
    render()
    return boxes


def assert_apart(boxes):
    for (first, box), (second, other) in itertools.combinations(boxes, 2):
        assert not box.overlaps(other), (first, second)


def test_the_mark_of_a_number_covers_no_name(monkeypatch):
    runs = []
    for mode in ("replicated", "mirrored", "parameter_server"):
        runs += make_runs_beside_busy_process(mode)
    rows = find_chart(runs, "efficiency")
    low, high = rows.frame
    mark_at = rows.row_points[0].points[-1].number.value
    # The names end where the marks begin.
    num_letters = round(108 * (mark_at - low) / (high - low)) + 5
    lines = []
    for line in rows.lines:
        lines.append(dataclasses.replace(line, title="n" * num_letters))
    rows = dataclasses.replace(rows, lines=lines)
    boxes = list_drawn_boxes(monkeypatch, lambda: charts.draw_png(rows))
    assert_apart([box for box in boxes if box[0] == "†" or box[0][0] == "n"])


def test_the_notes_below_a_chart_and_its_legend_are_apart(monkeypatch):
    loaded = dataclasses.replace(
        entry(3).configurations[0], loads=(0.4,), rates=(800.0,)
    )
    entries = [entry(0), entry(1), entry(2), entry(3, configurations=(loaded,))]
    timeline = build_timeline(entries)
    boxes = list_drawn_boxes(monkeypatch, lambda: history.to_png(timeline))
    names = [timeline.curves[0].title, timeline.entries[-1].name]
    named = [box for box in boxes if box[0].startswith(("commit", *names))]
    assert len(named) == 3
    assert_apart(named)


@pytest.mark.parametrize("metrics", [1, 4])
def test_the_picture_has_no_panel_without_a_metric(metrics, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)
    )
    made = summarise_records(make_repeats({1: 95, 2: 190}))
    [group] = scaling_data.list_groups(made)
    few = dataclasses.replace(
        group, picture_metrics=[group.picture_metrics[0]] * metrics
    )
    monkeypatch.setattr(curves, "list_groups", lambda _: [few])
    curves.render(made)
    assert len(drawn[0].axes) == metrics
