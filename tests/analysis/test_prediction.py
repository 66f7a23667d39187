"""Predictions: known models, intervals, refused curves; the closed form of an exchange against its messages."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks import prediction_coverage
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import averaging, models
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import (
    PARTS,
    STRONG,
    WEAK,
    CannotPredict,
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
    PredictedPoint,
    Prediction,
)
from rnn_scaling.analysis.prediction.predicting import (
    MAX_FITTED,
    answer,
    list_fitted_points,
    predict,
)

# Words/s on 1 to 8 GPUs of two timing tables of seeds/002.
TIMING_TABLES = {
    "independent, cuDNN": (
        55411.4,
        107938.5,
        161488.4,
        210317.1,
        263568.2,
        321945.5,
        367456.2,
        420416.7,
    ),
    "NCCL, dynamic": (
        42953.5,
        80945.0,
        114619.5,
        145385.1,
        168159.6,
        183514.8,
        202794.0,
        210048.4,
    ),
}
TURNS_OVER = (3861, 7832, 11164, 11548, 9254, 7057, 4178, 2812)


def curve(rates, devices=None, scaling=WEAK, **knowledge):
    devices = devices or range(1, len(rates) + 1)
    points = tuple(MeasuredPoint(n, rate) for n, rate in zip(devices, rates))
    return Curve("a", "words", scaling, points, Knowledge(**knowledge))


def values_by_kind(prediction):
    return {statement.kind: statement.values for statement in prediction.statements}


@pytest.mark.parametrize("table", TIMING_TABLES)
def test_timing_tables(table):
    rates = TIMING_TABLES[table]
    for point in predict(curve(rates[:4]), range(5, len(rates) + 1)).points:
        rate = point.rate
        assert rate.low <= rates[point.devices - 1] <= rate.high
        assert rate.low >= 0.75 * rate.value
        assert rate.high <= 1.25 * rate.value


@pytest.mark.parametrize(
    "rates", [TURNS_OVER[:4], TURNS_OVER, (*TURNS_OVER[:3], 12_000)]
)
def test_curves_that_stop_growing_are_not_extrapolated_as_growth(rates):
    try:
        points = predict(curve(rates), (len(rates) + 1, 2 * len(rates), 64)).points
    except CannotPredict as refused:
        assert refused.statement.kind == "prediction-stops-growing"
    else:
        assert all(point.rate.value <= max(rates) for point in points)


def test_the_answer_is_about_the_most_devices_whose_interval_is_not_wide():
    def answered_devices(*predicted):
        points = [
            PredictedPoint(n, Interval(n, n / ratio, n * ratio), Interval(0.5), {})
            for n, ratio in predicted
        ]
        statements = answer(Prediction(curve((1.0, 2.0)), tuple(points), {}))
        return [s.values["devices"] for s in statements if s.kind == "predict-rate"]

    assert answered_devices((4, 1.1), (8, 1.9), (16, 2.5), (64, 9.0)) == [8, 64]
    assert answered_devices((4, 1.1), (64, 1.5)) == [64]
    assert answered_devices((4, 3.0), (64, 9.0)) == [64]


def find_needed(efficiency, **parts):
    """Return the statement about an efficiency of 90 %."""
    rate = Interval(2.0, 1.9, 2.1)
    point = PredictedPoint(4, rate, efficiency, {**dict.fromkeys(PARTS, 0.0), **parts})
    return answer(Prediction(curve((1.0, 2.0)), (point,), {}))[-1]


def test_parts_are_removed_from_a_step_and_not_from_its_efficiency():
    """Losses of 0.2, 0.3 and 0.5 of the computing time: a step takes 2, efficiency 50 %."""
    points = {"contention": 0.2 / 2, "exchange": 0.3 / 2, "fixed cost": 0.5 / 2}
    statement = find_needed(Interval(0.5, 0.4, 0.6), **points)
    assert statement.kind == "predict-needs-more"
    assert statement.values["without"] == pytest.approx(1 / 1.5)


def test_a_needed_factor_makes_the_step_that_short():
    losses = {"exchange": 0.2, "contention": 0.05}
    efficiency = 1 / 1.25
    parts = {name: loss * efficiency for name, loss in losses.items()}
    statement = find_needed(Interval(efficiency, 0.7, 0.85), **parts)
    assert statement.kind == "predict-needs"
    shorter = 1 + 0.2 / statement.values["factor"] + 0.05
    assert 1 / shorter == pytest.approx(0.9)
    unsplit = find_needed(Interval(0.722, 0.525, 0.871), **{"not split": 0.278})
    assert unsplit.kind == "predict-needs-unsplit"
    assert unsplit.values["factor"] == pytest.approx(3.5, abs=0.05)


@pytest.mark.parametrize(
    "low, value, high, kind",
    [
        (0.91, 0.95, 0.99, "predict-is-efficient"),
        (0.89, 0.95, 0.99, "predict-may-be-efficient"),
        (0.01, 0.36, 9.99, "predict-may-be-efficient"),
        (0.85, 0.89, 0.99, "predict-needs"),
    ],
)
def test_a_change_is_needed_unless_the_interval_is_efficient_or_wide(
    low, value, high, kind
):
    lost = {"exchange": 1 - value}
    assert find_needed(Interval(value, low, high), **lost).kind == kind


def test_each_machine_brings_its_own_cores_and_memory():
    replicas = (MeasuredPoint(1, 1.0, 0.01, 4.0), MeasuredPoint(2, 1.8, 0.01, 4.0))

    def at_64(independent=(), **knowledge):
        known = Knowledge(cores=2, independent=independent, **knowledge)
        prediction = predict(Curve("a", "words", WEAK, replicas, known), [64])
        [point] = prediction.points
        return point, values_by_kind(prediction)

    for knowledge in (
        {"algorithm": "none"},
        {"algorithm": "ring", "independent": replicas},
    ):
        point, values = at_64(**knowledge)
        assert point.rate.value < 2
        assert values["prediction-cores"]["cores"] == 2
        point, values = at_64(**knowledge, devices_per_machine=2)
        assert point.efficiency.value > 0.7
        assert "prediction-cores" not in values
        assert point.parts["contention"] < 0.1
    point, _ = at_64(algorithm="none", devices_per_machine=2)
    assert point.efficiency.value == pytest.approx(0.9, abs=0.02)
    point, _ = at_64(algorithm="none", devices_per_machine=4)
    assert point.efficiency.value < 0.5, "four share two cores"


@pytest.mark.parametrize(
    "rates, devices, predicted, kind",
    [
        ((1.0,), (1,), 2, "prediction-few-points"),
        ((1.0, math.nan), (1, 2), 4, "prediction-bad-rate"),
    ],
)
def test_bad_input_is_refused(rates, devices, predicted, kind):
    with pytest.raises(CannotPredict) as caught:
        predict(curve(rates, devices), [predicted])
    assert caught.value.statement.kind == kind


def test_the_density_without_a_point_equals_the_density_of_the_others():
    rng = np.random.default_rng(4)
    d = rng.normal(0.0, 0.02, (7, 5))
    w = rng.uniform(1.0, 3.0, 5)
    _, location, squares = averaging._integrate_location_and_scale(d, w)
    for i, density in enumerate(
        averaging._leave_one_out_densities(d, w, location, squares)
    ):
        expected = averaging._integrate_location_and_scale(
            np.delete(d, i, axis=1), np.delete(w, i)
        )[0]
        assert density == pytest.approx(expected)


def test_many_points_are_fitted_by_a_sample_that_is_named():
    n = np.arange(1, 401)
    many = curve(n / (1 + 0.004 * (n - 1)))
    fitted = list_fitted_points(many)
    assert len(fitted) <= MAX_FITTED
    assert fitted[0] == many.points[0]
    assert fitted[-1] == many.points[-1]
    prediction = predict(many, [800])
    assert prediction.curve.points == many.points
    assert prediction.points[0].rate.value == pytest.approx(800 / 4.196, rel=0.03)
    counts = {"fitted": len(fitted), "measured": 400}
    assert values_by_kind(prediction)["prediction-sampled"] == counts
    few = predict(dataclasses.replace(many, points=many.points[:8]), [16])
    assert "prediction-sampled" not in values_by_kind(few)


@pytest.mark.parametrize("scaling", [WEAK, STRONG])
@pytest.mark.parametrize("size", [0.0, 0.3])
def test_curves_of_one_term_are_recovered(scaling, size):
    terms = {WEAK: models.WEAK_TERMS, STRONG: models.STRONG_TERMS}[scaling]
    names = {WEAK: models.WEAK_MODELS, STRONG: models.STRONG_MODELS}[scaling]
    for term in map(terms.get, terms.keys() & names):
        n = np.array([1.0, 2, 4, 8, 16])
        rates = n / (1 + size * term.shape(n))
        point = predict(curve(rates[:4], (1, 2, 4, 8), scaling), [16]).points[0]
        assert point.rate.low <= rates[4] <= point.rate.high
        assert point.rate.value == pytest.approx(rates[4], rel=0.06)


def test_parts_add_up_to_the_lost_efficiency():
    exchange = {
        "step_s": 0.1,
        "summed_bytes": 1e8,
        "algorithm": "ring",
        "links": (Link(1e-5, 1e10),),
    }
    jitter = {**exchange, "step_times": np.linspace(0.09, 0.11, 50)}
    for rates in ((100.0, 190, 270), (100.0, 205, 310)):
        for knowledge in ({}, exchange, jitter, {"cores": 4}):
            for point in predict(curve(rates, **knowledge), (3, 8, 64)).points:
                assert set(point.parts) == set(PARTS)
                lost = 1 - point.efficiency.value
                assert sum(point.parts.values()) == pytest.approx(lost, abs=1e-12)


def test_the_unit_of_the_rate_changes_nothing():
    small, large = (
        predict(curve([unit * r for r in (10, 19, 27, 34)]), [8, 64])
        for unit in (1, 4096.0)
    )
    for a, b in zip(small.points, large.points):
        assert b.rate.value == pytest.approx(4096 * a.rate.value)
        assert b.rate.low == pytest.approx(4096 * a.rate.low)
        assert b.parts == pytest.approx(a.parts)


def test_intervals_widen_with_devices_and_narrow_with_points():
    def widths(rates):
        return [
            p.rate.high / p.rate.low
            for p in predict(curve(rates), (8, 16, 32, 128)).points
        ]

    rates = [n / (1 + 0.03 * math.log2(n)) for n in range(1, 7)]
    many, few = widths(rates), widths(rates[:2])
    assert many == sorted(many)
    assert all(a < b for a, b in zip(many, few))


def test_measured_errors_count():
    quiet = curve((10, 19, 27, 34))
    points = [dataclasses.replace(p, error=0.1, degrees=2) for p in quiet.points]
    noisy = dataclasses.replace(quiet, points=tuple(points))
    narrow, wide = (predict(c, [8]).points[0].rate for c in (quiet, noisy))
    assert wide.high / wide.low > 1.4 * narrow.high / narrow.low


def test_without_one_device_there_is_no_efficiency():
    point = predict(curve((1.9, 3.7), (2, 4)), [8]).points[0]
    assert point.efficiency is None
    assert point.parts == {}


LINKS = (Link(2e-6, 1e10, 8), Link(2e-5, 1e9))


def test_known_links_predict_where_the_exchange_leaves_the_machine():
    def rate(n):
        return n / (1 + exchange_s("ring", n, 3e7, 0, LINKS) / 0.2)

    knowledge = {"step_s": 0.2, "summed_bytes": 3e7, "algorithm": "ring"}
    rates = [rate(n) for n in (1, 2, 4)]
    without_links, with_links, inside_only = (
        predict(curve(rates, (1, 2, 4), **knowledge, links=links), [8, 16])
        for links in ((), LINKS, LINKS[:1])
    )
    assert with_links.points[1].rate.value == pytest.approx(rate(16), rel=0.05)
    assert with_links.points[1].parts["exchange"] > 0.1
    assert "prediction-topology-unknown" in values_by_kind(without_links)
    assert "prediction-topology-unknown" not in values_by_kind(with_links)
    crossing = values_by_kind(inside_only)["prediction-crossing-unknown"]
    assert crossing["devices"] == [16]


@pytest.mark.parametrize(
    "knowledge, part",
    [
        ({}, "not split"),
        ({"algorithm": "parameter_server", "summed_bytes": 1e6}, "exchange"),
        ({"algorithm": "ring", "gathered_bytes": 1e6}, "exchange"),
        ({"algorithm": "ring", "summed_bytes": 0.0}, "fixed cost"),
    ],
)
def test_a_cost_linear_in_n_is_the_exchange_if_that_grows_linearly(knowledge, part):
    assert (
        models.compute_loss_part(models.WEAK_TERMS["linear"], Knowledge(**knowledge))
        == part
    )


def test_longest_of_measured_step_times():
    rng = np.random.default_rng(0)
    times = 1 + 0.1 * rng.standard_normal(4000)
    for n in (1, 4, 64, 100_000):
        draws = np.array([rng.standard_normal(n).max() for _ in range(300)])
        assert models.compute_longest_share(times, np.array([n]))[0] == pytest.approx(
            0.1 * draws.mean(), rel=0.15, abs=0.02
        )


def step_s(messages, links):
    """Return the seconds of simultaneous messages (from, to, bytes).

    The messages of a link are added up at each of its two ends.
    """
    sent = {}
    received = {}
    alpha = 0.0
    for source, target, num_bytes in messages:
        level = next(
            k
            for k, link in enumerate(links)
            if not link.devices or source // link.devices == target // link.devices
        )
        inside = links[level - 1].devices if level else 1
        alpha = max(alpha, links[level].alpha_s)
        for ends, device in ((sent, source), (received, target)):
            key = (level, device // inside)
            ends[key] = ends.get(key, 0.0) + num_bytes / links[level].bytes_per_s
    return max([*sent.values(), *received.values()], default=0.0) + alpha


def list_messages(algorithm, n, size, inside):
    """Return the steps of an exchange, each a list of messages."""
    if algorithm == "ring":
        return [[(d, (d + 1) % n, size / n) for d in range(n)]] * (2 * (n - 1))
    if algorithm == "parameter_server":
        clients = range(1, n)
        return [[(d, 0, size) for d in clients], [(0, d, size) for d in clients]]
    if algorithm == "tree":
        steps = []
        distance = 1
        while distance < n:
            steps.append(
                [(d + distance, d, size) for d in range(0, n - distance, 2 * distance)]
            )
            distance *= 2
        return steps + [[(b, a, s) for a, b, s in step] for step in reversed(steps)]
    machines = max(1, n // inside)
    local = min(n, inside)
    ring = []
    between = []
    for first in range(0, machines * local, local):
        for d in range(local):
            ring.append((first + d, first + (d + 1) % local, size / local))
        target = (first + local) % (machines * local)
        between.append((first, target, size / machines))
    local_steps = [ring] * (local - 1)
    return local_steps + [between] * (2 * (machines - 1)) + local_steps


@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "hierarchical", "parameter_server"]
)
@pytest.mark.parametrize("n", [1, 4, 8, 64])
def test_closed_form_is_the_sum_of_the_messages(algorithm, n):
    # Both links have the same latency, because `step_s` assumes this.
    links = (dataclasses.replace(LINKS[0], alpha_s=LINKS[1].alpha_s), LINKS[1])
    seconds = sum(step_s(step, links) for step in list_messages(algorithm, n, 1e8, 8))
    closed_form = exchange_s(algorithm, n, 1e8, 0.0, links)
    assert closed_form == pytest.approx(seconds, abs=1e-12)


def test_gathers_pass_every_link():
    steps = [[(d, (d + 1) % 16, 1e6) for d in range(16)]] * 15
    seconds = sum(step_s(step, LINKS) for step in steps)
    assert exchange_s("ring", 16, 0.0, 1e6, LINKS) == pytest.approx(seconds)
    assert exchange_s("none", 16, 1e8, 1e6, LINKS) == 0.0


@pytest.mark.parametrize("truth", ["one model's", "two models'"])
def test_intervals_hold_in_simulation(truth):
    refused, scores = prediction_coverage.simulate(truth, (1, 2, 4), 20, seed=5)
    assert refused == 0
    for score in scores.values():
        assert np.mean(score.inside) >= 0.9
