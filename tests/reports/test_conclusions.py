"""The answer: it has the numbers of the tables, states what is not known, and names the command that would tell."""

from __future__ import annotations

import json
import math
import random
import re

import pytest

from rnn_scaling.analysis.confidence import Interval, ratio
from rnn_scaling.analysis.significance import is_above
from rnn_scaling.reports import conclusions, json_report, table
from rnn_scaling.reports.series_statements import series_text, statements
from tests.support.records import changed, fields_of
from tests.support.scaling_runs import attributed, beside_load, of, run, timed

RESTS = (
    "points-not-split",
    "rest-not-separated",
    "rest-within-noise",
    "rest-within-noise-or-load",
)


def stated(records):
    """Mode -> the statements of its series, by kind; of several of one kind the last."""
    return {
        series.title.split(", ")[1]: by_kind(statements(series))
        for series in of(records).series
    }


def by_kind(made):
    return {statement.kind: statement for statement in made}


def lead(summary):
    return by_kind(conclusions.answer_statements(summary))


def value(statement, name):
    return statement.values[name]["value"]


def parts(made):
    """Part -> its points, of the statements of a series."""
    return {each.subject: value(each, "points") for each in made if each.kind == "part"}


def test_the_sentence_has_the_numbers_of_the_table_and_they_add_up():
    (series,) = [each for each in of(attributed()).series if "replicated" in each.title]
    made, text = statements(series), series_text(series)
    lines = table.render(of(attributed())).decode().splitlines()
    cells = next(
        row
        for row in reversed(lines)
        if row.startswith("| ") and " 64 |" in row or " 32 |" in row
    )
    efficiency, speedup, *_ = re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", text)
    assert efficiency in cells and speedup in cells and "±" in efficiency
    assert parts(made) == {
        "exchange": pytest.approx(20.0, abs=0.1),
        "contention": pytest.approx(10.0, abs=0.1),
    }
    assert value(by_kind(made)["reaches"], "efficiency") + sum(
        parts(made).values()
    ) == pytest.approx(100)


def test_the_first_sentence_is_about_the_fastest_series_that_trains_one_model():
    made = of(attributed())
    first, second, *_ = conclusions.answer_statements(made)
    assert (first.kind, second.kind, second.subject) == (
        "one-ranked",
        "reaches",
        "cudnn_lstm, replicated",
    )
    assert "ranked-one-model" in lead(made)
    (span, *_) = conclusions.overview_statements(made)
    assert (span.kind, span.values["series"]) == ("efficiency-range", 2)
    assert (value(span, "low"), value(span, "high")) == (
        pytest.approx(70, abs=0.1),
        pytest.approx(90, abs=0.1),
    )


def test_a_part_whose_interval_contains_zero_is_not_called_a_loss():
    rates = {
        ("independent", 1): 100,
        ("independent", 2): 140.2,
        ("replicated", 1): 100,
        ("replicated", 2): 140,
    }
    runs = [
        timed(n, rate, k, variable_update=mode)
        for (mode, n), rate in rates.items()
        for k in range(3)
    ]
    made = stated(runs)["replicated"]
    assert made["part"].subject == "contention" and made["rest-within-noise"].values[
        "parts"
    ] == ["exchange"]
    assert value(made["rest-within-noise"], "points") == pytest.approx(0.1, abs=0.01)


def test_a_difference_within_the_noise_is_not_called_scaling_loss():
    runs = [timed(n, rate, k) for n, rate in ((1, 100), (2, 199.9)) for k in range(3)]
    made = stated(runs)["independent"]
    assert "near-ideal" in made and "part" not in made
    assert made["repeats-would-show-loss"].values == {"repeats": 10, "points": "0.9"}


def test_more_than_the_ideal_is_given_no_cause():
    runs = [timed(n, rate, k) for n, rate in ((1, 100), (2, 230)) for k in range(3)]
    assert "above-ideal" in stated(runs)["independent"]
    within = [timed(n, rate, k) for n, rate in ((1, 100), (2, 200.6)) for k in range(3)]
    assert "near-ideal" in stated(within)["independent"]


def test_runs_that_vary_too_much_are_not_given_an_efficiency_to_quote():
    made = stated([timed(1, 100), timed(1, 190), timed(2, 150), timed(2, 320)])[
        "independent"
    ]
    assert "runs-vary" in made and "reaches" not in made


