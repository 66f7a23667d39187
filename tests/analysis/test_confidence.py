"""Test intervals by hand-computed values and by simulated coverage."""

import math

import numpy as np
import pytest

from benchmarks import simulated
from rnn_scaling.analysis import confidence, significance, student
from rnn_scaling.analysis.confidence import (
    combine,
    compute_interval_over_runs,
    divide_rates,
)
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind, Note
from rnn_scaling.analysis.significance import Gate, Verdict


@pytest.mark.parametrize(
    "probability, degrees, expected",
    [
        (0.975, 1, 12.7062047362),
        (0.8, 4, 0.94096457723),
        (0.975, 2.5, 3.5746548420),
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
    assert confidence.estimate_long_run_variance(values) == pytest.approx(
        np.mean(np.square(cosines))
    )


def test_rate_is_all_words_over_all_seconds():
    assert (
        confidence.compute_interval_over_batches([1.0, 3.0], [100, 100]).value == 50.0
    )


def test_words_in_proportion_to_seconds_leave_no_error():
    words = np.array([10, 20, 30, 40, 50] * 4)
    assert confidence.compute_batch_standard_error(
        words / 1000, words
    ) == pytest.approx(0, abs=1e-12)


def test_interval_over_runs_equals_students_t_of_the_logarithms():
    interval = compute_interval_over_runs([99, 100, 101])
    logs = np.log([99, 100, 101])
    margin = 4.30265272975 * logs.std(ddof=1) / math.sqrt(3)
    assert interval.value == pytest.approx(math.exp(logs.mean()))
    assert interval.low == pytest.approx(math.exp(logs.mean() - margin))
    assert interval.high == pytest.approx(math.exp(logs.mean() + margin))
    assert interval.kind == IntervalKind(Basis.RUNS, (3,))


def test_intervals_contain_the_bounds_of_printed_digits():
    rounding_of_2 = -math.log1p(-0.25)  # a printed 2 is 1.5 to 2.5
    rounding_of_3 = -math.log1p(-0.5 / 3)
    two = compute_interval_over_runs([2.0] * 3).with_rounding(rounding_of_2)
    three = compute_interval_over_runs([3.0] * 3).with_rounding(rounding_of_3)
    assert two.low == pytest.approx(1.5)
    assert two.high >= 2.5
    assert two.kind.notes == (Note.PRINTED,)

    faster = significance.judge_ratio(divide_rates(three, two))
    assert faster.ratio.low == pytest.approx(3 / 2 * 0.75 * 2.5 / 3)
    assert faster.ratio.high >= 3.5 / 1.5
    assert faster.verdict == Verdict.SAME
    assert faster.detectable > 0.3
    twice = significance.judge_ratio(divide_rates(three.scaled(2), two))
    assert twice.verdict == Verdict.FASTER

    loss = combine(lambda a, b: 2 * a - b, [two, three])
    assert loss.low <= 2 * 1.5 - 3.5
    assert loss.high >= 2 * 2.5 - 2.5
    assert loss.rounding_half_width == loss.half_width
    coarse = compute_interval_over_runs([2.0] * 3).with_rounding(-math.log1p(-0.4))
    fine = compute_interval_over_runs([2.0] * 3).with_rounding(-math.log1p(-0.1))
    assert combine(lambda a, b: a / b, [fine, coarse]).high >= 2.2 / 1.2


def test_digits_hardly_widen_an_interval_of_runs_that_differ():
    interval = compute_interval_over_runs([5, 20, 80]).with_rounding(1e-3)
    assert 0 < interval.rounding_half_width < 0.01 * interval.half_width
    assert interval.scaled(2).rounding_half_width == 2 * interval.rounding_half_width


def test_one_run_has_no_interval_even_with_printed_digits():
    assert compute_interval_over_runs([2.0]).with_rounding(0.1).ends is None


@pytest.mark.parametrize("series, difference", [(2, 0.03), (3, 0.0)])
@pytest.mark.parametrize("now", [2, 5])
def test_proposed_repeats_show_the_foreseen_effect_in_80_of_100_cases(
    series, difference, now
):
    """Simulate pilots that show no difference, then the proposed number of runs."""
    rng = np.random.default_rng(now)

    def rates(repeats, effect):
        groups = np.exp(0.02 * rng.normal(size=(series, repeats)))
        groups[0] *= math.exp(effect)
        scatters = confidence.compute_shared_scatters(groups)
        return [compute_interval_over_runs(*pair) for pair in zip(groups, scatters)]

    detected = []
    while len(detected) < 300:
        pilot = rates(now, difference)
        if significance.is_above(pilot[0], pilot[1], series):
            continue
        num_runs, repeats = significance.propose_repeats(pilot)
        change = divide_rates(pilot[0], pilot[1])
        effect = significance.estimate_foreseen_effect(
            change.relative_error, change.degrees, num_runs, repeats, series
        )
        new = rates(repeats, effect)
        detected.append(significance.is_above(new[0], new[1], series))
    assert num_runs == now
    assert 0.74 <= np.mean(detected) <= 0.9


def test_few_batches_of_one_process_have_no_interval():
    interval = confidence.compute_interval_over_batches([1.0] * 9, [1920] * 9)
    assert interval.value == pytest.approx(1920)
    assert interval.ends is None
    assert interval.half_width is None
    assert interval.standard_error is None
    assert interval.kind.basis is Basis.FEW_BATCHES


def test_a_single_process_has_no_interval():
    interval = compute_interval_over_runs([1920])
    assert interval.value == pytest.approx(1920)
    assert interval.ends is None
    assert interval.kind.basis is Basis.ONE_RUN_EACH
    assert divide_rates(interval, compute_interval_over_runs([1.0, 2.0])).low is None
    assert combine(lambda x: 2 * x, [interval]).low is None


def test_ratio_is_welch_on_logarithms():
    fast = [4.0, 4.2, 4.1, 3.9]
    slow = [1.0, 1.02, 0.98]
    interval = divide_rates(
        compute_interval_over_runs(fast), compute_interval_over_runs(slow)
    )
    a = np.log(fast)
    b = np.log(slow)
    va = a.var(ddof=1) / 4
    vb = b.var(ddof=1) / 3
    degrees = (va + vb) ** 2 / (va**2 / 3 + vb**2 / 2)
    assert interval.value == pytest.approx(math.exp(a.mean() - b.mean()))
    assert interval.degrees == pytest.approx(degrees)
    assert math.log(interval.high / interval.value) == pytest.approx(
        student.t_quantile(0.975, degrees) * math.sqrt(va + vb), rel=1e-9
    )
    assert interval.kind == IntervalKind(Basis.RUNS, (3, 4))


def test_configurations_share_one_scatter():
    groups = [[100, 104], [50, 51, 52], [80]]
    logs = [np.log(rates) for rates in groups]
    squares = sum(((x - x.mean()) ** 2).sum() for x in logs)
    pooled = math.sqrt(squares / 3)  # one and two degrees of freedom
    scatters = confidence.compute_shared_scatters(groups)
    own = logs[0].std(ddof=1)
    assert own > pooled
    deviations = [scatter.deviation for scatter in scatters]
    assert deviations == pytest.approx([own, pooled, pooled])
    assert scatters[1] is scatters[2] is scatters[0].pool
    assert {scatter.degrees for scatter in scatters} == {3}

    pair, triple, single = map(compute_interval_over_runs, groups, scatters)
    t = 3.18244630528  # with three degrees of freedom
    assert math.log(single.high / single.value) == pytest.approx(t * pooled)
    assert math.log(pair.high / pair.value) == pytest.approx(t * own / math.sqrt(2))
    assert single.kind == IntervalKind(Basis.RUNS, (1,), (Note.POOLED,))
    # Both sides of a ratio, and all terms of a sum, have the three degrees once.
    between = divide_rates(pair, triple)
    assert between.degrees == pytest.approx(3)
    assert math.log(between.high / between.value) == pytest.approx(
        t * math.sqrt(own**2 / 2 + pooled**2 / 3)
    )
    total = combine(lambda a, b, c: a - b + c, [pair, triple, single])
    assert total.degrees == pytest.approx(3)
    assert confidence.compute_shared_scatters([[1.0], [2.0]]) == [None, None]
    assert confidence.compute_shared_scatters([[100, 104]])[0].note is None


def test_a_configuration_with_more_scatter_than_the_pool_has_its_own():
    groups = [[100, 101, 99], [50, 50.4, 49.7], [80, 80.7, 80.3], [60, 90, 75]]
    *quiet, wild = confidence.compute_shared_scatters(groups)
    assert len(set(map(id, quiet))) == 1
    assert wild.pool is quiet[0]
    assert wild.degrees == quiet[0].degrees == 8
    assert wild.deviation == pytest.approx(np.log(groups[3]).std(ddof=1))
    assert wild.deviation > quiet[0].deviation
    # Both are one estimate, so their ratio has its degrees once.
    steady = compute_interval_over_runs(groups[0], quiet[0])
    noisy = compute_interval_over_runs(groups[3], wild)
    assert divide_rates(noisy, steady).degrees == pytest.approx(8)
    assert noisy.kind == steady.kind
    assert confidence.compute_shared_scatters([[100, 104, 97], [1]])[0].pool is None


def test_combine_agrees_with_the_exact_error_of_a_sum():
    one = compute_interval_over_runs([1.0, 1.1, 0.9])
    four = compute_interval_over_runs([2.5, 2.6, 2.7, 2.65])
    loss = combine(lambda x1, xn: 4 * x1 - xn, [one, four])
    assert loss.value == pytest.approx(4 * one.value - four.value)
    assert loss.standard_error == pytest.approx(
        math.hypot(4 * one.standard_error, four.standard_error)
    )
    # An unused input adds no error.
    assert combine(lambda x1, xn: xn, [one, four]).run_counts == (4,)
    nothing = combine(lambda a, b: (a - b) + (b - a), [one, four])
    assert nothing.ends == (0.0, 0.0)


def test_pairs_cancel_drift():
    drift = np.exp(-0.1 * np.arange(5))
    before = 100 * drift
    after = 95 * drift * np.exp([0.001, -0.001, 0.0, 0.002, -0.002])
    paired = significance.compare(before, after, paired=True)
    assert paired.verdict == Verdict.SLOWER
    assert paired.ratio.value == pytest.approx(0.95, abs=1e-3)
    assert paired.ratio.kind == IntervalKind(Basis.PAIRS, (5,))
    assert significance.compare(before, after).verdict == Verdict.SAME


@pytest.mark.parametrize(
    "paired, p_value", [(False, 0.0091720801), (True, 0.0006177462)]
)
def test_p_values_of_two_sided_t_tests(paired, p_value):
    """Compare with scipy.stats.ttest_ind (equal_var=False) and ttest_rel of the logs."""
    change = significance.compare([100, 102, 98, 101], [104, 106, 103, 105], paired)
    assert change.p_value == pytest.approx(p_value, abs=1e-9)
    assert change.verdict == Verdict.FASTER


def test_one_process_per_side_cannot_be_judged():
    change = significance.compare([100.0], [50.0])
    assert change.verdict == Verdict.UNJUDGED
    assert change.p_value is None
    assert change.detectable is None
    assert significance.gate(change, 0.05) == Gate.UNJUDGED


@pytest.mark.parametrize(
    "after, verdict",
    [
        ([100, 101, 99], Gate.PASSED),
        ([80, 81, 79], Gate.REGRESSION),
        ([92, 95.5, 91], Gate.UNJUDGED),
    ],
)
def test_gate(after, verdict):
    change = significance.compare([100, 101, 99], after)
    assert significance.gate(change, 0.05) == verdict


def test_equal_rates_do_not_differ():
    change = significance.compare([100, 100], [100, 100])
    assert change.verdict == Verdict.SAME
    assert change.p_value == 1.0
    assert change.detectable == 0.0
    assert significance.compare([100, 100], [99, 99]).verdict == Verdict.SLOWER


@pytest.mark.parametrize("correlation, n", [(0.0, 20), (0.0, 200), (0.5, 200)])
def test_simulated_coverage_of_one_process(correlation, n):
    step_s = simulated.simulate_batches(np.random.default_rng(1), (500, n), correlation)
    widths = [
        confidence.compute_half_width_over_batches(row, np.ones(n)) for row in step_s
    ]
    share = np.mean(np.abs(np.log(step_s.mean(axis=1))) <= widths)
    assert 0.915 <= share <= 0.985


def test_drift_between_runs_widens_the_scatter():
    falling = [100 * 0.98**k for k in range(8)]
    logs = np.log(falling)
    drifting = confidence.compute_drifting_scatter(falling)
    long_run_deviation = math.sqrt(confidence.estimate_long_run_variance(logs))
    assert drifting.deviation == pytest.approx(long_run_deviation)
    assert drifting.deviation > 1.5 * logs.std(ddof=1)
    assert drifting.degrees == 3
    steady = confidence.compute_drifting_scatter([100, 98] * 4)
    assert steady.deviation == pytest.approx(np.log([100, 98] * 4).std(ddof=1))
    assert steady.degrees == 7
    # Half of all independent runs are widened, so both have the note of the rule.
    assert steady.note is drifting.note is Note.ORDERED
    assert confidence.compute_drifting_scatter(falling[:5]).note is None
    assert confidence.compute_drifting_scatter([100]) is None
