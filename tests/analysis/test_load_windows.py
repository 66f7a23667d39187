"""Batches that count: without windows in which other processes used the cores."""

import dataclasses

import pytest

from rnn_scaling.analysis import disturbance, load_effect, ranking, rows, steady_state
from rnn_scaling.analysis.metrics import list_step_times
from rnn_scaling.records import record
from tests.support.loaded_runs import make_run_beside_load, make_windows
from tests.support.records import change_record, make_record

QUIET_S = 1.0
ONE_CORE = {"cpu_affinity": [0]}


def run(loads, run_load=0.2, *, warmup=1, steal=0.0, **config):
    """Return a run of two batches per window, which are slow in windows with load."""
    seconds = [9.0] * warmup + [QUIET_S] * (2 * len(loads))
    quiet = make_record(
        seconds=seconds, warmup=warmup, resolved=ONE_CORE, config=config
    )
    return make_run_beside_load(quiet, loads, run_load, steal)


def test_only_quiet_batches_count():
    made = run([0.0, 0.5, 0.04, 0.3])
    assert [*disturbance.select_counted_indices(made)] == [*range(1, 9)], (
        "four are too few"
    )
    made = run([0.0, 0.5, 0.04, 0.3, 0.0])
    assert disturbance.select_counted_indices(made) == [1, 2, 5, 6, 9, 10]
    assert rows.run_rates([made]) == [100 / QUIET_S]
    assert [*list_step_times(made)] == [QUIET_S] * 6
    assert not disturbance.is_disturbed(made)
    assert disturbance.load(made) == 0.0
    assert disturbance.count_batches_left_out([[made, make_record()]]) == {
        "batches": 4,
        "measured": 10,
        "runs": 1,
    }


@pytest.mark.parametrize(
    "loads, num_counted",
    [
        ([0.05] * 10, 20),
        # the limit itself is quiet
        ([0.051] + [0.0] * 9, 18),
        ([0.4] * 7 + [0.0] * 3, 20),
        # fewer than a third are quiet
        ([0.4] * 2 + [0.0] * 2, 8),
    ],
)
def test_enough_quiet_batches_are_five_and_a_third(loads, num_counted):
    made = run(loads)
    assert len(disturbance.select_counted_indices(made)) == num_counted
    is_quiet = num_counted < 2 * len(loads) or max(loads) <= 0.05
    assert disturbance.is_disturbed(made) != is_quiet


def test_the_rate_never_decides_which_batches_count():
    made = run([0.0] * 10)
    seconds = list(made.batches.seconds)
    seconds[5] = 50.0
    slow = make_record(
        seconds=seconds,
        warmup=1,
        environment={
            "load": {"others": 0.0, "steal": 0.0, "windows": make_windows([0] * 10, 2)}
        },
        resolved=ONE_CORE,
    )
    assert len(disturbance.select_counted_indices(slow)) == 20


def test_time_that_the_hypervisor_took_is_load():
    made = run([0.04] * 3 + [0.0] * 7, steal=0.03)
    assert disturbance.count_batches_left_out([[made]])["batches"] == 6


def test_the_load_may_be_on_one_device():
    """A share of 3 % of two cores is up to 6 % of one."""
    made = run([0.03] * 3 + [0.0] * 7)
    assert len(disturbance.select_counted_indices(made)) == 20
    two = change_record(
        run([0.03] * 3 + [0.0] * 7, num_devices=2), resolved={"cpu_affinity": [0, 1]}
    )
    assert len(disturbance.select_counted_indices(two)) == 14


def test_windows_that_do_not_cover_all_batches_decide_nothing():
    """A run that continued from a checkpoint does not know the load before it."""
    made = run([0.0, 0.5, 0.0, 0.5, 0.0])
    shorter = dataclasses.replace(
        made.environment.load.windows, batches=(2, 2, 2, 2, 1)
    )
    load = dataclasses.replace(made.environment.load, windows=shorter)
    environment = dataclasses.replace(made.environment, load=load)
    made = dataclasses.replace(made, environment=environment)
    assert len(disturbance.select_counted_indices(made)) == 10
    assert disturbance.is_disturbed(made)


