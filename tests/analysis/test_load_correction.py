"""Rates corrected for the load of other programs, and the answer that uses them."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks import load_correction as correction_trials
from rnn_scaling.analysis import disturbance, load_correction, load_effect
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.metrics import EFFICIENCY, METRICS
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.records.options import Options
from rnn_scaling.reports import conclusions
from tests.support.scaling_runs import summarise_records


def run(num_devices, rate, own=1.0, others=0.0, **options):
    """Return a run of this suite's trainer that had a share of its cores."""
    made = correction_trials.make_record(num_devices, rate, own, others, 0)
    return dataclasses.replace(made, options=Options({**made.options.known, **options}))


def make_runs_beside_busy_process(mode="replicated"):
    """Return runs of which those on two devices had two thirds of the cores.

    Without the other process, they would be 1.9 times as fast as one device.
    """
    runs = []
    for factor in (0.99, 1.0, 1.01):
        runs.append(run(1, 100 * factor, variable_update=mode))
        slowed = 190 * factor * 2 / 3
        runs.append(run(2, slowed, 0.66, 1 / 3, variable_update=mode))
    return runs


def kinds(records):
    return {
        each.kind: each.values
        for each in conclusions.state_answer(summarise_records(records))
    }


def test_a_disturbed_row_has_the_rate_that_it_would_have_without_load():
    _, two = build_rows(make_runs_beside_busy_process())
    assert two.rate.value == pytest.approx(190, rel=0.03)
    assert two.rate.low < 190 < two.rate.high
    assert Note.CORRECTED in two.rate.kind.notes
    efficiency = two.metric(EFFICIENCY)
    assert efficiency.low < 0.95 < efficiency.high
    assert efficiency.half_width < 0.08
    assert Note.CORRECTED in efficiency.kind.notes


def test_a_quiet_row_is_not_corrected():
    one, _ = build_rows(make_runs_beside_busy_process())
    assert one.corrected is None
    assert one.rate.kind.notes == ()


@pytest.mark.parametrize("own", [0.9, 0.3])
def test_the_interval_grows_with_the_correction(own):
    corrected = load_correction.correct_rates([run(1, 100, own, 1 - own)])
    assert corrected.rates[0] == pytest.approx(100 / own, rel=0.03)
    least = load_correction.CORRECTION_ERROR * 0.9 * math.log(1 / own)
    assert least < corrected.error < least + 0.03


def test_idle_cores_make_the_correction_uncertain():
    """Either they would be idle without load as well, or the run waited because of it."""
    waiting = load_correction.correct_rates([run(2, 100, 0.5, 0.25)])
    busy = load_correction.correct_rates([run(2, 100, 0.5, 0.5)])
    assert waiting.error > 2 * busy.error
    assert waiting.rates[0] < busy.rates[0]


@pytest.mark.parametrize(
    "made",
    [
        run(1, 100, 0.04, 0.96),
        run(1, 100, 0.5, 0.5, trainer="a.py"),
        dataclasses.replace(
            run(1, 100, 0.5, 0.5),
            resolved=dataclasses.replace(run(1, 100).resolved, device_type="GPU"),
        ),
    ],
    ids=["almost no core", "another program", "a GPU"],
)
def test_some_runs_cannot_be_corrected(made):
    assert disturbance.is_disturbed(made)
    assert load_correction.correct_rates([made]) is None


def remove_own_shares(made):
    """Return a run as older versions recorded it."""
    load = made.environment.load
    windows = dataclasses.replace(load.windows, own=None)
    load = dataclasses.replace(load, windows=windows)
    return dataclasses.replace(
        made, environment=dataclasses.replace(made.environment, load=load)
    )


def test_the_answer_of_several_series_is_corrected_and_says_so():
    runs = make_runs_beside_busy_process() + make_runs_beside_busy_process(
        "independent"
    )
    said = kinds(runs)
    assert said["speedup-alike"]["low"] == pytest.approx(1.9, rel=0.03)
    assert said["speedups-corrected"]["corrected"] == 2
    assert 2 < said["speedups-corrected"]["points"] < 8
    assert "speedups-hidden-by-load" not in said


@pytest.mark.parametrize("others", [0.4, 0.5, 0.6])
def test_efficiencies_are_known_as_well_as_the_table_prints_them(others):
    runs = []
    for mode in ("independent", "replicated"):
        for factor in (0.99, 1.01):
            runs.append(run(1, 100 * factor, variable_update=mode))
            slowed = 190 * factor * (1 - others)
            runs.append(run(2, slowed, 0.98 - others, others, variable_update=mode))
    halves = []
    for row in build_rows(runs):
        efficiency = row.metric(EFFICIENCY)
        if row.num_devices == 2:
            low, high = efficiency.ends
            halves += [high - efficiency.value, efficiency.value - low]
    points = kinds(runs)["speedups-corrected"]["points"]
    assert 100 * max(halves) <= points < 100 * max(halves) + 1