def test_what_is_missing_is_said_with_the_command_that_supplies_it():
    (alone,) = of([timed(2, 140, variable_update="replicated")]).series
    assert "needs-run-on-one-device" in by_kind(statements(alone))
    assert [
        "--num_devices=1 " in line for line in conclusions.missing_run_commands(alone)
    ] == [True]
    (one,) = of([timed(1, 100)]).series
    assert list(by_kind(statements(one))) == ["rate", "not-run-on-more-devices"]
    assert "--num_devices=2" in conclusions.missing_run_commands(one)[0]
    runs = [
        run for run in attributed() if run.config["variable_update"] == "replicated"
    ]
    (replicated,) = of(runs).series
    assert by_kind(statements(replicated))["parts-need-runs"].values["parts"] == [
        "contention",
        "exchange",
    ]
    assert all(
        "--variable_update=independent" in line
        for line in conclusions.missing_run_commands(replicated)
    )


def test_on_one_device_alone_the_fastest_is_named_and_no_speedup_is_shown():
    made = of(
        [
            timed(1, rate, k, encoder_type=name)
            for name, rate in (("a", 90), ("b", 100))
            for k in range(3)
        ]
    )
    first, *_, last = conclusions.answer_statements(made)
    assert (first.kind, first.subject, first.values["devices"]) == (
        "fastest",
        "b, independent",
        "1 device",
    )
    assert (
        value(first, "rate") == pytest.approx(100, rel=1e-3)
        and last.kind == "none-on-several"
    )
    first = table.text(made).split("\n\n")[1]
    assert [cell.strip() for cell in first.splitlines()[0].split("|")[1:-1]] == [
        "Series",
        "Words/s on 1 device",
        "Runs",
    ]


def test_failed_runs_are_said_and_never_counted():
    runs = [*attributed(), run(4, 1.0, "failed", variable_update="replicated")]
    assert stated(runs)["replicated"]["failed-above"].values == {
        "devices": ["4 devices"]
    }
    assert [f.reason for f in of(runs).failures] == ["X: out of memory"]
    assert list(lead(of([run(1, 0.0, "failed")]))) == ["no-run-succeeded"]


def test_one_run_is_never_a_firm_statement():
    made = of([timed(1, 100), timed(2, 140)])
    one = lead(made)
    assert list(one) == ["reaches-about", "single-runs", "repeats-would-show-spread"]
    assert (
        "±" not in conclusions.answer_text(made)
        and "±" not in table.text(made)
        and not conclusions.interval_kinds(made.series)
    )
    mixed = lead(of([timed(1, 100), *(timed(2, 140, k) for k in range(3))]))
    assert (
        mixed["single-run-on"].values == {"devices": "1 device"}
        and "single-runs" not in mixed
    )
    modes = ("replicated", "mirrored")
    several = [
        timed(n, 100 * n, k, variable_update=mode)
        for mode in modes
        for n in (1, 2)
        for k in range(3)
        if n < 2 or not k
    ]
    assert list(by_kind(conclusions.overview_statements(of(several)))) == [
        "efficiency-range",
        "single-runs",
    ]
    assert "reaches-about" not in lead(of(attributed()))


def test_what_is_named_of_a_loss_adds_up_to_it_as_printed():
    random_, named = random.Random(5), 0
    for _ in range(60):
        lost = [random_.uniform(-0.06, 0.12) for _ in range(2)]
        rates = {("independent", 1): 1.0, ("independent", 2): 1 - lost[0]}
        rates |= {("replicated", 1): 1.0, ("replicated", 2): 1 - sum(lost)}
        scatter = random_.choice([0.002, 0.02])
        runs = [
            timed(
                n,
                100 * n * rate * math.exp(random_.gauss(0, scatter)),
                k,
                variable_update=mode,
            )
            for (mode, n), rate in rates.items()
            for k in range(4)
        ]
        (series,) = [each for each in of(runs).series if "replicated" in each.title]
        made = statements(series)
        found = [
            value(each, "points") for each in made if each.kind in ("part", *RESTS)
        ]
        found += [-value(each, "points") for each in made if each.kind == "part-gains"]
        reached = by_kind(made).get("reaches")
        if not found or reached is None:
            assert not parts(made)
            continue
        named += 1
        assert sum(found) == pytest.approx(
            100 - value(reached, "efficiency"), abs=1e-6
        ), made
    assert named > 10


