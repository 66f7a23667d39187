"""The sentences: they have the tables' numbers, say what is not known, and name the command that would tell."""

from __future__ import annotations

import json
import math
import random
import re

import pytest

from rnn_scaling.analysis.confidence import Interval, ratio
from rnn_scaling.analysis.significance import is_above
from rnn_scaling.reports import answer, json_report, table
from rnn_scaling.reports.series_statements import sentence
from tests.support.records import changed, fields_of
from tests.support.scaling_runs import attributed, beside_load, of, run, timed


def sentences(records):
    made = of(records)
    return {each.title.split(", ")[1]: sentence(each) for each in made.series}


def numbers(text):
    return re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", text)


def test_the_sentence_has_the_numbers_of_the_table_and_they_add_up():
    said = sentences(attributed())["replicated"]
    lines = table.render(of(attributed())).decode().splitlines()
    cells = next(row for row in reversed(lines) if row.startswith("| ") and " 64 |" in row or " 32 |" in row)
    efficiency, speedup, *parts = numbers(said)
    assert said.startswith("cudnn_lstm, replicated reaches") and "of the ideal on 2 devices" in said
    assert efficiency in cells and speedup in cells and "±" in efficiency
    assert re.search(r"20\.0 ± [\d.]+ points are exchange and 10\.0 ± [\d.]+ are contention\.", said)
    lost = sum(float(part.split()[0]) for part in parts)
    assert float(efficiency.split()[0]) + lost == pytest.approx(100, abs=0.2)


def test_the_first_sentence_is_about_the_fastest_series_that_trains_one_model():
    made = of(attributed())
    assert answer.lead(made).startswith("One of the 2 series trains one model. cudnn_lstm, replicated reaches 70.0")
    span = answer.overview(made)
    assert span.startswith("2 series reach between 70.0 ") and "90.0 " in span and span.count("on 2 devices") == 1
    alone = answer.lead(of([*attributed(), timed(1, 100, variable_update="mirrored")]))
    assert alone.startswith("One of the 2 series on several devices trains one model. cudnn_lstm, replicated")


def test_a_part_whose_interval_contains_zero_is_not_called_a_loss():
    rates = {("independent", 1): 100, ("independent", 2): 140.2, ("replicated", 1): 100, ("replicated", 2): 140}
    runs = [timed(n, rate, k, variable_update=mode) for (mode, n), rate in rates.items() for k in range(3)]
    said = sentences(runs)["replicated"]
    assert "Exchange cannot be told apart from 0 (0.1 ± " in said and "points are contention. " in said


def test_a_difference_within_the_noise_is_not_called_scaling_loss():
    runs = [timed(n, rate, k) for n, rate in ((1, 100), (2, 199.9)) for k in range(3)]
    said = sentences(runs)["independent"]
    assert "That cannot be told apart from the ideal; --repeats=10 would show a loss of 0.9 points." in said


def test_more_than_the_ideal_is_given_no_cause():
    runs = [timed(n, rate, k) for n, rate in ((1, 100), (2, 230)) for k in range(3)]
    said = sentences(runs)["independent"]
    assert (
        "That is more than the ideal: check load and clocks of the runs on 1 device, then measure both again." in said
    )
    within = [timed(n, rate, k) for n, rate in ((1, 100), (2, 200.6)) for k in range(3)]
    assert "That cannot be told apart from the ideal" in sentences(within)["independent"]


def test_runs_that_vary_too_much_are_not_given_an_efficiency_to_quote():
    runs = [timed(1, 100), timed(1, 190), timed(2, 150), timed(2, 320)]
    assert "vary too much to tell" in sentences(runs)["independent"]


def test_what_is_missing_is_said_with_the_command_that_supplies_it():
    (alone,) = of([timed(2, 140, variable_update="replicated")]).series
    assert "How it scales needs its run on 1 device" in sentence(alone)
    assert ["--num_devices=1 " in line for line in answer.missing(alone)] == [True]
    (one,) = of([timed(1, 100)]).series
    assert "on 1 device. It was not run on more devices." in sentence(one)
    assert "--num_devices=2" in answer.missing(one)[0]
    runs = [run for run in attributed() if run.config["variable_update"] == "replicated"]
    (replicated,) = of(runs).series
    assert "points are not split: contention and exchange need runs that are missing" in sentence(replicated)
    assert all("--variable_update=independent" in line for line in answer.missing(replicated))


