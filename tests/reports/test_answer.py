"""The sentences: they have the tables' numbers, say what is not known, and name the command that would tell."""

from __future__ import annotations

import re

import pytest

from rnn_scaling.reports import answer, table
from tests.support.scaling_runs import attributed, of, run, timed


def sentences(records):
    made = of(records)
    return {each.title.split(", ")[1]: answer.sentence(each) for each in made.series}


def numbers(text):
    return re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", text)


def test_the_sentence_has_the_numbers_of_the_table_and_they_add_up():
    said = sentences(attributed())["replicated"]
    lines = table.render(of(attributed())).decode().splitlines()
    cells = next(row for row in reversed(lines) if row.startswith("| ") and " 64 |" in row or " 32 |" in row)
    efficiency, speedup, *parts = numbers(said)
    assert said.startswith("cudnn_lstm, replicated scales at") and "on 2 devices" in said
    assert efficiency in cells and speedup in cells and "±" in efficiency
    assert re.search(r"20\.0 ± [\d.]+ points are exchange, 10\.0 ± [\d.]+ points are contention", said)
    lost = sum(float(part.split()[0]) for part in parts)
    assert float(efficiency.split()[0]) + lost == pytest.approx(100, abs=0.2)


def test_the_first_sentence_is_about_the_fastest_series_that_trains_one_model():
    made = of(attributed())
    assert answer.lead(made).startswith("The only series that trains one model: cudnn_lstm, replicated scales at 70.0")
    span = answer.overview(made)
    assert span.startswith("2 series reach between 70.0 ") and "90.0 " in span and span.count("on 2 devices") == 2


def test_a_part_whose_interval_contains_zero_is_not_called_a_loss():
    rates = {("independent", 1): 100, ("independent", 2): 140.2, ("replicated", 1): 100, ("replicated", 2): 140}
    runs = [timed(n, rate, k, variable_update=mode) for (mode, n), rate in rates.items() for k in range(3)]
    said = sentences(runs)["replicated"]
    assert "exchange is not distinguishable from 0" in said and "points are contention" in said


def test_a_difference_within_the_noise_is_not_called_scaling_loss():
    runs = [timed(n, rate, k) for n, rate in ((1, 100), (2, 199.9)) for k in range(3)]
    assert sentences(runs)["independent"].endswith(": not distinguishable from the ideal.")


def test_runs_that_vary_too_much_are_not_given_an_efficiency_to_quote():
    runs = [timed(1, 100), timed(1, 190), timed(2, 150), timed(2, 320)]
    assert "vary too much to tell" in sentences(runs)["independent"]


def test_what_is_missing_is_said_with_the_command_that_supplies_it():
    (alone,) = of([timed(2, 140, variable_update="replicated")]).series
    assert "how it scales needs its run on 1 device" in answer.sentence(alone)
    assert ["--num_devices=1 " in line for line in answer.missing(alone)] == [True]
    (one,) = of([timed(1, 100)]).series
    assert "on 1 device, and no run on more" in answer.sentence(one)
    assert "--num_devices=2" in answer.missing(one)[0]
    runs = [run for run in attributed() if run.config["variable_update"] == "replicated"]
    (replicated,) = of(runs).series
    assert "points are not split: contention and exchange need runs that are missing" in answer.sentence(replicated)
    assert all("--variable_update=independent" in line for line in answer.missing(replicated))


def test_failed_runs_are_said_and_never_counted():
    runs = [*attributed(), run(4, 1.0, "failed", variable_update="replicated")]
    assert sentences(runs)["replicated"].endswith("; on 4 devices no run succeeded.")
    assert [f.reason for f in of(runs).failures] == ["X: out of memory"]
    assert answer.lead(of([run(1, 0.0, "failed")])).startswith("No run succeeded")


def test_one_run_is_never_a_firm_statement():
    one = answer.lead(of([timed(1, 100), timed(2, 140)]))
    assert "(one run each: cannot be told from the difference between two processes)" in one and "scales at" not in one
    mixed = answer.lead(of([timed(1, 100), *(timed(2, 140, k) for k in range(3))]))
    assert "(one run on 1 device: cannot be told" in mixed
    assert "cannot be told" not in answer.lead(of(attributed()))


def test_the_fastest_is_chosen_where_all_were_measured():
    rates = {("replicated", 1): 100, ("replicated", 2): 150, ("replicated", 4): 280}
    rates |= {("mirrored", 1): 100, ("mirrored", 2): 190}
    said = answer.lead(of([timed(n, r, k, variable_update=mode) for (mode, n), r in rates.items() for k in range(3)]))
    assert said.startswith("The fastest series on 2 devices, the most that all have: cudnn_lstm, mirrored")