def test_a_loss_that_cannot_be_told_has_no_parts():
    """97.6 % reached, and 6 points lost beside a gain that nobody can tell: what is named would not add up."""
    rates = {
        ("independent", 1): 100,
        ("independent", 2): 188,
        ("replicated", 1): 100,
        ("replicated", 2): 195.2,
    }
    spread = {
        ("independent", 1): 0.002,
        ("independent", 2): 0.002,
        ("replicated", 1): 0.03,
        ("replicated", 2): 0.03,
    }
    runs = [
        timed(n, rate * (1 + spread[mode, n] * (k - 1)), variable_update=mode)
        for (mode, n), rate in rates.items()
        for k in range(3)
    ]
    made = stated(runs)["replicated"]
    assert value(made["reaches"], "efficiency") == pytest.approx(97.6, abs=0.05)
    assert "near-ideal" in made and "part" not in made


def test_the_few_runs_beside_other_load_are_named_with_the_command_that_repeats_them():
    runs = attributed()
    load = {"load": {"others": 0.4, "steal": 0.0, "seconds": 9.0}}
    one = of(
        [
            changed(each, environment=load) if k == 7 else each
            for k, each in enumerate(runs)
        ]
    )
    ((file, row),) = conclusions.few_disturbed_runs(one)
    assert (
        file == "7.json"
        and runs[7].config["num_devices"] == row.num_devices
        and file in conclusions.answer_text(one)
    )
    command = conclusions.all_missing_run_commands(one)[0]
    assert command.startswith("rm results/7.json && ") and command.endswith(
        " --repeats=3 --out=results"
    )
    assert (
        f"--num_devices={row.num_devices}" in command
        and f"={runs[7].config['variable_update']}" in command
    )
    assert not conclusions.few_disturbed_runs(
        of([changed(each, environment=load) for each in runs])
    ) and not conclusions.few_disturbed_runs(of(runs))


def rates_apart(difference, repeats, scatter=0.02):
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


def test_two_series_are_told_apart_by_the_interval_of_their_ratio_and_so_is_what_repeats_are_said_to_show():
    promise = lead(of(rates_apart(0.02, 5)))["repeats-would-show-differences"].values
    # t of 16 degrees at 97.5 and at 80 % is 2.12 and 0.865, times 2 % sqrt(2 / 10): 2.7 %
    assert promise == {"repeats": 10, "percent": "3"}
    made = of(rates_apart(int(promise["percent"]) / 100, 10))
    assert lead(made)["fastest"].subject == "cudnn_lstm, mirrored"
    # The intervals of both may overlap where that of the ratio excludes 1, here with 18 degrees: t = 2.1.
    told, untold = (
        of(rates_apart(factor * 2.1009 * 0.02 * math.sqrt(2 / 10), 10))
        for factor in (1.01, 0.99)
    )
    slow, fast = sorted(
        (each.row_on(2).row.rate for each in told.series), key=lambda rate: rate.value
    )
    assert (
        fast.low < slow.high and "fastest" in lead(told) and ratio(fast, slow).low > 1
    )
    assert "fastest-unclear" in lead(untold)
    # Picked as the highest of several it needs more: 5 % are of all pairs together.
    assert is_above(fast, slow) and not is_above(fast, slow, 3)


def test_efficiencies_are_told_apart_by_their_ratio_too():
    one, other = (
        Interval(e, e / 1.045, e * 1.045, "", e * math.log(1.045) / 2.1009, 18, (10,))
        for e in (0.967, 0.9)
    )
    assert one.low < other.high and is_above(one, other) and not is_above(other, one)
    assert not is_above(one, other, 6) and not is_above(one, one)
    assert not is_above(one, Interval(0.1, None, None, "", None, 0.0, (1,)))