def test_on_one_device_alone_the_fastest_is_named_and_no_speedup_is_shown():
    made = of([timed(1, rate, k, encoder_type=name) for name, rate in (("a", 90), ("b", 100)) for k in range(3)])
    lead = answer.lead(made)
    assert lead.startswith("The fastest of the 2 series on 1 device is b, independent: 100.0 ± ")
    assert lead.endswith(" words/s. None of the 2 series was measured on several devices.")
    first = table.text(made).split("\n\n")[1]
    assert [cell.strip() for cell in first.splitlines()[0].split("|")[1:-1]] == [
        "Series",
        "Words/s on 1 device",
        "Runs",
    ]


def test_failed_runs_are_said_and_never_counted():
    runs = [*attributed(), run(4, 1.0, "failed", variable_update="replicated")]
    assert sentences(runs)["replicated"].endswith(" On 4 devices no run succeeded.")
    assert [f.reason for f in of(runs).failures] == ["X: out of memory"]
    assert answer.lead(of([run(1, 0.0, "failed")])).startswith("No run succeeded")


def test_one_run_is_never_a_firm_statement():
    made = of([timed(1, 100), timed(2, 140)])
    one = answer.lead(made)
    assert "reaches about 70.0 % of the ideal" in one and "going by one run each. --repeats=3 would show" in one
    assert "±" not in one and "±" not in table.text(made) and not answer.kinds(made.series)
    mixed = answer.lead(of([timed(1, 100), *(timed(2, 140, k) for k in range(3))]))
    assert "about" in mixed and "going by one run on 1 device" in mixed
    modes = ("replicated", "mirrored")
    several = [
        timed(n, 100 * n, k, variable_update=mode) for mode in modes for n in (1, 2) for k in range(3) if n < 2 or not k
    ]
    said = answer.overview(of(several))
    assert said.startswith("Going by a single run on a side, 2 series reach between ") and "one run each" not in said
    assert "about" not in answer.lead(of(attributed()))


def test_what_is_named_of_a_loss_adds_up_to_it_as_printed():
    random_, named = random.Random(5), 0
    cell = r"(-?[\d.]+)(?: ± [\d.]+| \[-?[\d.]+, -?[\d.]+\])?"
    for _ in range(60):
        lost = [random_.uniform(-0.06, 0.12) for _ in range(2)]
        rates = {("independent", 1): 1.0, ("independent", 2): 1 - lost[0]}
        rates |= {("replicated", 1): 1.0, ("replicated", 2): 1 - sum(lost)}
        scatter = random_.choice([0.002, 0.02])
        said = sentences(
            timed(n, 100 * n * rate * math.exp(random_.gauss(0, scatter)), k, variable_update=mode)
            for (mode, n), rate in rates.items()
            for k in range(4)
        )["replicated"]
        efficiency = re.search(rf"reaches {cell} % of the ideal", said)
        parts = said.split("the speed of one. ")[-1].split("--repeats")[0]
        gains = [-float(each) for each in re.findall(rf"gives back {cell}", parts)]
        losses = re.findall(rf"{cell} (?:points |more )?are|\({cell}\)", parts)
        found = [*gains, *(float(next(filter(None, each))) for each in losses)]
        if not found or efficiency is None:
            assert "points are" not in said
            continue
        named += 1
        assert sum(found) == pytest.approx(100 - float(efficiency[1]), abs=0.06 * (len(found) + 1)), said
    assert named > 10


def test_a_loss_that_cannot_be_told_has_no_parts():
    """97.6 % reached, and 6 points lost beside a gain that nobody can tell: what is named would not add up."""
    rates = {("independent", 1): 100, ("independent", 2): 188, ("replicated", 1): 100, ("replicated", 2): 195.2}
    spread = {("independent", 1): 0.002, ("independent", 2): 0.002, ("replicated", 1): 0.03, ("replicated", 2): 0.03}
    runs = [
        timed(n, rate * (1 + spread[mode, n] * (k - 1)), variable_update=mode)
        for (mode, n), rate in rates.items()
        for k in range(3)
    ]
    said = sentences(runs)["replicated"]
    assert "97.6 ± " in said and "cannot be told apart from the ideal" in said and "contention" not in said