@pytest.mark.parametrize(
    "rate, kind", [(190.1, "speedup-alike"), (170, "speedup-range")]
)
def test_equal_speedups_are_one_number(rate, kind):
    runs = []
    for factor in (0.99, 1.0, 1.01):
        for mode, on_two in (("independent", 190), ("replicated", rate)):
            runs.append(run(1, 100 * factor, variable_update=mode))
            runs.append(run(2, on_two * factor, variable_update=mode))
    said = kinds(runs)
    assert kind in said
    assert not {"speedup-alike", "speedup-range"} - {kind} & set(said)


def test_repeats_are_not_the_remedy_for_the_error_of_a_correction():
    said = kinds(
        make_runs_beside_busy_process() + make_runs_beside_busy_process("independent")
    )
    assert "effect-needs-quiet-runs" in said
    alone = kinds(make_runs_beside_busy_process())
    for values in (*said.values(), *alone.values()):
        assert "repeats" not in values


def test_a_speedup_that_cannot_be_corrected_is_not_told():
    old = list(map(remove_own_shares, make_runs_beside_busy_process("mirrored")))
    said = kinds(make_runs_beside_busy_process() + old)
    assert "speedup-range" not in said
    assert said["speedup-alike"]["low"] == said["speedup-alike"]["high"]
    assert said["speedups-corrected"]["corrected"] == 1
    hidden = said["speedups-hidden-by-load"]
    assert len(hidden["names"]) == 1
    assert "mirrored" in hidden["names"][0]
    command = said["repeat-on-quiet-machine"]["command"]
    assert "--variable_update=mirrored" in command
    assert "--num_devices=1,2" in command


def with_slow_half(made):
    """Return a run whose first ten batches were disturbed and took twice as long."""
    batches = made.batches
    slow = tuple(2 * second for second in batches.seconds[:10])
    seconds = slow + batches.seconds[10:]
    others = (0.5,) * 10 + (0.0,) * 10
    load = made.environment.load
    windows = dataclasses.replace(load.windows, others=others, seconds=seconds)
    load = dataclasses.replace(load, windows=windows, others=1 / 3)
    return dataclasses.replace(
        made,
        batches=dataclasses.replace(batches, seconds=seconds),
        environment=dataclasses.replace(made.environment, load=load),
    )


def test_both_sides_of_a_speedup_count_the_same_batches():
    """Without a correction, the baseline counts its disturbed batches as well."""
    runs = []
    for made in map(remove_own_shares, make_runs_beside_busy_process()):
        is_one = made.options["num_devices"] == 1
        runs.append(with_slow_half(made) if is_one else made)
    one, two = build_rows(runs)
    assert one.rate.value == pytest.approx(100, rel=0.01)
    baseline = two.beside_baseline.one_device.rate.value
    assert baseline == pytest.approx(100 / 1.5, rel=0.01)
    speedup = two.metric(METRICS["speedup"])
    assert speedup.value == pytest.approx(two.rate.value / (100 / 1.5), rel=0.01)


def test_a_slow_baseline_does_not_change_the_rate_of_a_quiet_row():
    """Otherwise `compare`, ranks and effects would see another rate."""
    runs = []
    for factor in (0.99, 1.0, 1.01):
        runs.append(remove_own_shares(run(1, 60 * factor, 0.6, 0.4)))
        runs.append(with_slow_half(run(2, 190 * factor)))
    one, two = build_rows(runs)
    assert one.is_slowed
    assert two.rate.value == pytest.approx(190, rel=0.01)
    assert two.max_slowing == 0.0
    # All batches of both sides: 190 / 1.5 and 60.
    speedup = two.metric(METRICS["speedup"])
    assert speedup.value == pytest.approx(190 / 1.5 / 60, rel=0.01)


def test_corrected_efficiencies_contain_the_truth():
    """Repeat `benchmarks.load_correction --parts=simulation` in short."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(40):
        runs = [correction_trials.simulate_run(random, 1, 0.0, False) for _ in range(3)]
        for _ in range(3):
            runs.append(correction_trials.simulate_run(random, 2, 0.25, False))
        found.append(correction_trials.find_efficiency(runs))
    assert (
        correction_trials.compute_coverage(found, correction_trials.TRUE_EFFICIENCY)
        > 0.9
    )
    assert np.median([each.half_width for each in found]) < 0.08


def test_one_loaded_run_of_two_has_more_load_than_quiet_runs():
    assert load_effect.had_more_load([0.3, 0.0], [0.0, 0.0])
    assert not load_effect.had_more_load([0.3, 0.0], [0.3, 0.0])
    assert not load_effect.had_more_load([0.3, 0.1], [0.0, 0.3])
    assert not load_effect.had_more_load([0.04, 0.0], [0.0, 0.0])
