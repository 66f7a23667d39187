"""Intervals hold the truth as often as they say, and say what they are over; no test asserts a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import coverage
from rnn_scaling.analysis import confidence, significance, student


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [  # tables of Student's t
        (0.975, 1, 12.7062047362),
        (0.975, 2, 4.30265272975),
        (0.975, 4, 2.77644510520),
        (0.8, 4, 0.94096457723),
        (0.975, 2.5, 3.5746548420),
        (0.975, 30, 2.04227245630),
        (0.995, 1000, 2.58075469807),
        (0.975, math.inf, 1.95996398454),
    ],
)
def test_t_quantiles(probability, degrees, expected):
    assert student.t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-7)
    assert student.t_cdf(expected, degrees) == pytest.approx(probability, rel=1e-9)


def test_detectable_effect_is_found_with_the_power():
    rng = np.random.default_rng(1)
    for degrees in (2, 4, 18):
        effect = student.t_detectable(0.975, 0.8, degrees)
        t = (rng.normal(size=200_000) + effect) / np.sqrt(
            rng.chisquare(degrees, 200_000) / degrees
        )
        assert np.mean(t > student.t_quantile(0.975, degrees)) == pytest.approx(
            0.8, abs=0.004
        )


def test_long_run_variance_is_the_mean_square_of_slow_cosines():
    values = np.random.default_rng(1).normal(size=50)
    t = np.arange(50) + 0.5
    cosines = [
        math.sqrt(2 / 50) * np.sum(values * np.cos(math.pi * j * t / 50))
        for j in range(1, 6)
    ]
    assert confidence.long_run_variance(values) == pytest.approx(
        np.mean(np.square(cosines))
    )


def test_rate_is_all_words_over_all_seconds():
    assert confidence.process_rate([1.0, 3.0], [100, 100]) == 50.0


def test_words_in_proportion_to_seconds_leave_no_error():
    words = np.array([10, 20, 30, 40, 50] * 4)
    assert confidence.batch_standard_error(words / 1000, words) == pytest.approx(
        0, abs=1e-12
    )


def test_several_processes_by_hand():
    interval = confidence.interval_over_runs([99, 100, 101])
    logs = np.log([99, 100, 101])
    margin = 4.30265272975 * logs.std(ddof=1) / math.sqrt(3)
    assert interval.value == pytest.approx(math.exp(logs.mean()))
    assert (interval.low, interval.high) == pytest.approx(
        (math.exp(logs.mean() - margin), math.exp(logs.mean() + margin))
    )
    assert interval.kind == "95 % CI over 3 processes"


def test_what_logs_print_with_few_digits_is_never_surer_than_its_digits():
    off = -math.log1p(-0.25)  # of 2, which is 1.5 to 2.5
    two, three = (confidence.interval_over_runs([rate] * 3) for rate in (2.0, 3.0))
    assert two.half_width == 0.0
    two, three = two.with_rounding(off), three.with_rounding(-math.log1p(-0.5 / 3))
    assert (
        two.low == pytest.approx(1.5)
        and two.high >= 2.5
        and two.kind.endswith("last digits that logs printed")
    )
    faster = significance.judge_ratio(confidence.ratio(three, two))
    assert (
        faster.ratio.low == pytest.approx(3 / 2 * 0.75 * 2.5 / 3)
        and faster.ratio.high >= 3.5 / 1.5
    )
    assert faster.verdict == "no difference seen" and faster.detectable > 0.3
    assert (
        significance.judge_ratio(confidence.ratio(three.scaled(2), two)).verdict
        == "faster"
    )
    loss = confidence.combine(lambda a, b: 2 * a - b, [two, three])
    assert (
        loss.low <= 2 * 1.5 - 3.5
        and loss.high >= 2 * 2.5 - 2.5
        and loss.rounding_half_width == loss.half_width
    )
    coarse, fine = (
        confidence.interval_over_runs([2.0] * 3).with_rounding(-math.log1p(-share))
        for share in (0.4, 0.1)
    )
    assert confidence.combine(lambda a, b: a / b, [fine, coarse]).high >= 2.2 / 1.2
    spread = confidence.interval_over_runs([99, 100, 101])
    assert (
        spread.with_rounding(off).rounding_half_width
        > 25
        > 0.0
        == spread.rounding_half_width
    )
    scattered = confidence.interval_over_runs([5, 20, 80]).with_rounding(
        1e-3
    )  # its width is by runs, whatever the digits
    assert 0 < scattered.rounding_half_width < 0.01 * scattered.half_width
    assert scattered.scaled(2).rounding_half_width == 2 * scattered.rounding_half_width
    assert confidence.interval_over_runs([2.0]).with_rounding(off).ends is None, (
        "one run has no interval, whatever it printed"
    )


@pytest.mark.parametrize(
    "series, difference", [(2, 0.0), (2, 0.03), (3, 0.0), (6, 0.01)]
)
@pytest.mark.parametrize("now", [2, 3, 5])
def test_what_more_repeats_are_said_to_show_they_show_in_80_of_100_cases(
    series, difference, now
):
    """Pilots that tell nothing, of any true difference; then as many runs as were proposed, that differ as was said."""
    random_ = np.random.default_rng(now)

    def rates(repeats, apart):
        groups = np.exp(0.02 * random_.normal(size=(series, repeats)))
        groups[0] *= math.exp(apart)
        return [
            confidence.interval_over_runs(*each)
            for each in zip(groups, confidence.shared_scatters(groups))
        ]

    shown = []
    while len(shown) < 300:
        pilot = rates(now, difference)
        if significance.is_above(pilot[0], pilot[1], series):
            continue
        had, repeats = significance.more_repeats(pilot)
        change = confidence.ratio(pilot[0], pilot[1])
        least = significance.foreseen_effect(
            change.standard_error / change.value, change.degrees, had, repeats, series
        )
        new = rates(repeats, least)
        shown.append(significance.is_above(new[0], new[1], series))
    assert had == now and 0.74 <= np.mean(shown) <= 0.9


def test_one_process_says_what_it_is_not():
    step_s = np.random.default_rng(1).lognormal(0, 0.05, 20)
    interval = confidence.interval_over_batches(step_s, [1920] * 20)
    assert interval.low < interval.value < interval.high
    assert "within one process; says nothing" in interval.kind


def test_few_batches_of_one_process_have_no_interval():
    interval = confidence.interval_over_batches([1.0] * 9, [1920] * 9)
    assert interval.value == pytest.approx(1920)
    assert (
        interval.low,
        interval.high,
        interval.half_width,
        interval.standard_error,
    ) == (None, None, None, None)
    assert "fewer than 10 batches" in interval.kind


def test_a_single_process_has_no_interval_of_its_own():
    interval = confidence.interval_over_runs([1920])
    assert (interval.value, interval.ends) == (pytest.approx(1920), None)
    assert "--repeats" in interval.kind
    assert (
        confidence.ratio(interval, confidence.interval_over_runs([1.0, 2.0])).low
        is None
    )
    assert confidence.combine(lambda x: 2 * x, [interval]).low is None


def test_ratio_is_welch_on_logarithms():
    fast, slow = [4.0, 4.2, 4.1, 3.9], [1.0, 1.02, 0.98]
    found = confidence.ratio(
        confidence.interval_over_runs(fast), confidence.interval_over_runs(slow)
    )
    a, b = np.log(fast), np.log(slow)
    va, vb = a.var(ddof=1) / 4, b.var(ddof=1) / 3
    degrees = (va + vb) ** 2 / (va**2 / 3 + vb**2 / 2)
    assert found.value == pytest.approx(math.exp(a.mean() - b.mean()))
    assert found.degrees == pytest.approx(degrees)
    assert math.log(found.high / found.value) == pytest.approx(
        student.t_quantile(0.975, degrees) * math.sqrt(va + vb), rel=1e-9
    )
    assert found.kind == "95 % CI over 3 and 4 processes"


def test_configurations_that_are_measured_alike_share_one_scatter():
    groups = [[100, 104], [50, 51, 52], [80]]
    logs = [np.log(rates) for rates in groups]
    pooled = math.sqrt(
        sum(((x - x.mean()) ** 2).sum() for x in logs) / 3
    )  # one and two degrees of freedom
    scatters = confidence.shared_scatters(groups)
    own = logs[0].std(ddof=1)
    assert [each.deviation for each in scatters] == pytest.approx(
        [own, pooled, pooled]
    ) and own > pooled
    assert scatters[1] is scatters[2] is scatters[0].pool and {
        each.degrees for each in scatters
    } == {3}
    pair, triple, single = (
        confidence.interval_over_runs(rates, each)
        for rates, each in zip(groups, scatters)
    )
    t = 3.18244630528  # of three degrees
    assert math.log(single.high / single.value) == pytest.approx(t * pooled)
    assert math.log(pair.high / pair.value) == pytest.approx(t * own / math.sqrt(2))
    shared = "rows with the same number of devices share one variance, unless a row's own is larger"
    assert single.kind == f"95 % CI over 1 process; {shared}"
    # Both sides of a ratio, and every term of a sum, have the three degrees once.
    between = confidence.ratio(pair, triple)
    assert between.degrees == pytest.approx(3)
    assert math.log(between.high / between.value) == pytest.approx(
        t * math.sqrt(own**2 / 2 + pooled**2 / 3)
    )
    assert confidence.combine(
        lambda a, b, c: a - b + c, [pair, triple, single]
    ).degrees == pytest.approx(3)
    assert confidence.shared_scatters([[1.0], [2.0]]) == [None, None]
    (alone,) = confidence.shared_scatters([[100, 104]])
    assert (
        confidence.interval_over_runs([100, 104], alone).kind
        == "95 % CI over 2 processes"
    )


def test_a_configuration_that_scatters_more_than_all_together_is_judged_by_its_own_scatter():
    groups = [[100, 101, 99], [50, 50.4, 49.7], [80, 80.7, 80.3], [60, 90, 75]]
    *others, wild = confidence.shared_scatters(groups)
    assert (
        len(set(map(id, others))) == 1
        and wild.pool is others[0]
        and {others[0].degrees, wild.degrees} == {8}
    )
    assert (
        wild.deviation == pytest.approx(np.log(groups[3]).std(ddof=1))
        and wild.deviation > others[0].deviation
    )
    # Own and pooled are one estimate: a ratio of both, and a sum, have its degrees once.
    steady, noisy = (
        confidence.interval_over_runs(groups[0], others[0]),
        confidence.interval_over_runs(groups[3], wild),
    )
    assert (
        confidence.ratio(noisy, steady).degrees == pytest.approx(8)
        and noisy.kind == steady.kind
    )
    alone = confidence.shared_scatters([[100, 104, 97]])[0]
    assert (
        alone.pool is None
        and confidence.shared_scatters([[100, 104, 97], [1]])[0].pool is None
    )


def test_efficiency_scales_the_speedup():
    speedup = confidence.ratio(
        confidence.interval_over_runs([3.1, 3.3]),
        confidence.interval_over_runs([1.0, 1.01]),
    )
    efficiency = speedup.scaled(1 / 4)
    assert (efficiency.value, efficiency.low) == pytest.approx(
        (speedup.value / 4, speedup.low / 4)
    )
    assert efficiency.half_width == pytest.approx(speedup.half_width / 4)


def test_combine_agrees_with_the_exact_error_of_a_sum():
    one, four = (
        confidence.interval_over_runs([1.0, 1.1, 0.9]),
        confidence.interval_over_runs([2.5, 2.6, 2.7]),
    )
    loss = confidence.combine(lambda x1, xn: 4 * x1 - xn, [one, four])
    assert loss.value == pytest.approx(4 * one.value - four.value)
    assert loss.standard_error == pytest.approx(
        math.hypot(4 * one.standard_error, four.standard_error)
    )
    assert confidence.combine(lambda x1, xn: xn, [one, four]).run_counts == (
        3,
    )  # an unused input brings no error


def test_parts_of_a_sum_may_share_a_rate():
    one, other = (
        confidence.interval_over_runs([1.0, 1.1, 0.9]),
        confidence.interval_over_runs([2.5, 2.6, 2.7]),
    )
    nothing = confidence.combine(lambda a, b: (a - b) + (b - a), [one, other])
    assert (nothing.value, nothing.low, nothing.high) == (0.0, 0.0, 0.0)


def test_pairs_cancel_what_a_pair_shares():
    drift = np.exp(-0.1 * np.arange(5))
    before, after = (
        100 * drift,
        95 * drift * np.exp([0.001, -0.001, 0.0, 0.002, -0.002]),
    )
    paired = significance.compare(before, after, paired=True)
    assert paired.verdict == "slower"
    assert paired.ratio.value == pytest.approx(0.95, abs=1e-3)
    assert "5 pairs of processes" in paired.ratio.kind
    assert significance.compare(before, after).verdict == "no difference seen"


@pytest.mark.parametrize(
    ("paired", "p_value"), [(False, 0.0091720801), (True, 0.0006177462)]
)
def test_p_values_of_two_sided_t_tests(paired, p_value):
    """Expected: scipy.stats.ttest_ind (equal_var=False) and ttest_rel of the logarithms."""
    found = significance.compare([100, 102, 98, 101], [104, 106, 103, 105], paired)
    assert found.p_value == pytest.approx(p_value, abs=1e-9)
    assert found.verdict == "faster"


def test_no_difference_names_what_would_have_been_seen():
    found = significance.compare([100, 102, 98], [101, 99, 100])
    assert found.verdict == "no difference seen"
    assert 0.02 < found.detectable < 0.1


def test_one_process_a_side_cannot_be_judged():
    found = significance.compare([100.0], [50.0])
    assert (found.verdict, found.p_value, found.detectable) == (
        "cannot judge",
        None,
        None,
    )
    assert significance.gate(found, 0.05) == "cannot judge"
    assert "--repeats" in found.ratio.kind


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([100, 101, 99], "ok"),
        ([80, 81, 79], "regression"),
        ([95, 96.5, 94], "cannot judge"),
        (
            [92, 95.5, 91],
            "cannot judge",
        ),  # surely slower, by 7 %, and perhaps by less than 5 %
        ([99, 60, 140], "cannot judge"),
    ],
)
def test_gate(after, verdict):
    assert (
        significance.gate(significance.compare([100, 101, 99], after), 0.05) == verdict
    )


def test_equal_rates_do_not_differ():
    found = significance.compare([100, 100], [100, 100])
    assert (found.verdict, found.p_value, found.detectable) == (
        "no difference seen",
        1.0,
        0.0,
    )
    assert significance.compare([100, 100], [99, 99]).verdict == "slower"


def test_simulated_coverage():
    """The short form of benchmarks/coverage.py; Monte-Carlo error 1 % at 500 repetitions."""
    rng = np.random.default_rng(1)
    for k in (3, 5, 10):
        ones = [
            confidence.interval_over_runs(row)
            for row in coverage.process_rates(rng, 500, k)
        ]
        fours = [
            confidence.interval_over_runs(row)
            for row in coverage.process_rates(rng, 500, k, 3.2, 0.06)
        ]
        speedups = [confidence.ratio(four, one) for four, one in zip(fours, ones)]
        losses = [
            confidence.combine(lambda x1, x4: 4 * x1 - x4, pair)
            for pair in zip(ones, fours)
        ]
        shares = [
            coverage.covered(ones, 1.0),
            coverage.covered(speedups, 3.2),
            coverage.covered([each.scaled(1 / 4) for each in speedups], 0.8),
            coverage.covered(losses, 0.8),
        ]
        assert all(0.915 <= share <= 0.985 for share in shares), (k, shares)


@pytest.mark.parametrize(("correlation", "n"), [(0.0, 20), (0.0, 200), (0.5, 200)])
def test_simulated_coverage_of_one_process(correlation, n):
    step_s = coverage.batches(np.random.default_rng(1), (500, n), correlation)
    widths = [confidence.half_width_over_batches(row, np.ones(n)) for row in step_s]
    share = np.mean(np.abs(np.log(step_s.mean(axis=1))) <= widths)
    assert 0.915 <= share <= 0.985


def test_drift_from_run_to_run_widens_what_processes_scatter_by():
    falling = [100 * 0.98**k for k in range(8)]
    logs = np.log(falling)
    found = confidence.drifting_scatter(falling)
    assert (
        found.deviation == pytest.approx(math.sqrt(confidence.long_run_variance(logs)))
        and found.degrees == 3
    )
    assert found.deviation > 1.5 * logs.std(ddof=1) and found.note == confidence.ORDERED
    own = confidence.drifting_scatter([100, 98] * 4)
    assert (own.deviation, own.degrees) == (
        pytest.approx(np.log([100, 98] * 4).std(ddof=1)),
        7,
    )
    # Independent runs are widened as often as not, so the note names the rule on either side, and no cause.
    assert (
        own.note == found.note
        and "drift" not in own.note
        and confidence.drifting_scatter(falling[:5]).note == ""
    )
    assert confidence.drifting_scatter([100]) is None


def test_simulated_false_alarms_of_two_sittings():
    """Eight runs and the next eight of a machine that drifts: 45 % of them differ by Welch's t alone."""
    rng, alarms = np.random.default_rng(1), []
    for _ in range(300):
        rates = coverage.drifting_rates(rng, 16, 0.8)
        alarms.append(
            [
                significance.judge_ratio(coverage.between_sittings(rates, each)).verdict
                for each in (False, True)
            ]
        )
    welch, widened = (
        np.mean([each[i] != "no difference seen" for each in alarms]) for i in (0, 1)
    )
    assert welch > 0.35 and widened < 0.30


def test_simulated_false_alarms():
    rng = np.random.default_rng(1)
    before, after = (coverage.process_rates(rng, 500, 5) for _ in range(2))
    for paired in (False, True):
        alarms = np.mean(
            [
                significance.compare(b, a, paired).p_value < 0.05
                for b, a in zip(before, after)
            ]
        )
        assert 0.02 <= alarms <= 0.08
