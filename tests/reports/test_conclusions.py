"""The answer of a report: its numbers agree with the tables.

It states which results are unknown, and names the command that would decide them.
"""

import math
import random

import pytest

from rnn_scaling.reports import conclusions, table
from rnn_scaling.reports.series_statements import make_statements
from tests.support.answers import by_kind, lead, list_parts, state_by_mode, value
from tests.support.records import change_record
from tests.support.scaling_runs import (
    make_attributed_runs,
    make_repeats,
    make_runs_at_rates,
    make_timed_run,
    summarise_records,
)

RESTS = (
    "points-not-split",
    "rest-not-separated",
    "rest-within-noise",
    "rest-within-noise-or-load",
)


def test_a_difference_within_the_noise_is_not_called_scaling_loss():
    made = state_by_mode(make_repeats({1: 100, 2: 199.9}))["independent"]
    assert "near-ideal" in made and "part" not in made
    assert made["repeats-would-show-loss"].values == {"repeats": 10, "points": "0.9"}


def test_one_run_is_never_a_firm_statement():
    made = summarise_records([make_timed_run(1, 100), make_timed_run(2, 140)])
    one = lead(made)
    assert list(one) == ["reaches-about", "single-runs", "repeats-would-show-spread"]
    assert "±" not in conclusions.write_answer(made)
    assert "±" not in table.format_text(made)
    assert not conclusions.list_interval_kinds(made.series)
    mixed = lead(summarise_records([make_timed_run(1, 100), *make_repeats({2: 140})]))
    assert mixed["single-run-on"].values == {"devices": "1 device"}
    assert "single-runs" not in mixed


def test_what_is_named_of_a_loss_adds_up_to_it_as_printed():
    random_, named = random.Random(5), 0
    for _ in range(25):
        lost = [random_.uniform(-0.06, 0.12) for _ in range(2)]
        rates = {("independent", 1): 1.0, ("independent", 2): 1 - lost[0]}
        rates |= {("replicated", 1): 1.0, ("replicated", 2): 1 - sum(lost)}
        scatter = random_.choice([0.002, 0.02])
        runs = [
            make_timed_run(
                n,
                100 * n * rate * math.exp(random_.gauss(0, scatter)),
                k,
                variable_update=mode,
            )
            for (mode, n), rate in rates.items()
            for k in range(4)
        ]
        [series] = [
            each
            for each in summarise_records(runs).series
            if "replicated" in each.title
        ]
        made = make_statements(series)
        found = [
            value(each, "points") for each in made if each.kind in ("part", *RESTS)
        ]
        found += [
            -value(each, "points")
            for each in made
            if each.kind in ("part-gains", "part-gains-exchange")
        ]
        reached = by_kind(made).get("reaches")
        if not found or reached is None:
            assert not list_parts(made)
            continue
        named += 1
        assert sum(found) == pytest.approx(
            100 - value(reached, "efficiency"), abs=1e-6
        ), made
    assert named > 4


def test_the_few_runs_beside_other_load_are_named_with_the_command_that_repeats_them():
    runs = make_attributed_runs()
    load = {"load": {"others": 0.4, "steal": 0.0, "seconds": 9.0}}
    one = summarise_records(
        [
            change_record(each, environment=load) if k == 7 else each
            for k, each in enumerate(runs)
        ]
    )
    [(file, row)] = conclusions.list_few_disturbed_runs(one)
    assert file == "7.json"
    assert runs[7].config["num_devices"] == row.num_devices
    assert file in conclusions.write_answer(one)
    command = conclusions.list_all_missing_run_commands(one)[0]
    assert command.startswith("rm results/7.json && ")
    assert command.endswith(" --repeats=3 --out=results")
    assert f"--num_devices={row.num_devices}" in command
    assert f"={runs[7].config['variable_update']}" in command
    assert not conclusions.list_few_disturbed_runs(
        summarise_records([change_record(each, environment=load) for each in runs])
    )
    assert not conclusions.list_few_disturbed_runs(summarise_records(runs))


