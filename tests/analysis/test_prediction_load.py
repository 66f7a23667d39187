"""Predictions from runs that other programs slowed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.load_correction import make_record
from rnn_scaling.analysis import load_correction
from rnn_scaling.analysis.prediction import from_rows, track_record
from rnn_scaling.analysis.prediction.curves import Prediction
from rnn_scaling.analysis.prediction.sizing import Sizes
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.reports import prediction as report
from rnn_scaling.reports.json_data import make_interval_data
from rnn_scaling.reports.wording import format_marks
from tests.analysis.test_load_correction import remove_own_shares

FACTORS = (0.99, 1.0, 1.01)


def true_rate(devices):
    """Return a rate whose efficiency falls by 4 points or so per device."""
    return 100 * devices / (1 + 0.04 * (devices - 1))


def runs_on(devices, own=1.0, factors=FACTORS):
    """Return runs that had a share of their cores."""
    rate = true_rate(devices) * own
    return [make_record(devices, rate * factor, own, 1 - own, 0) for factor in factors]


def make_series(runs):
    [series] = from_rows.make_measured_series(build_rows(runs))
    return series


def kinds(series):
    return {each.kind: each.values["devices"] for each in series.assumptions}


def test_corrected_points_are_marked_and_have_the_error_of_the_correction():
    series = make_series([*runs_on(1), *runs_on(2), *runs_on(4, own=0.5)])
    one, two, four = series.curve.points
    assert kinds(series) == {"predict-corrected": [4]}
    assert [point.is_corrected for point in series.curve.points] == [False, False, True]
    assert four.error > 2 * two.error
    assert make_interval_data(four.interval)["corrected"] is True
    text = report.format_text(
        report.PredictionReport("x", (series.predict([8]),), sizes=(Sizes(),))
    )
    [line] = [line for line in text.splitlines() if line.startswith("|       4 ")]
    assert line.count(format_marks(four.interval)) == 2
    assert f"- {format_marks(four.interval)} " in text


def test_a_single_corrected_run_still_has_the_error_of_its_correction():
    runs = [*runs_on(1, factors=[1]), *runs_on(2, own=0.5, factors=[1])]
    one, two = make_series(runs).curve.points
    assert one.error is None
    assert two.error > load_correction.CORRECTION_ERROR * 0.9 * math.log(2)


def test_slowed_points_are_left_out_if_two_others_remain():
    slowed = list(map(remove_own_shares, runs_on(4, own=0.5)))
    series = make_series([*runs_on(1), *runs_on(2), *slowed])
    assert [point.devices for point in series.curve.points] == [1, 2]
    assert [row.num_devices for row in series.rows] == [1, 2]
    assert kinds(series) == {"predict-left-out-load": [4]}


def test_corrected_and_slowed_points_are_never_mixed():
    """With one rate that can be corrected, both rates contain the load."""
    slowed = list(map(remove_own_shares, runs_on(2, own=0.5)))
    series = make_series([*runs_on(1, own=0.5), *slowed])
    one, two = series.curve.points
    assert not one.is_corrected
    assert one.rate == pytest.approx(true_rate(1) / 2, rel=0.01)
    assert two.rate == pytest.approx(true_rate(2) / 2, rel=0.01)
    assert kinds(series) == {"predict-with-load": [2]}


def test_the_step_time_belongs_to_the_corrected_rate():
    quiet = make_series([*runs_on(1), *runs_on(2)]).curve.knowledge
    corrected = make_series([*runs_on(1, own=0.5), *runs_on(2)]).curve.knowledge
    assert corrected.step_s == pytest.approx(quiet.step_s, rel=0.05)
    # Their scatter is due to the other programs.
    assert quiet.step_times
    assert not corrected.step_times


def test_a_loaded_run_does_not_judge_a_prediction():
    quiet = build_rows([*runs_on(1), *runs_on(2), *runs_on(4)])
    loaded = build_rows([*runs_on(1), *runs_on(2), *runs_on(4, own=0.5)])
    predicted: Prediction = make_series([*runs_on(1), *runs_on(2)]).predict([4])
    kept = track_record.make_kept_prediction(predicted)
    assert len(track_record.find_cases([kept], [quiet])) == 1
    assert not track_record.find_cases([kept], [loaded])


def test_predictions_from_corrected_points_contain_the_truth():
    """Simulate a busy program beside the runs on two and four devices."""
    random = np.random.default_rng(5)
    inside = 0
    for _ in range(25):
        runs = []
        for devices, own in ((1, 1.0), (2, 0.6), (4, 0.7)):
            error = load_correction.CORRECTION_ERROR * math.log(1 / own)
            shared = math.exp(error * random.standard_t(11))
            factors = shared * np.exp(0.01 * random.normal(size=3))
            runs += runs_on(devices, own, factors)
        [point] = make_series(runs).predict([8]).points
        low, high = point.rate.ends
        inside += low <= true_rate(8) <= high
    assert inside >= 22
