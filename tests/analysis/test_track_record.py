"""Hits and misses: which measured points judge a prediction, and when an interval held."""

from __future__ import annotations

import dataclasses
import math

import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import track_record
from rnn_scaling.analysis.prediction.curves import Curve, MeasuredPoint, PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.track_record import Case
from rnn_scaling.analysis.rows import with_baselines
from rnn_scaling.records.predictions import Predicted
from tests.support.scaling_runs import run


def curve(**rates):
    points = tuple(MeasuredPoint(int(name[1:]), rate) for name, rate in rates.items())
    return Curve("a", "words", "weak", points, source="t.md:3")


def predicted(made, *devices, low=0.9, high=1.1):
    points = [PredictedPoint(n, Interval(100.0 * n, 100.0 * n * low, 100.0 * n * high), None, {}) for n in devices]
    prediction = Prediction(made, tuple(points), {"ring": 1.0})
    return track_record.as_kept(prediction, track_record.of_curve(made), "now", "1")


def judged(kept, *curves):
    return track_record.judge(kept, [track_record.of_curve(c) for c in curves])


FIRST = curve(n1=100.0, n2=190.0)
LATER = curve(n1=100.0, n2=190.0, n4=380.0, n8=500.0)


def test_a_point_that_came_later_is_inside_or_outside():
    cases = judged([predicted(FIRST, 2, 4, 8, 16)], FIRST, LATER)
    assert [(case.point.devices, case.is_hit, case.fitted) for case in cases] == [(4, True, 2), (8, False, 2)]
    assert [case.statement().kind for case in cases] == ["predict-hit", "predict-miss"]
    total = track_record.tally(cases).values
    assert (total["cases"], total["held"], total["error"]) == (2, 1, pytest.approx((400 / 380 + 800 / 500) / 2 - 1))
    assert [s.values["factor"] for s in track_record.by_factor(cases)] == [1, 2]
    assert track_record.tally([]).kind == "track-record-none" and not track_record.by_factor([])


def test_only_the_series_with_all_fitted_runs_judges():
    kept = [predicted(FIRST, 4)]
    assert not judged(kept, curve(n1=100.0, n2=191.0, n4=380.0))
    assert not judged(kept, curve(n1=100.0, n4=380.0))
    assert not judged(kept, FIRST)
    assert len(judged(kept, curve(n1=7.0, n4=9.0), LATER)) == 1


@pytest.mark.parametrize("shared", range(100, 120))  # the order of a set of runs is random
def test_series_that_share_a_run_are_judged_apart(shared):
    """As every series of speedups has 1.00 on one device."""
    early, late = ({"n1": shared, "n2": second} for second in (190.0, 180.0))
    curves = [curve(**early, n4=380.0), curve(**late, n4=300.0)]
    for fitted, rate in ((early, 380.0), (late, 300.0)):
        [case] = judged([predicted(curve(**fitted), 4)], *curves)
        assert case.measured.value == rate


def test_equal_predictions_count_once_and_fitted_points_never():
    kept = [predicted(FIRST, 4), predicted(FIRST, 4), predicted(FIRST, 4, low=0.8)]
    assert len(judged(kept, LATER)) == 2
    fitted = predicted(LATER, 4, 16)
    assert [point.devices for point in fitted.predicted] == [16]
    forged = dataclasses.replace(fitted, predicted=predicted(FIRST, 4).predicted)
    assert not judged([forged], LATER)


@pytest.mark.parametrize("times, is_hit", [(1.0, True), (0.901, True), (0.899, False), (1.099, True), (1.101, False)])
def test_a_rate_without_noise_is_compared_as_it_is(times, is_hit):
    point = Predicted(devices=4, rate=100.0, low=90.0, high=110.0)
    assert Case(predicted(FIRST, 4), point, Interval(100 * times)).is_hit == is_hit


def test_the_noise_of_the_measurement_widens_the_side():
    point = Predicted(devices=4, rate=100.0, low=90.0, high=110.0)
    side, margin = math.log(1.1), 0.05
    limit = 100 * math.exp(math.hypot(side, margin))
    for rate, is_hit in ((limit * 0.999, True), (limit * 1.001, False)):
        noisy = Interval(rate, rate * math.exp(-margin), rate * math.exp(margin))
        assert Case(predicted(FIRST, 4), point, noisy).is_hit == is_hit
        rounded = Interval(rate).printed(margin)
        assert Case(predicted(FIRST, 4), point, rounded).is_hit == is_hit


def test_rows_are_measured_with_all_their_runs_and_their_baseline():
    rows = with_baselines([run(1, 1000.0), run(2, 1900.0), run(2, 1910.0), run(4, 1.0, "failed")])
    measured = track_record.of_rows(rows)
    assert [(n, len(fitted.rates)) for n, (_, fitted) in measured.items()] == [(1, 1), (2, 2)]
    assert track_record.of_rows(rows[1:]).keys() == {1, 2}