def test_the_few_runs_beside_other_load_are_named_with_the_command_that_repeats_them():
    runs = attributed()
    load = {"load": {"others": 0.4, "steal": 0.0, "seconds": 9.0}}
    one = of([changed(each, environment=load) if k == 7 else each for k, each in enumerate(runs)])
    ((file, row),) = answer.loaded(one)
    assert file == "7.json" and runs[7].config["num_devices"] == row.num_devices and file in answer.lead(one)
    command = answer.all_missing(one)[0]
    assert command.startswith("rm results/7.json && ") and command.endswith(" --repeats=3 --out=results")
    assert f"--num_devices={row.num_devices}" in command and f"={runs[7].config['variable_update']}" in command
    assert not answer.loaded(of([changed(each, environment=load) for each in runs])) and not answer.loaded(of(runs))


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
    said = answer.lead(of(rates_apart(0.02, 5)))
    promise = re.search(r"cannot be told apart\. --repeats=10 would most likely show differences of (\d) %\.", said)
    assert promise[1] == "3"  # t of 16 degrees at 97.5 and at 80 % is 2.12 and 0.865, times 2 % sqrt(2 / 10): 2.7 %
    made = of(rates_apart(int(promise[1]) / 100, 10))
    assert answer.lead(made).startswith("The fastest of the 2 series on 2 devices is cudnn_lstm, mirrored")
    # The intervals of both may overlap where that of the ratio excludes 1, here with 18 degrees: t = 2.1.
    told, untold = (of(rates_apart(factor * 2.1009 * 0.02 * math.sqrt(2 / 10), 10)) for factor in (1.01, 0.99))
    slow, fast = sorted((each.at(2).row.rate for each in told.series), key=lambda rate: rate.value)
    assert fast.low < slow.high and answer.lead(told).startswith("The fastest") and ratio(fast, slow).low > 1
    assert answer.lead(untold).startswith("Which of the 2 series")
    # Picked as the highest of several it needs more: 5 % are of all pairs together.
    assert is_above(fast, slow) and not is_above(fast, slow, 3)


def test_efficiencies_are_told_apart_by_their_ratio_too():
    one, other = (Interval(e, e / 1.045, e * 1.045, "", e * math.log(1.045) / 2.1009, 18, (10,)) for e in (0.967, 0.9))
    assert one.low < other.high and is_above(one, other) and not is_above(other, one)
    assert not is_above(one, other, 6) and not is_above(one, one)
    assert not is_above(one, Interval(0.1, None, None, "", None, 0.0, (1,)))


def test_a_series_that_others_slowed_is_not_called_slower():
    def runs(load, **more):
        environment = {"load": {"others": load, "steal": 0.0, "seconds": 9.0}}
        made = [
            timed(n, rate * n * (1 + 0.001 * k), k, variable_update=mode)
            for mode, rate in {"replicated": 100, "parameter_server": 80, **more}.items()
            for n in (1, 2)
            for k in range(3)
        ]
        slow = [each.config["variable_update"] == "parameter_server" for each in made]
        return [changed(each, environment=environment) if is_slow else each for each, is_slow in zip(made, slow)]

    assert "The fastest of the 2 series" in answer.lead(of(runs(0.0)))
    told = answer.lead(of(runs(0.4)))
    assert "cannot be told apart. Other processes slowed the slower ones: runs without them would tell." in told
    assert "is slower" not in told and "Other processes took up to 40 %" in told
    mixed = answer.lead(of(runs(0.4, mirrored=100.01, collective_all_reduce=50)))
    assert re.search(
        r"mirrored \(\S+ ± \S+ words/s\) and cudnn_lstm, replicated \(\S+ ± \S+ words/s\) cannot be told apart; other "
        r"processes slowed cudnn_lstm, parameter_server \(.*?\); the other is slower than the first\. --repeats",
        mixed,
    )


def test_least_data_never_wins():
    """Two runs that vary, and a single one beside them: nothing is only to be judged by the single one."""
    runs = [timed(n, 100 * n * (0.8 + 0.4 * k), variable_update="replicated") for n in (1, 2) for k in range(2)]
    runs += [timed(n, 150 * n, variable_update="mirrored") for n in (1, 2)]
    said = answer.lead(of(runs))
    assert said.startswith("Which of the 2 series is fastest on 2 devices cannot be told.") and "only" not in said