def ranks(*loads_of_ranks):
    """Return a run of ranks with a core each, and these loads per window."""
    made = run(
        loads_of_ranks[0], variable_update="collective_all_reduce", num_workers=2
    )
    own = []
    for number, loads in enumerate(loads_of_ranks):
        own.append(
            {
                "rank": number,
                "host": "a",
                "cpu_affinity": [number],
                "load_others": 0.2,
                "load_windows": None if loads is None else make_windows(loads, 2),
            }
        )
    return change_record(made, workers={"ranks": own})


def test_a_batch_is_disturbed_if_it_was_at_any_rank():
    first = [0.5] + [0.0] * 9
    second = [0.0] * 8 + [0.5, 0.0]
    made = ranks(first, second)
    assert disturbance.count_batches_left_out([[made]])["batches"] == 4
    assert not disturbance.is_disturbed(made)


def test_every_rank_must_know_its_windows():
    made = ranks([0.5] + [0.0] * 9, None)
    assert not disturbance.count_batches_left_out([[made]])
    assert disturbance.is_disturbed(made)


def test_loads_are_compared_in_the_batches_that_count():
    """Two runs that lost different windows had the same load in the others."""
    busy = run([0.5] * 5 + [0.02] * 5, run_load=0.26)
    quiet = run([0.01] * 10, run_load=0.01)
    [watched] = disturbance.count_watched_cores(busy)
    assert watched.others == pytest.approx(0.02)
    assert load_effect.max_slowing_beyond([busy], [quiet]) == 0.0
    assert load_effect.max_slowing([busy]) == 0.0
    too_busy = run([0.5] * 8 + [0.02] * 2, run_load=0.4)
    assert load_effect.max_slowing_beyond([too_busy], [quiet]) > 0.3


def test_a_disturbed_row_does_not_widen_another():
    """A run whose quiet batches count is a quiet run."""
    for loads, is_shared in (([0.5] * 4 + [0.0] * 6, True), ([0.5] * 10, False)):
        records = []
        for mode in ("independent", "replicated"):
            for _ in range(2):
                mode_loads = loads if mode == "replicated" else [0.0] * 10
                records.append(run(mode_loads, variable_update=mode))
        scatters = rows.compute_shared_scatters_by_key(rows.build_rows(records))
        first, second = scatters.values()
        assert (first is second) == is_shared


def test_a_disturbed_candidate_does_not_widen_another():
    rates = {"a": [100, 101], "b": [98, 99], "busy": [40, 95]}
    alone = ranking.rank({name: rates[name] for name in "ab"})
    width = alone.standings["a"].rate.half_width
    assert ranking.rank(rates).standings["a"].rate.half_width > 5 * width
    apart = ranking.rank(rates, ["busy"])
    assert apart.standings["a"].rate.half_width == pytest.approx(width)
    assert apart.standings["busy"].rate.half_width > 5 * width


def test_the_steady_state_is_that_of_the_quiet_batches():
    made = run([0.0] * 25 + [0.4] * 10 + [0.0] * 25, warmup=10)
    state = steady_state.analyse_run(made)
    assert state.start == 10
    assert state.rate_steady == pytest.approx(100 / QUIET_S)
    assert not state.outliers
    all_batches = steady_state.analyse(made.batches.seconds, made.batches.items)
    assert all_batches.rate_default < 95


def test_a_list_of_windows_with_another_length_is_a_fault():
    made = run([0.0] * 10)
    text = made.to_json().replace('"steal": [\n', '"steal": [\n     0.0,\n', 1)
    with pytest.raises(record.RecordError) as refused:
        record.from_json(text)
    assert "load.windows.steal" in str(refused.value)
