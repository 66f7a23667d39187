"""Which series a report calls fastest, and what it says about a tie."""

import math

import pytest

from rnn_scaling.analysis.confidence import divide_rates
from rnn_scaling.analysis.significance import is_above
from rnn_scaling.reports import conclusions, fastest_series, headline, table
from tests.support.answers import by_kind, lead, value
from tests.support.records import change_record, read_fields
from tests.support.scaling_runs import (
    make_repeats,
    make_runs_at_rates,
    make_timed_run,
    run,
    summarise_records,
)
from tests.support.views import render_json


def make_rates_apart(difference, repeats, scatter=0.02):
    """Two series of a difference in the logarithm, whose repeats have the same standard deviation whatever they are."""
    steps = [(2 * k + 1) / repeats - 1 for k in range(repeats)]
    unit = scatter / math.sqrt(sum(step**2 for step in steps) / (repeats - 1))
    rates = {"mirrored": 1e6 * math.exp(difference), "replicated": 1e6}
    return [
        run(n, rate * n * math.exp(unit * step), variable_update=mode)
        for mode, rate in rates.items()
        for n in (1, 2)
        for step in steps
    ]


def test_two_series_are_told_apart_by_the_interval_of_their_ratio():
    # The intervals of two rates may overlap even if the interval of their ratio excludes
    # 1. Here t = 2.1, with 18 degrees of freedom.
    told, untold = (
        summarise_records(
            make_rates_apart(factor * 2.1009 * 0.02 * math.sqrt(2 / 10), 10)
        )
        for factor in (1.01, 0.99)
    )
    slow, fast = sorted(
        (each.row_on(2).rate for each in told.series), key=lambda rate: rate.value
    )
    assert fast.low < slow.high
    assert "fastest" in lead(told)
    assert divide_rates(fast, slow).low > 1
    assert "fastest-unclear" in lead(untold)
    # Picked as the highest of several it needs more: 5 % are of all pairs together.
    assert is_above(fast, slow) and not is_above(fast, slow, 3)


def tie(summary):
    """Return the statements of the ranking on two devices by kind."""
    return by_kind(fastest_series.state_fastest(summary.series, 2))


def test_an_answer_has_one_decision_about_a_tie():
    for difference in (0.0002, 0.01, 0.02):
        statements_ = conclusions.state_answer(
            summarise_records(make_rates_apart(difference, 5))
        )
        decisions = (*headline.DECISIONS, *fastest_series.DECISIONS)
        hints = [each.kind for each in statements_ if "seen" in each.values]
        found = [each.kind for each in statements_ if each.kind in decisions]
        assert len(hints) <= 1
        assert len(found) - len(hints) <= 1
        assert found
        assert not set(found) & set(fastest_series.DECISIONS)


def test_a_tie_ends_with_a_decision_and_the_repeats_of_the_seen_difference():
    near = tie(summarise_records(make_rates_apart(0.02, 5)))
    seen = near["seen-difference"].values
    assert seen["seen"] == pytest.approx(math.expm1(0.02), rel=1e-4)
    # The number that it names shows such a difference, and one run less does not.
    for repeats, kind in ((seen["repeats"], "fastest"), (5, "fastest-unclear")):
        assert kind in lead(summarise_records(make_rates_apart(0.02, repeats)))
    assert seen["seen"] < near["take-either"].values["within"] < 0.1
    # Equal rates need no repeats: either will do.
    equal = tie(summarise_records(make_rates_apart(0.0002, 5)))
    assert equal["seen-difference-too-small"].values["repeats"] is None
    assert "take-either" in equal and "seen-difference" not in equal


def test_a_series_that_others_slowed_is_not_called_slower():
    def runs(load):
        environment = {"load": {"others": load, "steal": 0.0, "seconds": 9.0}}
        slow = [
            change_record(each, environment=environment)
            for each in on_two({"parameter_server": 80})
        ]
        return [*on_two({"replicated": 100}), *slow]

    assert "fastest" in lead(summarise_records(runs(0.0)))
    told = lead(summarise_records(runs(0.4)))
    assert "quiet-runs-would-tell" in told and "others-slower" not in told
    assert told["other-load"].values["share"] == pytest.approx(0.4)


