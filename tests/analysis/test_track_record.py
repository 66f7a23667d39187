"""Hits and misses: which measured points judge a prediction, and when an interval held."""

from __future__ import annotations

import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import track_record
from rnn_scaling.analysis.prediction.curves import PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.from_rows import series
from rnn_scaling.analysis.prediction.track_record import Case
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.records.predictions import Predicted
from tests.support.scaling_runs import run


def rows_of(rates):
    """The rows of a series of single runs, by devices."""
    [made] = series(build_rows([run(n, rate) for n, rate in rates.items()]))
    return made


def predicted(made, *devices, low=0.9, high=1.1):
    points = [
        PredictedPoint(
            n, Interval(1000.0 * n, 1000.0 * n * low, 1000.0 * n * high), None, {}
        )
        for n in devices
    ]
    return track_record.as_kept(
        Prediction(made.curve, tuple(points), {"ring": 1.0}), made.rows, "now", "1"
    )


def judged(kept, *every):
    return [*track_record.judge(kept, [made.rows for made in every]).values()]


FIRST = rows_of({1: 1000.0, 2: 1900.0})
LATER = rows_of({1: 1000.0, 2: 1900.0, 4: 3800.0, 8: 5000.0})


def test_a_point_that_came_later_is_inside_or_outside():
    cases = judged([predicted(FIRST, 2, 4, 8, 16)], FIRST, LATER)
    assert [(case.point.devices, case.is_hit) for case in cases] == [
        (4, True),
        (8, False),
    ]
    assert [case.statement().kind for case in cases] == ["predict-hit", "predict-miss"]
    assert {case.statement().values["fitted"] for case in cases} == {2}
    total = track_record.tally(cases).values
    assert (total["cases"], total["held"], total["error"]) == (
        2,
        1,
        pytest.approx((400 / 380 + 800 / 500) / 2 - 1),
    )
    assert track_record.tally([]).kind == "track-record-none"


def test_only_the_series_with_all_fitted_runs_judges():
    kept = [predicted(FIRST, 4)]
    assert not judged(kept, rows_of({1: 1000.0, 2: 1910.0, 4: 3800.0}))
    assert not judged(kept, rows_of({1: 1000.0, 4: 3800.0}))
    assert not judged(kept, FIRST)
    assert len(judged(kept, rows_of({1: 70.0, 4: 90.0}), LATER)) == 1


def test_series_that_share_a_run_are_judged_apart():
    """As series that share their baseline."""
    early, late = {1: 1000.0, 2: 1900.0}, {1: 1000.0, 2: 1800.0}
    every = [rows_of({**early, 4: 3800.0}), rows_of({**late, 4: 3000.0})]
    for fitted, rate in ((early, 3800.0), (late, 3000.0)):
        [case] = judged([predicted(rows_of(fitted), 4)], *every)
        assert case.measured.value == pytest.approx(rate)


def test_equal_predictions_count_once_and_fitted_points_never():
    kept = [predicted(FIRST, 4), predicted(FIRST, 4), predicted(FIRST, 4, low=0.8)]
    assert len(judged(kept, LATER)) == 2
    assert [point.devices for point in predicted(LATER, 4, 16).predicted] == [16]


@pytest.mark.parametrize(
    "times, is_hit",
    [(1.0, True), (0.901, True), (0.899, False), (1.099, True), (1.101, False)],
)
def test_a_hit_is_inside_the_interval(times, is_hit):
    point = Predicted(devices=4, rate=100.0, low=90.0, high=110.0)
    assert Case(predicted(FIRST, 4), point, Interval(100 * times)).is_hit == is_hit


def test_all_runs_of_the_rows_count_as_fitted_and_more_runs_keep_the_case():
    runs = [run(1, 1000.0), run(2, 1900.0), run(2, 1910.0), run(4, 1.0, "failed")]
    [made] = series(build_rows(runs))
    kept = predicted(made, 4)
    assert [(fitted.devices, len(fitted.rates)) for fitted in kept.fitted] == [
        (1, 1),
        (2, 2),
    ]
    [again] = series(build_rows([*runs, run(2, 1920.0), run(4, 3700.0)]))
    assert len(judged([kept], again)) == 1
    assert len(track_record.judge([kept], [again.rows[1:]])) == 1, (
        "the baseline of its rows counts, too"
    )