def test_a_series_that_others_slowed_is_not_called_slower():
    def runs(load, **more):
        environment = {"load": {"others": load, "steal": 0.0, "seconds": 9.0}}
        made = [
            timed(n, rate * n * (1 + 0.001 * k), k, variable_update=mode)
            for mode, rate in {
                "replicated": 100,
                "parameter_server": 80,
                **more,
            }.items()
            for n in (1, 2)
            for k in range(3)
        ]
        slow = [each.config["variable_update"] == "parameter_server" for each in made]
        return [
            changed(each, environment=environment) if is_slow else each
            for each, is_slow in zip(made, slow)
        ]

    assert "fastest" in lead(of(runs(0.0)))
    told = lead(of(runs(0.4)))
    assert "quiet-runs-would-tell" in told and "others-slower" not in told
    assert told["other-load"].values["share"] == pytest.approx(0.4)
    mixed = lead(of(runs(0.4, mirrored=100.01, collective_all_reduce=50)))
    tied, slowed = (
        mixed["fastest-unclear"].values["tied"],
        mixed["slowed-by-load"].values["slowed"],
    )
    assert [each["name"].split(", ")[1] for each in (*tied, *slowed)] == [
        "mirrored",
        "replicated",
        "parameter_server",
    ]
    assert (
        mixed["others-slower"].values == {"others": 1}
        and "repeats-would-show-differences" in mixed
    )


def test_least_data_never_wins():
    """Two runs that vary, and a single one beside them: nothing is only to be judged by the single one."""
    runs = [
        timed(n, 100 * n * (0.8 + 0.4 * k), variable_update="replicated")
        for n in (1, 2)
        for k in range(2)
    ]
    runs += [timed(n, 150 * n, variable_update="mirrored") for n in (1, 2)]
    assert "fastest-unclear" in lead(of(runs)) and "fastest" not in lead(of(runs))


def test_load_and_oversubscription_are_named_where_the_number_stands():
    cores = {1: [0], 4: [0, 1]}
    resolved = {n: {"cpu_affinity": cores[n], "oversubscribed": n == 4} for n in cores}
    runs = [
        changed(timed(n, r, k), resolved=resolved[n])
        for n, r in ((1, 100), (4, 180))
        for k in range(3)
    ]
    (series,) = of(runs).series
    made = by_kind(statements(series))
    assert made["shared-cores"].values["cores"] == 2 and made[
        "shared-cores-bound"
    ].values == {"share": 0.5}
    assert parts(statements(series)) == {
        "oversubscription": 50.0,
        "contention": pytest.approx(5, abs=0.1),
    }
    load = {"load": {"others": 0.58, "steal": 0.0, "seconds": 9.0}}
    one_busy = [*runs[:-1], changed(runs[-1], environment=load)]
    assert "other-load" not in stated(one_busy)["independent"]  # it does not count
    two_busy = [*runs[:-2], *(changed(run, environment=load) for run in runs[-2:])]
    busy = stated(two_busy)["independent"]
    assert busy["other-load"].values == {"share": 0.58, "loaded": 2, "runs": 6}
    assert busy["part"].subject == "oversubscription"
    assert busy["rest-within-noise-or-load"].values["parts"] == ["contention"]


def test_no_bound_is_said_that_was_exceeded():
    """A device with two cores need not use both, and one that waits at times does not use its only one."""

    def said(rate, cores_each=1):
        runs = []
        for n, words in ((1, 100), (4, rate)):
            parts = {
                "cpu_affinity": [*range(min(n * cores_each, 2))],
                "oversubscribed": n * cores_each > 2,
            }
            runs += [
                changed(
                    timed(n, words, k, cpu_cores_per_device=cores_each), resolved=parts
                )
                for k in range(3)
            ]
        return statements(of(runs).series[0])

    wide = said(160, cores_each=2)
    assert by_kind(wide)["shared-cores-alone"].values[
        "alone"
    ] == 2 and "shared-cores-bound" in by_kind(wide)
    assert parts(wide) == {
        "oversubscription": 50.0,
        "contention": pytest.approx(10, abs=0.1),
    }
    above = said(240)
    assert "shared-cores-bound" not in by_kind(above) and sum(
        parts(above).values()
    ) == pytest.approx(40, abs=0.1)
    near = said(200.2)
    assert "shared-cores-bound" not in by_kind(near) and parts(near) == {
        "oversubscription": 50.0
    }
    assert by_kind(near)["rest-within-noise"].values["parts"] == ["contention"]