def test_load_and_oversubscription_are_named_where_the_number_stands():
    cores = {1: [0], 4: [0, 1]}
    resolved = {n: {"cpu_affinity": cores[n], "oversubscribed": n == 4} for n in cores}
    runs = [changed(timed(n, r, k), resolved=resolved[n]) for n, r in ((1, 100), (4, 180)) for k in range(3)]
    said = sentences(runs)["independent"]
    assert "4 devices share 2 cores, so 50 % of the ideal is the most that they can reach." in said
    assert re.search(r"50\.0 points are oversubscription and 5\.0 ± [\d.]+ are contention", said)
    load = {"load": {"others": 0.58, "steal": 0.0, "seconds": 9.0}}
    busy = sentences([*runs[:-1], changed(runs[-1], environment=load)])["independent"]
    assert "Other processes took up to 58 % of the cores during 1 of the 6 runs behind these numbers." in busy
    took = "cannot be told apart from what other processes took"
    assert f"50.0 points are oversubscription. Contention {took} (5." in busy


def test_no_bound_is_said_that_was_exceeded():
    """A device with two cores need not use both, and one that waits at times does not use its only one."""

    def said(rate, cores_each=1):
        runs = []
        for n, words in ((1, 100), (4, rate)):
            parts = {"cpu_affinity": [*range(min(n * cores_each, 2))], "oversubscribed": n * cores_each > 2}
            runs += [changed(timed(n, words, k, cpu_cores_per_device=cores_each), resolved=parts) for k in range(3)]
        return sentences(runs)["independent"]

    wide = said(160, cores_each=2)
    assert "4 devices share 2 cores, of which one alone had 2, so 50 % of the ideal is the most that" in wide
    assert re.search(r"50\.0 points are oversubscription and 10\.0 ± [\d.]+ are contention", wide)
    above = said(240)
    assert "4 devices share 2 cores. 40.0 ± " in above and above.endswith("points are contention.")
    near = said(200.2)
    assert "4 devices share 2 cores. 50.0 points are oversubscription. Contention cannot be told apart from 0" in near


def test_load_that_hides_a_part_is_named_whichever_row_it_slowed():
    """Contention is measured against the runs of `independent` on 1 device, and exchange against both."""
    modes = ("independent", "replicated")
    took = "cannot be told apart from what other processes took"
    same = {(mode, n): 100 * n * (0.95 if n > 1 else 1.0) for mode in modes for n in (1, 2)}
    hidden = of(beside_load(0.2, same))
    said = answer.lead(hidden)
    assert f"Contention and exchange {took}, up to 20 % of the cores. The same runs on a quiet machine would" in said
    assert "Other processes took up to 20 % of the cores during 3 of the 12 runs behind these numbers." in said
    several = {**same, ("replicated", 2): 140, ("mirrored", 1): 100, ("mirrored", 2): 150}
    fastest = answer.lead(of(beside_load(0.2, several)))
    assert "mirrored" in fastest.split(":")[0] and "during 3 of the 18 runs" in fastest
    assert "Other processes" not in sentence(of([timed(1, 100), timed(2, 150)]).series[0])
    more = of(beside_load(0.08, {**same, ("replicated", 2): 120}))
    told = answer.lead(more)
    assert re.search(rf"points are exchange\. Contention {took} \(-3\.\d ± [\d.]+\)\. Other processes", told)
    notes = table.parts_notes(next(each for each in more.series if "replicated" in each.title))
    assert any(note.startswith("the rest: parts that cannot be told apart from 0 or what other") for note in notes)


def test_the_fastest_is_chosen_where_all_were_measured():
    rates = {("replicated", 1): 100, ("replicated", 2): 150, ("replicated", 4): 280}
    rates |= {("mirrored", 1): 100, ("mirrored", 2): 190}
    said = answer.lead(of([timed(n, r, k, variable_update=mode) for (mode, n), r in rates.items() for k in range(3)]))
    assert said.startswith(
        "The fastest of the 2 series on 2 devices, the most that all have, is cudnn_lstm, mirrored: 190"
    )


def on_two(rates):
    """Three runs of each mode on one and on two devices."""
    return [timed(n, r * n, k, variable_update=mode) for mode, r in rates.items() for n in (1, 2) for k in range(3)]


def with_loss(made, loss):
    return changed(made, batches={**fields_of(made)["batches"], "loss": loss})


