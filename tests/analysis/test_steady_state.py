"""Test cuts, kinds and rates with series whose steady part is known."""

import math

import numpy as np
import pytest

from benchmarks import steady_state as benchmark
from rnn_scaling.analysis import change_points, steady_state
from rnn_scaling.analysis.steady_state import StateKind


def statement_kinds(state, batches):
    statements = steady_state.make_statements(state, batches, 10, "words")
    return [statement.kind for statement in statements]


def add_noise(clean, sigma=0.01, seed=1):
    clean = np.asarray(clean, float)
    return clean * np.random.default_rng(seed).lognormal(0, sigma, len(clean))


def with_late_change(n=200, change=1.25, cut=140):
    return add_noise(np.where(np.arange(n) < cut, 1.0, change))


@pytest.mark.parametrize(
    "name", [name for name, case in benchmark.CASES.items() if case.level_s is not None]
)
def test_an_existing_steady_state_is_found(name):
    """The bias of the rate is below 0.6 % at 1 % noise, and the kind is right."""
    result = benchmark.judge(name, "white", 0.01, 200, repetitions=10, seed=3)
    kind, answers, bias = result[3:6]
    assert answers == f"{kind} 100.0%"
    assert abs(float(bias.rstrip("%"))) < 0.6


@pytest.mark.parametrize("name", ["drift of 20 %", "step at 90 %"])
def test_a_series_that_never_settles_has_no_steady_state(name):
    result = benchmark.judge(name, "white", 0.01, 200, repetitions=10, seed=3)
    assert result[4] == "no steady state 100.0%"


@pytest.mark.parametrize("noise", ["AR(1) 0.5", "outliers 2 %"])
def test_flat_series_are_flat(noise):
    answers = benchmark.judge("flat", noise, 0.01, 200, repetitions=40, seed=3)[4]
    assert answers.startswith("flat ")
    assert float(answers.split()[1].rstrip("%,")) >= 95


def test_late_slow_down_is_cut_where_it_is():
    state = steady_state.analyse(with_late_change(), [1920] * 200)
    assert state.kind == StateKind.SLOW_DOWN
    assert state.start == 140
    assert state.rate_steady == pytest.approx(1920 / 1.25, rel=0.006)
    assert state.change == pytest.approx(state.rate_steady / state.rate_default - 1)
    assert state.change < -0.1


@pytest.mark.parametrize("cut", range(3200, 3209))  # a complete block of the search
def test_changes_in_long_series_are_found_to_the_batch(cut):
    assert steady_state.analyse(with_late_change(5000, 1.1, cut)).start == cut


@pytest.mark.parametrize("n, sigma", [(30, 0.02), (60, 0.05)])
def test_slow_batches_in_a_row_are_found(n, sigma):
    first = 8 if n == 30 else n // 2 + 5
    clean = np.ones(n)
    clean[first : first + 4] = 1.8
    step_s = add_noise(clean, sigma)
    step_s[0] = 6.0
    state = steady_state.analyse(step_s, [1920] * n)
    assert state.slow_batches == tuple(range(first, first + 4))
    assert 1 < state.slow_ratio < 2
    assert set(state.slow_batches) <= set(state.outliers)
    quiet = steady_state.analyse(add_noise(np.ones(n), sigma), [1920] * n)
    assert not quiet.slow_batches


def test_the_default_run_of_thirty_batches():
    state = steady_state.analyse(add_noise([90.0] + [1.0] * 29), [1920] * 30)
    assert state.kind == StateKind.WARM_UP
    assert state.start == 1
    assert state.rate_default == pytest.approx(1920, rel=0.02)
    kinds = statement_kinds(state, 30)
    assert kinds[0] == "steady-warmed-up"
    assert kinds[-1] == "steady-few"


def test_thirty_batches_with_a_change_are_too_few():
    state = steady_state.analyse(with_late_change(30, 1.25, 20))
    assert state.kind == StateKind.TOO_SHORT
    assert state.start is None
    assert state.rate_steady is None
    assert statement_kinds(state, 30) == ["steady-not-yet", "steady-run-more"]


@pytest.mark.parametrize("n", [0, 29])
def test_fewer_than_thirty_batches_are_not_analysed(n):
    state = steady_state.analyse([1.0] * n)
    assert state.kind == StateKind.TOO_SHORT
    assert state.start is None
    assert state.rate_default == (1.0 if n > 10 else None)
    [statement] = steady_state.make_statements(state, n, 10, "words")
    assert statement.kind == "steady-too-few"
    assert statement.values["wanted"] == 60


@pytest.mark.parametrize("seed", [106, 132])
def test_slow_noise_is_not_a_change(seed):
    """With correlation 0.8, the noise must be estimated again after the first cuts."""
    y = benchmark.draw_noise(
        np.random.default_rng(seed), 200, 0.01, benchmark.NOISES["AR(1) 0.8"]
    )
    assert steady_state.analyse(np.exp(y)).kind == "flat"


