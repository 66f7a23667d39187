"""The rounds of a sweep: what decides most comes first, and disturbed runs are repeated."""

import math

import pytest

from rnn_scaling.config.flags import FlagErrors
from rnn_scaling.sweeps.plan import plan
from rnn_scaling.sweeps.sweep_rounds import (
    SweepRounds,
    measure_precision,
    split_into_stages,
)
from rnn_scaling.sweeps.time_budget import (
    Budget,
    choose_budget,
    choose_num_batches,
    has_fixed_length,
)
from tests.analysis.test_load_correction import (
    make_runs_beside_busy_process,
    remove_own_shares,
)
from tests.support.records import change_record, make_record
from tests.support.rounds import Minutes

QUIET = {"others": 0.0, "steal": 0.0, "seconds": 5.0}
BUSY = {"others": 0.4, "steal": 0.0, "seconds": 5.0}


def default_runs(**lists):
    return plan({"num_devices": [1, 2], **lists}, num_gpus=0, num_cores=2)


def list_replicated_runs():
    return default_runs(variable_update=["replicated"], encoder_type=["cudnn_lstm"])


def two_rounds(runs, has_budget=True):
    return SweepRounds(runs, has_budget=has_budget, num_rounds=2)


def list_labels(runs, repeats):
    """Return the labels of these repeats of the runs."""
    suffixes = ["" if repeat == 1 else f".r{repeat}" for repeat in repeats]
    return {f"{run.name}{suffix}" for run in runs for suffix in suffixes}


def measure(rounds, minutes=math.inf, busy=(), failed=(), spread=0.0):
    """Measure all runs that the rounds choose; return the labels of each round."""
    clock = Minutes(minutes)
    labels = []
    while runs := rounds.choose(clock):
        labels.append([run.label for run in runs])
        assert clock.records.keys().isdisjoint(labels[-1]), "no run is made twice"
        for run in runs:
            seconds = (1.0 + spread * run.repeat) / run.options["num_devices"]
            status = "failed" if run.name in failed else "ok"
            rate = {"seconds": [seconds] * 5} if status == "ok" else {}
            record = make_record(status, config=run.options, **rate)
            load = BUSY if run.label in busy else QUIET
            clock.records[run.label] = change_record(record, environment={"load": load})
    return labels, clock.records


def test_a_budget_first_measures_what_the_exchange_costs():
    stages = split_into_stages(default_runs(num_devices=[1, 2, 4]))
    first = {run.name for run in stages[0]}
    modes = ("independent", "replicated")
    assert first == {f"cudnn_lstm-{mode}-{n}" for mode in modes for n in (1, 4)}
    assert [run.name for run in stages[1]] == [
        f"cudnn_lstm-parameter_server-{n}" for n in (1, 4)
    ]
    between = [run.options["num_devices"] == 2 for stage in stages for run in stage]
    assert between == sorted(between), "numbers of devices in between come last"


@pytest.mark.parametrize(
    "minutes, spread, sizes",
    [
        (0, 0.0, [4]),  # the first round is made in any case
        (9, 0.0, [4, 4]),  # two rounds of the first stage
        (25, 0.1, [4, 4, 4, 4, 2, 2, 4]),  # a noisy stage gets further rounds
    ],
)
def test_a_budget_gives_rounds_of_the_first_stage_before_the_next_stage(
    minutes, spread, sizes
):
    runs = default_runs()
    rounds = two_rounds(runs)
    labels, records = measure(rounds, minutes=minutes, spread=spread)
    assert [len(chosen) for chosen in labels] == sizes
    backwards = [f"{label}.r2" for label in reversed(labels[0])]
    assert labels[1:2] == [backwards] * (len(sizes) > 1)
    if spread:
        assert {"cudnn_lstm-replicated-2.r4"} <= records.keys()
        assert "cudnn_lstm-replicated-2.r5" not in records
    else:
        assert len(rounds.list_left_out(records)) == 2 * len(runs) - len(records)


def test_load_that_hides_the_efficiencies_brings_no_further_round():
    on_two = list_labels(default_runs(num_devices=[2]), (1, 2))
    rounds = two_rounds(default_runs())
    labels, _ = measure(rounds, minutes=16, busy=on_two, spread=0.1)
    assert [len(chosen) for chosen in labels[:3]] == [4, 4, 2]


def test_a_series_is_made_on_all_numbers_of_devices_or_not_at_all():
    _, records = measure(two_rounds(default_runs()), minutes=11)
    names = {label.partition(".")[0] for label in records}
    assert all(name[:-1] + "1" in names and name[:-1] + "2" in names for name in names)


@pytest.mark.parametrize("has_budget", [True, False])
def test_a_disturbed_run_is_repeated_once_and_the_others_are_not(has_budget):
    rounds = two_rounds(list_replicated_runs(), has_budget)
    labels, records = measure(rounds, busy={"cudnn_lstm-replicated-2.r2"})
    assert labels[-1] == ["cudnn_lstm-replicated-2.r3"]
    assert len(records) == 5
    assert rounds.num_replaced == 1
    assert not rounds.is_busy(records)


