"""Hits and misses: the measured points of a prediction, and the intervals that held."""

import dataclasses

import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import track_record
from rnn_scaling.analysis.prediction.curves import PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.from_rows import make_measured_series
from rnn_scaling.analysis.prediction.track_record import CheckedPoint
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.records.predictions import Predicted
from tests.support.scaling_runs import run


def make_rows(rates):
    """Return a series of single runs, given their rates by number of devices."""
    [series] = make_measured_series(
        build_rows([run(n, rate) for n, rate in rates.items()])
    )
    return series


def predict_series(series, *devices, low=0.9, high=1.1):
    points = []
    for n in devices:
        rate = Interval(1000.0 * n, 1000.0 * n * low, 1000.0 * n * high)
        points.append(PredictedPoint(n, rate, None, {}))
    prediction = Prediction(series.curve, tuple(points), {"ring": 1.0})
    return track_record.make_kept_prediction(prediction, series.rows, "now", "1")


def list_cases(kept, *all_series):
    rows = [series.rows for series in all_series]
    return [*track_record.find_cases(kept, rows).values()]


FIRST = make_rows({1: 1000.0, 2: 1900.0})
LATER = make_rows({1: 1000.0, 2: 1900.0, 4: 3800.0, 8: 5000.0})


def test_a_point_that_came_later_is_inside_or_outside():
    cases = list_cases([predict_series(FIRST, 2, 4, 8, 16)], FIRST, LATER)
    hits = {case.point.devices: case.is_hit for case in cases}
    assert hits == {4: True, 8: False}
    assert [case.statement().kind for case in cases] == ["predict-hit", "predict-miss"]
    assert {case.statement().values["fitted"] for case in cases} == {2}
    total = track_record.summarize(cases).values
    assert total["cases"] == 2
    assert total["held"] == 1
    assert total["error"] == pytest.approx((400 / 380 + 800 / 500) / 2 - 1)
    assert track_record.summarize([]).kind == "track-record-none"


def test_only_the_series_with_all_fitted_runs_counts():
    kept = [predict_series(FIRST, 4)]
    assert not list_cases(kept, make_rows({1: 1000.0, 2: 1910.0, 4: 3800.0}))
    assert not list_cases(kept, make_rows({1: 1000.0, 4: 3800.0}))
    assert not list_cases(kept, FIRST)
    assert len(list_cases(kept, make_rows({1: 70.0, 4: 90.0}), LATER)) == 1


def test_series_that_share_their_baseline_have_their_own_cases():
    fast = {1: 1000.0, 2: 1900.0}
    slow = {1: 1000.0, 2: 1800.0}
    all_series = [make_rows({**fast, 4: 3800.0}), make_rows({**slow, 4: 3000.0})]
    for fitted, rate in ((fast, 3800.0), (slow, 3000.0)):
        [case] = list_cases([predict_series(make_rows(fitted), 4)], *all_series)
        assert case.measured.value == pytest.approx(rate)


def test_equal_predictions_count_once_and_fitted_points_never():
    kept = [
        predict_series(FIRST, 4),
        predict_series(FIRST, 4),
        predict_series(FIRST, 4, low=0.8),
    ]
    assert len(list_cases(kept, LATER)) == 2
    assert [point.devices for point in predict_series(LATER, 4, 16).predicted] == [16]


@pytest.mark.parametrize("rate, is_hit", [(90.1, True), (89.9, False)])
def test_a_hit_is_inside_the_interval(rate, is_hit):
    point = Predicted(devices=4, rate=100.0, low=90.0, high=110.0)
    assert (
        CheckedPoint(predict_series(FIRST, 4), point, Interval(rate)).is_hit == is_hit
    )


def test_all_runs_of_the_rows_count_as_fitted_and_more_runs_keep_the_case():
    runs = [run(1, 1000.0), run(2, 1900.0), run(2, 1910.0), run(4, 1.0, "failed")]
    [series] = make_measured_series(build_rows(runs))
    kept = predict_series(series, 4)
    counts = {fitted.devices: len(fitted.rates) for fitted in kept.fitted}
    assert counts == {1: 1, 2: 2}
    [later] = make_measured_series(build_rows([*runs, run(2, 1920.0), run(4, 3700.0)]))
    assert len(list_cases([kept], later)) == 1
    without_baseline = later.rows[1:]  # its rows still refer to it
    assert len(track_record.find_cases([kept], [without_baseline])) == 1


def test_a_prediction_for_machines_is_only_compared_with_runs_on_that_number():
    for_one_machine = dataclasses.replace(predict_series(FIRST, 4), machines=1)
    for_two_machines = dataclasses.replace(for_one_machine, machines=2)
    assert len(list_cases([for_one_machine], LATER)) == 1
    assert not list_cases([for_two_machines], LATER)