def test_a_bound_that_another_row_of_the_table_refutes_is_dropped():
    """One program keeps its cores busy, the other one waits: 4 devices reach 100.4 %."""

    def of_modes(waiting_rate):
        runs = []
        rates = {"parameter_server": 180.0, "replicated": waiting_rate}
        for mode, on_four in rates.items():
            for devices, rate in ((1, 100.0), (4, on_four)):
                cores = [*range(min(devices, 2))]
                shared = {"cpu_affinity": cores, "oversubscribed": devices > 2}
                runs += [
                    changed(
                        timed(devices, rate, k, variable_update=mode), resolved=shared
                    )
                    for k in range(3)
                ]
        busy = next(
            series for series in of(runs).series if "parameter_server" in series.title
        )
        made = statements(busy)
        return by_kind(made), parts(made)

    said, found = of_modes(waiting_rate=190.0)
    assert said["shared-cores-bound"].values == {"share": 0.5}
    assert said["part-computed"].subject == "oversubscription"
    assert found["oversubscription"] == 50.0
    said, found = of_modes(waiting_rate=401.6)
    assert said["shared-cores"].values["cores"] == 2
    assert "shared-cores-bound" not in said
    assert "part-computed" not in said
    assert "oversubscription" not in found


def test_load_that_hides_a_part_is_named_whichever_row_it_slowed():
    """Contention is measured against the runs of `independent` on 1 device, and exchange against both."""
    modes = ("independent", "replicated")
    same = {
        (mode, n): 100 * n * (0.95 if n > 1 else 1.0) for mode in modes for n in (1, 2)
    }
    hidden = lead(of(beside_load(0.2, same)))
    values = hidden["parts-hidden-by-load"].values
    assert (
        values == {"parts": ["contention", "exchange"], "share": pytest.approx(0.2)}
        and "quiet-machine" in hidden
    )
    load = hidden["other-load"].values
    assert (load["loaded"], load["runs"]) == (3, 12)
    several = {
        **same,
        ("replicated", 2): 140,
        ("mirrored", 1): 100,
        ("mirrored", 2): 150,
    }
    fastest = lead(of(beside_load(0.2, several)))
    assert (
        "mirrored" in fastest["fastest"].subject
        and fastest["other-load"].values["runs"] == 18
    )
    assert "other-load" not in by_kind(
        statements(of([timed(1, 100), timed(2, 150)]).series[0])
    )
    more = of(beside_load(0.08, {**same, ("replicated", 2): 120}))
    told = lead(more)
    assert told["part"].subject == "exchange" and told[
        "rest-within-noise-or-load"
    ].values["parts"] == ["contention"]


def test_the_fastest_is_chosen_where_all_were_measured():
    rates = {("replicated", 1): 100, ("replicated", 2): 150, ("replicated", 4): 280}
    rates |= {("mirrored", 1): 100, ("mirrored", 2): 190}
    said = lead(
        of(
            [
                timed(n, r, k, variable_update=mode)
                for (mode, n), r in rates.items()
                for k in range(3)
            ]
        )
    )
    assert (
        said["fastest"].subject == "cudnn_lstm, mirrored"
        and said["fastest"].values["devices"] == "2 devices"
    )
    assert "most-common-devices" in said


def on_two(rates):
    """Three runs of each mode on one and on two devices."""
    return [
        timed(n, r * n, k, variable_update=mode)
        for mode, r in rates.items()
        for n in (1, 2)
        for k in range(3)
    ]


def with_loss(made, loss):
    return changed(made, batches={**fields_of(made)["batches"], "loss": loss})