def test_the_fastest_is_chosen_where_all_were_measured():
    rates = {("replicated", 1): 100, ("replicated", 2): 150, ("replicated", 4): 280}
    rates |= {("mirrored", 1): 100, ("mirrored", 2): 190}
    said = lead(summarise_records(make_runs_at_rates(rates)))
    assert said["fastest"].subject == "cudnn_lstm, mirrored"
    assert said["fastest"].values["devices"] == "2 devices"
    assert "most-common-devices" in said


def on_two(rates):
    """Three runs of each mode on one and on two devices."""
    by_devices = {}
    for mode, rate in rates.items():
        by_devices |= {(mode, n): n * rate for n in (1, 2)}
    return make_runs_at_rates(by_devices)


def with_loss(made, loss):
    return change_record(made, batches={**read_fields(made)["batches"], "loss": loss})


@pytest.mark.parametrize("end", [[2.0, 3.0, *[None] * 38], [2.0] * 39 + [50.0]])
def test_a_training_that_diverged_never_wins_and_is_named(end):
    rates = {"replicated": 150, "mirrored": 120, "parameter_server": 100}

    def said(*diverged):
        runs = []
        for each in on_two(rates):
            is_lost = each.config["variable_update"] in diverged
            runs.append(with_loss(each, end if is_lost else [2.0] * 40))
        return summarise_records(runs)

    made = said("replicated")
    found = lead(made)
    assert found["fastest"].subject == "cudnn_lstm, mirrored"
    assert found["not-ranked-diverged"].values == {"names": ["cudnn_lstm, replicated"]}
    assert "3, diverged" in table.format_text(made)
    counts = [each.get("runs_diverged") for each in render_json(made)["series"]]
    assert counts == [None, None, 6]
    found = lead(said("replicated", "mirrored"))
    assert "fastest" not in found and "reaches" in found
    found = lead(said(*rates))
    assert "fastest" not in found and "reaches" not in found


def test_a_loss_that_another_trainer_does_not_tell_is_no_divergence():
    theirs = []
    for each in make_repeats({1: 100, 2: 200}):
        made = with_loss(each, [2.0, *[None] * 39])
        theirs.append(change_record(made, config={**made.config, "trainer": "mine"}))
    assert not summarise_records(theirs).series[0].num_diverged


def test_a_series_that_failed_is_named_with_what_failed():
    runs = on_two({"replicated": 150, "mirrored": 120})
    failed = [run(n, 1.0, "failed", variable_update="parameter_server") for n in (1, 2)]
    above = run(4, 1.0, "failed", variable_update="mirrored")
    said = lead(summarise_records([*runs, *failed, above]))
    names = ["cudnn_lstm, parameter_server"]
    assert "fastest" in said and said["not-ranked-failed"].values == {"names": names}
    assert said["failed-above"].subject == "cudnn_lstm, mirrored"
    assert said["failed-above"].values["devices"] == ["4 devices"]
    half = make_repeats({1: 100}, variable_update="parameter_server")
    assert "not-ranked-failed-on-several" in lead(
        summarise_records([*runs, *half, failed[1]])
    )
    alone = lead(summarise_records([*make_repeats({1: 100}), run(2, 1.0, "failed")]))
    assert "failed-above" in alone and "not-run-on-more-devices" not in alone


def test_a_speed_that_turns_over_is_said_with_the_number_of_devices_that_is_best():
    def series(*speedups, repeats=3):
        runs = []
        for devices, speedup in zip((1, 2, 4, 8), speedups):
            runs += [make_timed_run(devices, 1000 * speedup, k) for k in range(repeats)]
        return summarise_records(runs)

    turned = series(1, 1.96, 3.45, 2.75)
    peak = lead(turned)["fastest-on-fewer-scaled"]
    assert peak.values["devices"] == "4 devices"
    assert value(peak, "rate") == pytest.approx(3450, rel=1e-3)
    assert render_json(turned)["series"][0]["fastest_on"] == 4
    falling = lead(series(1, 0.9, 0.8, 0.7))
    assert falling["fastest-on-fewer"].values["devices"] == "1 device"
    for noise in (series(1, 1.96, 3.45, 3.44), series(1, 1.9, 3.0, 2.9, repeats=1)):
        assert not any(kind.startswith("fastest") for kind in lead(noise))
        assert noise.series[0].faster_on_fewer_devices is None