def test_an_exchange_that_speeds_up_is_contention_or_noise():
    rates = {("independent", 1): 100, ("independent", 2): 160}
    rates |= {("replicated", 1): 100, ("replicated", 2): 180}
    runs = make_runs_at_rates(rates, 4)
    [series] = [
        each for each in summarise_records(runs).series if "replicated" in each.title
    ]
    kinds = [each.kind for each in make_statements(series)]
    assert "part-gains-exchange" in kinds and "part-gains" not in kinds
    headline_kinds = [
        each.kind for each in conclusions.state_answer(summarise_records(runs))
    ]
    place = headline_kinds.index("effect-of-two")
    assert headline_kinds[place + 1] == "effect-without-exchange"


def test_a_bound_that_another_row_of_the_table_refutes_is_dropped():
    """Compare a program that keeps its cores busy with one that waits.

    The latter reaches 100.4 % on 4 devices.
    """

    def of_modes(waiting_rate):
        runs = []
        rates = {"parameter_server": 180.0, "replicated": waiting_rate}
        for mode, on_four in rates.items():
            for devices, rate in ((1, 100.0), (4, on_four)):
                cores = [*range(min(devices, 2))]
                shared = {"cpu_affinity": cores, "oversubscribed": devices > 2}
                runs += [
                    change_record(
                        make_timed_run(devices, rate, k, variable_update=mode),
                        resolved=shared,
                    )
                    for k in range(3)
                ]
        busy = next(
            series
            for series in summarise_records(runs).series
            if "parameter_server" in series.title
        )
        made = make_statements(busy)
        return by_kind(made), list_parts(made)

    said, found = of_modes(waiting_rate=190.0)
    assert said["shared-cores-bound"].values == {"share": 0.5}
    assert said["part-computed"].subject == "oversubscription"
    assert found["oversubscription"] == 50.0
    said, found = of_modes(waiting_rate=401.6)
    assert said["shared-cores"].values["cores"] == 2
    assert "shared-cores-bound" not in said
    assert "part-computed" not in said
    assert "oversubscription" not in found


def test_a_part_that_load_explains_in_part_says_how_much_of_it():
    """Load of 10 % of a core may have slowed one or two devices by 10 %."""
    loaded = []
    for devices, share in ((1, 0.1), (2, 0.05)):
        load = {"load": {"others": share, "steal": 0.0, "seconds": 9.0}}
        parts = {"environment": load, "resolved": {"cpu_affinity": [*range(devices)]}}
        loaded += [
            change_record(make_timed_run(devices, 20, k), **parts) for k in range(3)
        ]
    said = lead(summarise_records(loaded))
    assert said["part"].values["points"]["value"] == pytest.approx(50)
    assert said["part-with-load"].values["load"] == pytest.approx(2 * 50 * 0.1 / 0.9)
    assert "part-with-load" not in lead(summarise_records(make_repeats({1: 20, 2: 20})))


def test_a_part_whose_interval_contains_zero_is_not_called_a_loss():
    rates = {("independent", 1): 100, ("independent", 2): 140.2}
    rates |= {("replicated", 1): 100, ("replicated", 2): 140}
    made = state_by_mode(make_runs_at_rates(rates))["replicated"]
    assert made["part"].subject == "contention"
    assert made["rest-within-noise"].values["parts"] == ["exchange"]
    assert value(made["rest-within-noise"], "points") == pytest.approx(0.1, abs=0.01)


def test_what_is_missing_is_said_with_the_command_that_supplies_it():
    [alone] = summarise_records(
        [make_timed_run(2, 140, variable_update="replicated")]
    ).series
    assert "needs-run-on-one-device" in by_kind(make_statements(alone))
    assert [
        "--num_devices=1 " in line
        for line in conclusions.list_missing_run_commands(alone)
    ] == [True]
    [one] = summarise_records([make_timed_run(1, 100)]).series
    assert list(by_kind(make_statements(one))) == ["rate", "not-run-on-more-devices"]
    assert "--num_devices=2" in conclusions.list_missing_run_commands(one)[0]
    runs = [
        run
        for run in make_attributed_runs()
        if run.config["variable_update"] == "replicated"
    ]
    [replicated] = summarise_records(runs).series
    assert by_kind(make_statements(replicated))["parts-need-runs"].values["parts"] == [
        "contention",
        "exchange",
    ]
    assert all(
        "--variable_update=independent" in line
        for line in conclusions.list_missing_run_commands(replicated)
    )