@pytest.mark.parametrize(
    "has_budget, num_devices, repeats, num_rounds, is_busy",
    [
        (True, [1, 2], (2, 3, 4), 3, True),  # a round of repeats, and then the end
        (True, [1, 2], (1, 2, 3, 4), 2, True),
        (False, [1, 2], (1, 2, 3, 4), 2, True),
        (False, [2], (1, 2, 3), 2, False),
    ],
)
def test_a_busy_machine_gets_at_most_one_round_of_repeats(
    has_budget, num_devices, repeats, num_rounds, is_busy
):
    runs = list_replicated_runs()
    on_these = [run for run in runs if run.options["num_devices"] in num_devices]
    rounds = two_rounds(runs, has_budget)
    busy = list_labels(on_these, repeats)
    labels, records = measure(rounds, busy=busy, spread=0.5)
    assert sum(map(len, labels)) == 2 * num_rounds
    assert rounds.is_busy(records) == is_busy


@pytest.mark.parametrize("has_budget", [True, False])
def test_a_machine_that_is_busy_from_the_start_is_measured_once(has_budget):
    runs = default_runs()
    busy = list_labels(runs, (1, 2, 3, 4))
    rounds = two_rounds(runs, has_budget)
    labels, records = measure(rounds, busy=busy, spread=0.5)
    assert sum(map(len, labels)) == 2 * len(runs) and rounds.num_replaced == 0
    # Later, the same command repeats the runs once.
    clock = Minutes(records=records)
    again = two_rounds(runs, has_budget)
    assert {run.repeat for run in again.choose(clock)} == {3}


def test_rounds_end_when_the_answer_is_precise():
    runs = list_replicated_runs()
    assert len(measure(two_rounds(runs, False))[1]) == 4
    assert len(measure(two_rounds(runs, False), spread=0.3)[1]) == 6
    assert len(measure(two_rounds(runs), minutes=9, spread=0.3)[1]) == 8


def test_an_efficiency_that_load_hides_is_not_precise():
    corrected = make_runs_beside_busy_process()
    hidden = list(map(remove_own_shares, corrected))
    assert measure_precision(corrected).half_width < math.inf
    assert measure_precision(hidden).half_width == math.inf


@pytest.mark.parametrize(("devices", "unit"), [([1, 2], "points"), ([2], "%")])
def test_the_precision_of_efficiencies_is_in_points(devices, unit):
    runs = default_runs(num_devices=devices, variable_update=["independent"])
    clock = Minutes(math.inf)
    rounds = two_rounds(runs, has_budget=False)
    for run in rounds.choose(clock):
        seconds = [(1.0 + 0.06 * run.repeat) / run.options["num_devices"]] * 5
        record = make_record("ok", config=run.options, seconds=seconds)
        clock.records[run.label] = record
    precision = measure_precision(clock.records.values())
    assert precision.unit == unit
    rounds.choose(clock)
    assert f"±{precision.half_width:.0f} {unit}, " in rounds.reason
    assert rounds.reason.endswith(f"±5 {unit}")


def test_a_failed_configuration_is_not_repeated_with_a_budget():
    rounds = two_rounds(list_replicated_runs())
    _, records = measure(rounds, failed={"cudnn_lstm-replicated-2"})
    assert list(records).count("cudnn_lstm-replicated-2.r2") == 0
    assert rounds.list_left_out(records) == []


@pytest.mark.parametrize(
    "batch_s, num_batches", [(2.0, 10), (0.2, 20), (0.05, 100), (0.0001, 200)]
)
def test_fast_batches_are_measured_more_often(batch_s, num_batches):
    assert choose_num_batches(make_record(seconds=[batch_s] * 3)) == num_batches


@pytest.mark.parametrize(
    "minutes, repeats, is_default, expected",
    [
        (None, 0, True, 3),
        (None, 0, False, math.inf),
        (None, 3, True, math.inf),
        (0.0, 0, True, math.inf),
        (0.5, 0, False, 0.5),
    ],
)
def test_only_a_sweep_without_flags_has_a_budget_by_default(
    minutes, repeats, is_default, expected
):
    assert choose_budget(minutes, repeats, is_default).minutes == expected


def test_repeats_and_minutes_exclude_each_other():
    with pytest.raises(FlagErrors):
        choose_budget(3.0, 2, True)


def test_the_command_that_continues_keeps_the_number_of_batches():
    words = ["--out=x", "--minutes=3"]
    assert Budget(3.0).continue_words(words, 20) == [
        "sweep",
        "--out=x",
        "--num_batches=20",
        "--minutes=0",
    ]


@pytest.mark.parametrize("option", ["num_batches", "num_epochs", "until_steady"])
def test_the_users_length_of_a_run_is_kept(option):
    assert has_fixed_length({option: [1]})
    assert not has_fixed_length({"encoder_type": ["cudnn_lstm"]})