def test_a_slow_drift_does_not_settle():
    """Drift by 5 % over the run, so that only the last quarter looks steady."""
    clean = 1 + 0.05 * np.arange(200) / 200
    kinds = [
        steady_state.analyse(add_noise(clean, 0.01, seed)).kind for seed in range(10)
    ]
    assert kinds.count("no steady state") >= 8


def test_outliers_are_marked_and_stay_in_the_rate():
    step_s = add_noise(np.ones(200))
    step_s[[50, 120]] = 4.0
    state = steady_state.analyse(step_s)
    assert state.kind == StateKind.FLAT
    assert state.start == 0
    assert state.outliers == (50, 120)
    assert state.rate_steady == pytest.approx(200 / step_s.sum())


def test_a_disturbance_is_marked_and_bridged():
    step_s = add_noise(np.ones(200))
    step_s[185:193] *= 1.06  # a single batch would not be an outlier
    state = steady_state.analyse(step_s)
    assert state.kind == StateKind.FLAT
    assert state.start == 0
    assert state.outliers == tuple(range(185, 193))


def test_a_tail_that_still_falls_is_cut_off():
    """At batch 80 of 1 + 0.1 exp(-t/40), 1.4 % are left.

    In some series, the last level begins earlier.
    """
    clean = 1 + 0.1 * np.exp(-np.arange(200) / 40)
    starts = [
        steady_state.analyse(add_noise(clean, 0.003, seed)).start for seed in range(6)
    ]
    assert min(starts) >= 80


def test_lengths_in_turn_are_a_cycle_of_whole_periods():
    words = np.tile([640, 1280, 1920, 2560, 3200], 41)[:203]
    state = steady_state.analyse(add_noise(0.3 + 0.7 * words / 1920), words)
    assert state.kind == StateKind.CYCLIC
    assert state.period == 5
    assert (203 - state.start) % 5 == 0
    assert state.rate_steady == pytest.approx(1920, rel=0.006)


def test_lengths_at_random_do_not_hide_a_change():
    words = np.random.default_rng(2).choice([640, 1280, 1920, 2560, 3200], 200)
    step_s = add_noise(
        (0.3 + 0.7 * words / 1920) * np.where(np.arange(200) < 50, 1.2, 1.0)
    )
    assert steady_state.analyse(step_s, words).start == 50


def test_item_cost_takes_out_the_length():
    words = np.random.default_rng(2).choice([10.0, 20.0, 40.0], 100)
    cost = change_points.compute_item_cost(np.log(3 * words**0.6), np.log(words))
    assert np.ptp(cost) < 1e-9


def test_outlier_bounds_are_three_decile_ranges_from_the_median():
    y = np.linspace(-1, 1, 101)  # P90 - P10 = 1.6
    low, high = change_points.compute_outlier_bounds(y)
    assert (low[0], high[-1]) == pytest.approx((-4.8, 4.8))


def test_change_points_minimise_the_penalized_cost():
    """Compare with the cost of all pairs of cuts."""
    y = add_noise(np.repeat([1.0, 1.04, 1.0], 20), 0.01, seed=5)

    def cost(cuts):
        error = sum(len(level) * level.var() for level in np.split(y, cuts))
        return error + 3e-4 * math.log(60) * len(cuts)

    candidates = [(), *((a,) for a in range(5, 56))]
    for a in range(5, 51):
        candidates += [(a, b) for b in range(a + 5, 56)]
    best = min(candidates, key=cost)
    assert change_points.find_change_points(y, 1e-4) == list(best) == [20, 40]


def test_noise_of_a_correlated_series():
    y = benchmark.draw_noise(
        np.random.default_rng(1), 2000, 0.01, benchmark.NOISES["AR(1) 0.5"]
    )
    noise = change_points.estimate_noise(y)
    assert noise == pytest.approx(3e-4, rel=0.3)
    stepped = change_points.estimate_noise(y + 0.2 * (np.arange(2000) > 900))
    assert stepped == pytest.approx(noise, rel=0.3)


def test_half_width_needs_a_steady_part():
    drifting = add_noise(1 + 0.2 * np.arange(200) / 200)
    assert steady_state.analyse([1.0] * 20).half_width is None
    assert steady_state.analyse(drifting).half_width is None
    assert 0 < steady_state.analyse(add_noise(np.ones(100))).half_width < 0.01


def test_until_known_needs_two_of_few_analyses(monkeypatch):
    analysed = []

    def analyse(step_s, items=None):
        analysed.append(len(step_s))
        width = 0.03 if len(step_s) == 75 else 0.01
        return steady_state.SteadyState(StateKind.FLAT, None, half_width=width)

    monkeypatch.setattr(steady_state, "analyse", analyse)
    until_known = steady_state.KnownRateRule(0.02)
    reached = [n for n in range(200) if until_known.update([1.0] * n)]
    assert analysed == [60, 75, 94, 118]
    assert reached == list(range(118, 200))