@pytest.mark.parametrize(
    "end",
    [[2.0, 3.0, *[None] * 38], [None] * 40, [2.0] * 39 + [None], [2.0, None] + [None] * 38, [2.0] * 39 + [50.0]],
)
def test_a_training_that_diverged_never_wins_and_is_named(end):
    rates = {"replicated": 150, "mirrored": 120, "parameter_server": 100}
    runs = on_two(rates)
    fine = [2.0] * 40
    lost = [with_loss(made, end if made.config["variable_update"] == "replicated" else fine) for made in runs]
    made = of(lost)
    lead = answer.lead(made)
    assert "The fastest of the 2 series on 2 devices is cudnn_lstm, mirrored" in lead
    assert "Not ranked: cudnn_lstm, replicated (its loss diverged)" in lead and "3, diverged" in table.text(made)
    assert [each.get("runs_diverged") for each in json.loads(json_report.render(made))["series"]] == [None, None, 6]
    one_run = [with_loss(each, end if k == 2 else fine) for k, each in enumerate(runs)]
    assert "is cudnn_lstm, mirrored" in answer.lead(of(one_run))
    for wrong in ({"replicated", "mirrored"}, set(rates)):
        some = [with_loss(each, end if each.config["variable_update"] in wrong else fine) for each in runs]
        said = answer.lead(of(some))
        assert "The fastest" not in said and ("parameter_server reaches" in said) == (len(wrong) == 2)
    rates = {"independent": 200, **dict(list(rates.items())[:2])}
    beside = [with_loss(each, end if each.config["variable_update"] == "mirrored" else fine) for each in on_two(rates)]
    assert "One of the 3 series can be ranked. cudnn_lstm, replicated" in answer.lead(of(beside))
    assert "The loss diverged in 6 of 6 runs" in sentence(of(lost[:6]).series[0])


def test_a_loss_that_another_trainer_does_not_tell_is_no_divergence():
    runs = [with_loss(timed(n, 100 * n, k), [2.0, *[None] * 39]) for n in (1, 2) for k in range(3)]
    for made in runs:
        made.config["trainer"] = "mine"
    assert not of(runs).series[0].num_diverged


def test_a_series_that_failed_is_named_with_what_failed():
    rates = {"replicated": 150, "mirrored": 120}
    runs = on_two(rates)
    failed = [run(n, 1.0, "failed", variable_update="parameter_server") for n in (1, 2)]
    above = [run(4, 1.0, "failed", variable_update="mirrored")]
    lead = answer.lead(of([*runs, *failed, *above]))
    assert "The fastest of the 2 series" in lead and "Not ranked: cudnn_lstm, parameter_server (no run" in lead
    assert "cudnn_lstm, mirrored: on 4 devices no run succeeded" in lead
    half = [timed(1, 100, k, variable_update="parameter_server") for k in range(3)]
    assert "parameter_server (no run on several devices" in answer.lead(of([*runs, *half, failed[1]]))
    alone = answer.lead(of([*(timed(1, 100, k) for k in range(3)), run(2, 1.0, "failed")]))
    assert "On 2 devices no run succeeded" in alone and "not run on more" not in alone


def test_a_speed_that_turns_over_is_said_with_the_number_of_devices_that_is_best():
    def series(*speedups, repeats=3, **options):
        return [timed(n, 1000 * s, k, **options) for n, s in zip((1, 2, 4, 8), speedups) for k in range(repeats)]

    turned = of(series(1, 1.96, 3.45, 2.75))
    assert answer.lead(turned).startswith("cudnn_lstm, independent is fastest on 4 devices: 3,450")
    assert "34.4 ± " in answer.lead(turned) and json.loads(json_report.render(turned))["series"][0]["fastest_on"] == 4
    assert "is fastest on 1 device:" in answer.lead(of(series(1, 0.9, 0.8, 0.7)))
    assert "single runs" in answer.lead(of(series(1, 1.96, 3.45, 2.75, repeats=1)))
    for noise in (series(1, 1.96, 3.45, 3.45), series(1, 1.96, 3.45, 3.44), series(1, 1.9, 3.0, 2.9, repeats=1)):
        assert "fastest" not in answer.lead(of(noise)) and of(noise).series[0].peak is None
    two = [*series(1, 1.96, 3.45, 2.75, variable_update="mirrored")]
    two += series(1, 1.9, 3.6, 3.0, variable_update="replicated")
    lead = answer.lead(of(two))
    assert "It is fastest on 4 devices: 3,600" in lead and "mirrored is fastest on 4 devices: 3,450" in lead