@pytest.mark.parametrize(
    "end",
    [
        [2.0, 3.0, *[None] * 38],
        [None] * 40,
        [2.0] * 39 + [None],
        [2.0, None] + [None] * 38,
        [2.0] * 39 + [50.0],
    ],
)
def test_a_training_that_diverged_never_wins_and_is_named(end):
    rates = {"replicated": 150, "mirrored": 120, "parameter_server": 100}
    runs = on_two(rates)
    fine = [2.0] * 40
    lost = [
        with_loss(made, end if made.config["variable_update"] == "replicated" else fine)
        for made in runs
    ]
    made = of(lost)
    said = lead(made)
    assert said[
        "fastest"
    ].subject == "cudnn_lstm, mirrored" and "3, diverged" in table.text(made)
    assert said["not-ranked-diverged"].values == {"names": ["cudnn_lstm, replicated"]}
    assert [
        each.get("runs_diverged")
        for each in json.loads(json_report.render(made))["series"]
    ] == [None, None, 6]
    one_run = [with_loss(each, end if k == 2 else fine) for k, each in enumerate(runs)]
    assert lead(of(one_run))["fastest"].subject == "cudnn_lstm, mirrored"
    for wrong in ({"replicated", "mirrored"}, set(rates)):
        some = [
            with_loss(each, end if each.config["variable_update"] in wrong else fine)
            for each in runs
        ]
        said = lead(of(some))
        assert "fastest" not in said and ("reaches" in said) == (len(wrong) == 2)
    rates = {"independent": 200, **dict(list(rates.items())[:2])}
    beside = [
        with_loss(each, end if each.config["variable_update"] == "mirrored" else fine)
        for each in on_two(rates)
    ]
    said = lead(of(beside))
    assert "one-ranked" in said and said["reaches"].subject == "cudnn_lstm, replicated"
    diverged = by_kind(statements(of(lost[:6]).series[0]))["diverged"]
    assert diverged.values == {"diverged": 6, "runs": 6}


def test_a_loss_that_another_trainer_does_not_tell_is_no_divergence():
    runs = [
        with_loss(timed(n, 100 * n, k), [2.0, *[None] * 39])
        for n in (1, 2)
        for k in range(3)
    ]
    theirs = [changed(run, config={**run.config, "trainer": "mine"}) for run in runs]
    assert not of(theirs).series[0].num_diverged


def test_a_series_that_failed_is_named_with_what_failed():
    rates = {"replicated": 150, "mirrored": 120}
    runs = on_two(rates)
    failed = [run(n, 1.0, "failed", variable_update="parameter_server") for n in (1, 2)]
    above = [run(4, 1.0, "failed", variable_update="mirrored")]
    said = lead(of([*runs, *failed, *above]))
    assert "fastest" in said and said["not-ranked-failed"].values == {
        "names": ["cudnn_lstm, parameter_server"]
    }
    assert (said["failed-above"].subject, said["failed-above"].values["devices"]) == (
        "cudnn_lstm, mirrored",
        ["4 devices"],
    )
    half = [timed(1, 100, k, variable_update="parameter_server") for k in range(3)]
    assert "not-ranked-failed-on-several" in lead(of([*runs, *half, failed[1]]))
    alone = lead(of([*(timed(1, 100, k) for k in range(3)), run(2, 1.0, "failed")]))
    assert "failed-above" in alone and "not-run-on-more-devices" not in alone


def test_a_speed_that_turns_over_is_said_with_the_number_of_devices_that_is_best():
    def series(*speedups, repeats=3, **options):
        return [
            timed(n, 1000 * s, k, **options)
            for n, s in zip((1, 2, 4, 8), speedups)
            for k in range(repeats)
        ]

    turned = of(series(1, 1.96, 3.45, 2.75))
    peak = lead(turned)["fastest-on-fewer-scaled"]
    assert (peak.values["devices"], value(peak, "rate")) == (
        "4 devices",
        pytest.approx(3450, rel=1e-3),
    )
    assert value(lead(turned)["reaches"], "efficiency") == pytest.approx(34.4, abs=0.05)
    assert json.loads(json_report.render(turned))["series"][0]["fastest_on"] == 4
    assert (
        lead(of(series(1, 0.9, 0.8, 0.7)))["fastest-on-fewer"].values["devices"]
        == "1 device"
    )
    assert "single-runs" in lead(of(series(1, 1.96, 3.45, 2.75, repeats=1)))
    for noise in (
        series(1, 1.96, 3.45, 3.45),
        series(1, 1.96, 3.45, 3.44),
        series(1, 1.9, 3.0, 2.9, repeats=1),
    ):
        assert (
            not any(kind.startswith("fastest") for kind in lead(of(noise)))
            and of(noise).series[0].faster_on_fewer_devices is None
        )
    two = [*series(1, 1.96, 3.45, 2.75, variable_update="mirrored")]
    two += series(1, 1.9, 3.6, 3.0, variable_update="replicated")
    peaks = [
        each.subject
        for each in conclusions.answer_statements(of(two))
        if each.kind == "fastest-on-fewer-scaled"
    ]
    assert peaks == ["cudnn_lstm, replicated", "cudnn_lstm, mirrored"]
