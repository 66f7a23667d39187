"""Predictions: known models, intervals, refused curves; the closed form of an exchange against its messages."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from benchmarks import prediction_coverage
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction import averaging, models
from rnn_scaling.analysis.prediction.averaging import known_terms
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
    MOST_FITTED,
    answer,
    efficiency_without,
    fitted_points,
    predict,
)

# Words/s on 1 to 8 GPUs of the five timing tables of seeds/002.
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
    "independent, dynamic": (
        43397.6,
        83107.8,
        122065.8,
        160924.6,
        197847.0,
        230339.9,
        255199.9,
    ),
    "server, cuDNN": (
        56011.2,
        106185.6,
        157653.4,
        204871.5,
        249886.4,
        294399.1,
        351269.9,
        360629.8,
    ),
    "server, dynamic": (
        43022.9,
        82039.3,
        118870.8,
        154377.0,
        188543.3,
        222249.8,
        254344.1,
        276234.7,
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


def refusal(*arguments):
    with pytest.raises(CannotPredict) as caught:
        predict(*arguments)
    return caught.value.statement.kind


@pytest.mark.parametrize("table", TIMING_TABLES)
def test_timing_tables(table):
    rates = TIMING_TABLES[table]
    for point in predict(curve(rates[:4]), range(5, len(rates) + 1)).points:
        rate = point.rate
        assert rate.low <= rates[point.devices - 1] <= rate.high
        assert rate.low >= 0.75 * rate.value
        assert rate.high <= 1.25 * rate.value


@pytest.mark.parametrize(
    "rates",
    [
        *(TURNS_OVER[:k] for k in range(4, 9)),
        (1.0, 1.8, 2.28, 1.8),
        (1.0, 0.8),
        (1.0, 1.9, 2.7, 2.72),
        (*TURNS_OVER[:3], 12_000),
    ],
)
def test_curves_that_stop_growing_are_not_extrapolated_as_growth(rates):
    try:
        points = predict(curve(rates), (len(rates) + 1, 2 * len(rates), 64)).points
    except CannotPredict as refused:
        assert refused.statement.kind == "prediction-stops-growing"
    else:
        assert all(point.rate.value <= max(rates) for point in points)


def test_the_answer_is_about_the_most_devices_whose_interval_is_not_wide():
    def told(*predicted):
        points = [
            PredictedPoint(n, Interval(n, n / ratio, n * ratio), Interval(0.5), {})
            for n, ratio in predicted
        ]
        made = answer(Prediction(curve((1.0, 2.0)), tuple(points), {}))
        return [s.values["devices"] for s in made if s.kind == "predict-rate"]

    assert told((4, 1.1), (8, 1.9), (16, 2.5), (64, 9.0)) == [8, 64]
    assert told((4, 1.1), (64, 1.5)) == [64]
    assert told((4, 3.0), (64, 9.0)) == [64]


def needed(efficiency, **parts):
    """Return what the answer says about an efficiency of 90 %."""
    rate = Interval(2.0, 1.9, 2.1)
    point = PredictedPoint(4, rate, efficiency, {**dict.fromkeys(PARTS, 0.0), **parts})
    return answer(Prediction(curve((1.0, 2.0)), (point,), {}))[-1]


def test_parts_are_removed_from_a_step_and_not_from_its_efficiency():
    """Losses of 0.2, 0.3 and 0.5 of the computing time: a step takes 2, efficiency 50 %."""
    points = {"contention": 0.2 / 2, "exchange": 0.3 / 2, "fixed cost": 0.5 / 2}
    assert efficiency_without(0.5, points["exchange"]) == pytest.approx(1 / 1.7)
    said = needed(Interval(0.5, 0.4, 0.6), **points)
    assert said.kind == "predict-needs-more"
    assert said.values["without"] == pytest.approx(1 / 1.5)


def test_a_needed_factor_makes_the_step_that_short():
    losses = {"exchange": 0.2, "contention": 0.05}
    efficiency = 1 / 1.25
    parts = {name: loss * efficiency for name, loss in losses.items()}
    said = needed(Interval(efficiency, 0.7, 0.85), **parts)
    assert said.kind == "predict-needs"
    shorter = 1 + 0.2 / said.values["factor"] + 0.05
    assert 1 / shorter == pytest.approx(0.9)
    unsplit = needed(Interval(0.722, 0.525, 0.871), **{"not split": 0.278})
    assert unsplit.kind == "predict-needs-unsplit"
    assert unsplit.values["factor"] == pytest.approx(3.5, abs=0.05)


@pytest.mark.parametrize(
    ("low", "value", "kind"),
    [
        (0.91, 0.95, "predict-is-efficient"),
        (0.89, 0.95, "predict-may-be-efficient"),
        (0.85, 0.89, "predict-needs"),
    ],
)
def test_no_change_is_needed_only_if_the_whole_interval_is_efficient(low, value, kind):
    lost = {"exchange": 1 - value}
    assert needed(Interval(value, low, 0.99), **lost).kind == kind


def test_each_machine_brings_its_own_cores_and_memory():
    alone = tuple(
        MeasuredPoint(n, n * rate, 0.01, 4.0) for n, rate in ((1, 1.0), (2, 0.9))
    )

    def at_64(independent=(), **knowledge):
        known = Knowledge(cores=2, independent=independent, **knowledge)
        [point], said = (
            (made := predict(Curve("a", "words", WEAK, alone, known), [64])).points,
            made.statements,
        )
        return point, {statement.kind: statement.values for statement in said}

    for knowledge in (
        {"algorithm": "none"},
        {"algorithm": "ring", "independent": alone},
    ):
        shared, said = at_64(**knowledge)
        assert shared.rate.value < 2 and said["prediction-cores"]["cores"] == 2
        spread, said = at_64(**knowledge, devices_per_machine=2)
        assert spread.efficiency.value > 0.7 and "prediction-cores" not in said
        assert spread.parts["contention"] < 0.1
    assert at_64(algorithm="none", devices_per_machine=2)[
        0
    ].efficiency.value == pytest.approx(0.9, abs=0.02)
    assert at_64(algorithm="none", devices_per_machine=4)[0].efficiency.value < 0.5, (
        "four share two cores"
    )


def test_replicas_that_share_cores_lose_them_once():
    alone = tuple(
        MeasuredPoint(n, rate, 0.01, 4.0) for n, rate in ((1, 1.0), (2, 2.0), (4, 2.0))
    )
    [term] = known_terms(
        Curve(
            "a",
            "words",
            WEAK,
            alone,
            Knowledge(cores=2, algorithm="ring", independent=alone),
        )
    )
    assert term.shape(np.array([2.0, 4.0])) == pytest.approx([0, 0], abs=0.02)


def test_replicas_without_an_exchange_lose_nothing_to_it():
    [point] = predict(
        curve((1.0, 1.8, 2.5), (1, 2, 4), algorithm="none", summed_bytes=0.0), [64]
    ).points
    assert point.parts["exchange"] == 0 < point.parts["contention"]


def test_within_the_measured_numbers_a_stopped_curve_is_interpolated():
    assert predict(curve(TURNS_OVER[:4]), [3]).points[0].devices == 3


def test_ordinary_noise_is_not_refused():
    rng = np.random.default_rng(3)
    for _ in range(20):
        rates = [
            n / (1 + 0.05 * math.log2(n)) * math.exp(0.02 * rng.standard_normal())
            for n in range(1, 9)
        ]
        predict(curve(rates), [16])


@pytest.mark.parametrize(
    ("rates", "devices", "wanted", "kind"),
    [
        ((1.0,), (1,), 2, "prediction-few-points"),
        ((), (), 2, "prediction-few-points"),
        ((1.0, 0.0), (1, 2), 4, "prediction-bad-rate"),
        ((1.0, math.nan), (1, 2), 4, "prediction-bad-rate"),
        ((1.9, 3.7), (2, 4), 1, "prediction-below-measured"),
    ],
)
def test_bad_input_is_refused(rates, devices, wanted, kind):
    assert refusal(curve(rates, devices), [wanted]) == kind


def test_a_point_that_is_left_out_takes_its_own_squares_along():
    """The closed form is what the sums over the other points give."""
    rng = np.random.default_rng(4)
    d = rng.normal(0.0, 0.02, (7, 5))
    w = rng.uniform(1.0, 3.0, 5)
    _, location, squares = averaging._integrated(d, w)
    for i, found in enumerate(averaging._without_each(d, w, location, squares)):
        others = np.delete(np.arange(5), i)
        expected = averaging._integrated(d[:, others], w[others])[0]
        assert found == pytest.approx(expected)


def test_many_points_are_fitted_by_a_sample_that_is_named():
    n = np.arange(1, 401)
    many = curve(n / (1 + 0.004 * (n - 1)))
    fitted = fitted_points(many)
    assert len(fitted) <= MOST_FITTED
    assert (fitted[0], fitted[-1]) == (many.points[0], many.points[-1])
    made = predict(many, [800])
    assert made.curve.points == many.points
    assert made.points[0].rate.value == pytest.approx(800 / 4.196, rel=0.03)
    said = {statement.kind: statement.values for statement in made.statements}
    assert said["prediction-sampled"] == {"fitted": len(fitted), "measured": 400}
    few = predict(curve([point.rate for point in many.points[:8]]), [16])
    assert "prediction-sampled" not in [said.kind for said in few.statements]


@pytest.mark.parametrize("scaling", [WEAK, STRONG])
@pytest.mark.parametrize("size", [0.0, 0.02, 0.3])
def test_curves_of_one_term_are_recovered(scaling, size):
    terms = models.STRONG_TERMS if scaling == STRONG else models.WEAK_TERMS
    for term in map(
        terms.get,
        terms.keys()
        & (models.STRONG_MODELS if scaling == STRONG else models.WEAK_MODELS),
    ):
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
    for rates in ((100.0, 190, 270), (100.0, 205, 310)):
        for knowledge in (
            {},
            exchange,
            {**exchange, "step_times": np.linspace(0.09, 0.11, 50)},
            {"cores": 4},
        ):
            for point in predict(curve(rates, **knowledge), (3, 8, 64)).points:
                assert set(point.parts) == set(PARTS)
                assert sum(point.parts.values()) == pytest.approx(
                    1 - point.efficiency.value, abs=1e-12
                )


def test_the_unit_of_the_rate_changes_nothing():
    one, other = (
        predict(curve([unit * r for r in (10, 19, 27, 34)]), [8, 64])
        for unit in (1, 4096.0)
    )
    for a, b in zip(one.points, other.points):
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
    points = curve((10, 19, 27, 34)).points
    noisy = tuple(dataclasses.replace(point, error=0.1, degrees=2) for point in points)
    sure, unsure = (
        predict(dataclasses.replace(curve(()), points=p), [8]).points[0].rate
        for p in (points, noisy)
    )
    assert unsure.high / unsure.low > 1.4 * sure.high / sure.low


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
    blind, seeing = (
        predict(curve(rates, (1, 2, 4), **knowledge, links=links), [8, 16])
        for links in ((), LINKS)
    )
    assert seeing.points[1].rate.value == pytest.approx(rate(16), rel=0.05)
    assert seeing.points[1].parts["exchange"] > 0.1
    assert "prediction-topology-unknown" in [
        statement.kind for statement in blind.statements
    ]
    assert "prediction-topology-unknown" not in [
        statement.kind for statement in seeing.statements
    ]
    open_ended = predict(
        curve(rates, (1, 2, 4), **knowledge, links=LINKS[:1]), [8, 16]
    ).statements
    assert [
        s.values["devices"]
        for s in open_ended
        if s.kind == "prediction-crossing-unknown"
    ] == [[16]]


def test_independent_replicas_give_the_contention():
    alone = tuple(MeasuredPoint(n, n / (1.1 if n > 1 else 1)) for n in (1, 2, 4))
    rates = [n / (1 + (0.1 + 0.05 * (n - 1) if n > 1 else 0)) for n in (1, 2, 4)]
    parts = predict(curve(rates, (1, 2, 4), independent=alone), [4]).points[0].parts
    assert parts["contention"] == pytest.approx(0.1 / 1.25, abs=0.03)


@pytest.mark.parametrize(
    ("knowledge", "part"),
    [
        ({}, "not split"),
        ({"algorithm": "parameter_server", "summed_bytes": 1e6}, "exchange"),
        ({"algorithm": "ring", "gathered_bytes": 1e6}, "exchange"),
        ({"algorithm": "ring", "summed_bytes": 0.0}, "fixed cost"),
    ],
)
def test_a_cost_linear_in_n_is_the_exchange_where_that_grows_so(knowledge, part):
    assert models.part_of(models.WEAK_TERMS["linear"], Knowledge(**knowledge)) == part


def test_cores_limit_the_rate():
    point = predict(curve((1.0, 1.98, 3.95), (1, 2, 4), cores=4), [16]).points[0]
    assert point.rate.value < 4.2
    assert point.parts["contention"] > 0.6


def test_longest_of_measured_step_times():
    rng = np.random.default_rng(0)
    times = 1 + 0.1 * rng.standard_normal(4000)
    for n in (1, 4, 64, 100_000):
        draws = np.array([rng.standard_normal(n).max() for _ in range(300)])
        assert models.longest_share(times, np.array([n]))[0] == pytest.approx(
            0.1 * draws.mean(), rel=0.15, abs=0.02
        )


def step_s(messages, links):
    """Seconds of messages (from, to, bytes) that are sent at once: each link's are added up by its two ends."""
    sent, received, alpha = {}, {}, 0.0
    for source, target, num_bytes in messages:
        level = next(
            k
            for k, link in enumerate(links)
            if not link.devices or source // link.devices == target // link.devices
        )
        inside = links[level - 1].devices if level else 1
        alpha = max(alpha, links[level].alpha_s)
        for ends, place in ((sent, source), (received, target)):
            key = (level, place // inside)
            ends[key] = ends.get(key, 0.0) + num_bytes / links[level].bytes_per_s
    return max([*sent.values(), *received.values()], default=0.0) + (
        alpha if messages else 0.0
    )


def messages_of(algorithm, n, size, inside):
    """The steps of an exchange, each a list of messages."""
    if algorithm == "ring":
        return [[(d, (d + 1) % n, size / n) for d in range(n)]] * (2 * (n - 1))
    if algorithm == "parameter_server":
        others = range(1, n)
        return [[(d, 0, size) for d in others], [(0, d, size) for d in others]]
    if algorithm == "tree":
        steps, distance = [], 1
        while distance < n:
            steps.append(
                [(d + distance, d, size) for d in range(0, n - distance, 2 * distance)]
            )
            distance *= 2
        return steps + [[(b, a, s) for a, b, s in step] for step in reversed(steps)]
    machines = max(1, n // inside)
    local = min(n, inside)
    ring = [
        [
            (a * local + d, a * local + (d + 1) % local, size / local)
            for a in range(machines)
            for d in range(local)
        ]
    ]
    between = [
        [
            (a * local, (a + 1) % machines * local, size / machines)
            for a in range(machines)
        ]
    ]
    return ring * (local - 1) + between * (2 * (machines - 1)) + ring * (local - 1)


@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "hierarchical", "parameter_server"]
)
@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 64])
def test_closed_form_is_the_sum_of_the_messages(algorithm, n):
    fast_alpha = (
        dataclasses.replace(LINKS[0], alpha_s=2e-5, bytes_per_s=1e10),
        LINKS[1],
    )  # one alpha: as in a step
    seconds = sum(
        step_s(step, fast_alpha) for step in messages_of(algorithm, n, 1e8, 8)
    )
    assert exchange_s(algorithm, n, 1e8, 0.0, fast_alpha) == pytest.approx(
        seconds, abs=1e-12
    )


def test_gathers_pass_every_link():
    steps = [[(d, (d + 1) % 16, 1e6) for d in range(16)]] * 15
    assert exchange_s("ring", 16, 0.0, 1e6, LINKS) == pytest.approx(
        sum(step_s(step, LINKS) for step in steps)
    )
    assert exchange_s("none", 16, 1e8, 1e6, LINKS) == 0.0


@pytest.mark.parametrize("truth", ["one model's", "two models'"])
def test_intervals_hold_in_simulation(truth):
    summary = prediction_coverage.coverage(truth, (1, 2, 4), 20, seed=5)
    assert summary["refused"] == 0
    assert (
        min(share for name, share in summary.items() if name.startswith("inside"))
        >= 0.9
    )
