"""Curves of a history: their order, the search for steps and its error rates, and the judgement of the latest entry."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from rnn_scaling.analysis.history import curves, entries, steps
from rnn_scaling.records import environment, history
from rnn_scaling.system.machine import commits
from tests.support import histories
from tests.support.compared import run
from tests.support.records import changed


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commits.between.cache_clear()


def curve_of(levels, seed=0, **changes):
    made = [
        histories.entry(n, rates, **changes)
        for n, rates in enumerate(histories.scattered(levels, seed))
    ]
    [curve] = curves.timeline(made).curves
    return curve


def of(commit, environment=(), **changes):
    facts = {
        "commit": {"hash": commit, "modified": False, "diff": None},
        "started": "2026-01-01T10:00:00+01:00",
    }
    return run(**changes, environment={**facts, **dict(environment)})


def test_records_become_an_entry_for_each_commit_and_machine():
    a, b = histories.commit_of(1), histories.commit_of(2)
    records = [
        of(a, rate=1000.0),
        of(a, rate=1001.0),
        of(b, rate=900.0),
        of(b, rate=1.0, status="failed"),
    ]
    records += [of(a, rate=2000.0, environment={"cpu": "Processor B"})]
    made = entries.entries(records, label="x")
    assert [(new.commit.hash, new.machine.cpu) for new in made] == [
        (a, "Processor A"),
        (b, "Processor A"),
        (a, "Processor B"),
    ]
    assert made[0].measured == "2026-01-01T09:00:00Z" and made[0].label == "x"
    [part] = made[0].configurations
    assert (
        part.rates == pytest.approx((1000.0, 1001.0))
        and part.options["encoder_type"] == "cudnn_lstm"
    )
    [named] = {new.commit.hash for new in entries.entries(records, commit=b)}
    assert named == b


def test_another_program_has_the_commit_of_its_own_folder():
    record = of(histories.commit_of(1))
    theirs = changed(record, config={"trainer": "mine", "num_devices": 1})
    [made] = entries.entries([theirs])
    assert made.commit is None  # not the commit of the suite
    commit = environment.Commit(hash=histories.commit_of(2))
    machine = dataclasses.replace(theirs.environment, program_commit=commit)
    [named] = entries.entries([dataclasses.replace(theirs, environment=machine)])
    assert named.commit.hash == histories.commit_of(2)
    [curve] = curves.timeline([made]).curves
    assert curve.title.startswith("mine")


def test_curves_are_in_the_order_of_machines_and_of_their_names():
    def configuration(mode, devices):
        options = {"encoder_type": "cudnn_lstm", "decoder_type": "cudnn_lstm"}
        options |= {"device": "cpu", "variable_update": mode, "num_devices": devices}
        return history.Configuration(
            options=options, unit="words", num_devices=devices, rates=(1000.0,)
        )

    pairs = [("replicated", 2), ("replicated", 16), ("independent", 4)]
    made = []
    for number, order in enumerate(([0, 1, 2], [2, 1, 0])):
        parts = tuple([configuration(*pairs[k]) for k in order])
        for machine in ("B", "A"):
            name = f"{machine}{number}" if number else machine
            made.append(histories.entry(number, machine=name, configurations=parts))
    for of_history in (made[:2], made[2:]):
        titles = [curve.title for curve in curves.timeline(of_history).curves]
        names = [title.rpartition(", ")[0] for title in titles]
        assert (
            names[:3]
            == names[3:]
            == [
                "cudnn_lstm, independent, 4 devices",
                "cudnn_lstm, replicated, 2 devices",
                "cudnn_lstm, replicated, 16 devices",
            ]
        )
        assert [title[-2:] for title in titles[2:4]] in ([" B", " A"], ["B1", "A1"])


def test_entries_of_known_commits_are_in_the_order_of_history(tmp_path):
    hashes = histories.repository(tmp_path, 3)  # with dates of 2033 that fall
    made = [
        histories.entry(n, commit=name)
        for n, name in enumerate([hashes[2], hashes[0], hashes[1], hashes[0]])
    ]
    gone = histories.entry(0, commit=histories.commit_of(9))
    in_order = curves.ordered([*made, gone])
    assert in_order == [gone, made[1], made[3], made[2], made[0]]


def test_entries_without_git_are_in_the_order_of_dates():
    made = [histories.entry(n, commit=None if n % 2 else "") for n in range(6)]
    assert curves.ordered(made[::-1]) == made


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, curves.ONE), (2, curves.SEVERAL), (0, curves.SAME), (None, curves.UNKNOWN)],
)
def test_a_step_names_its_range_of_commits(count, expected, tmp_path):
    hashes = histories.repository(tmp_path, 3)
    pair = (
        (histories.commit_of(8), histories.commit_of(9))
        if count is None
        else (hashes[0], hashes[count])
    )
    rates = histories.scattered([1000.0] * 20 + [900.0] * 10)
    versions = [{"tensorflow": "2.21"}] * 20 + [{"tensorflow": "2.22"}] * 10
    made = [
        histories.entry(n, rates[n], commit=pair[n >= 20], versions=versions[n])
        for n in range(30)
    ]
    [curve] = curves.timeline(made).curves
    [step] = curve.steps
    assert (step.range, step.commits) == (expected, count)
    assert (step.before, step.after) == (made[19], made[20])
    assert step.change.low < 0.9 < step.change.high and step.versions == {
        "tensorflow": ("2.21", "2.22")
    }


def test_machines_and_configurations_have_curves_of_their_own():
    made = [
        histories.entry(n, [1000.0 * (1 + n % 2)], machine="AB"[n % 2])
        for n in range(40)
    ]
    shown = curves.timeline(made)
    assert [curve.machine for curve in shown.curves] == ["A", "B"]
    assert not any(curve.steps for curve in shown.curves)


def test_a_step_that_is_taken_back_is_two_steps():
    curve = curve_of([1000.0] * 20 + [930.0] * 6 + [1000.0] * 10)
    assert curve.levels.cuts == (20, 26)
    assert [step.change.value for step in curve.steps] == pytest.approx(
        [0.93, 1 / 0.93], rel=0.015
    )


def test_one_bad_day_is_no_step():
    assert curve_of([1000.0] * 20 + [900.0] + [1000.0] * 20).steps == ()


@pytest.mark.parametrize("bad", [{5}, {20}, {39}, {5, 12, 30}])
def test_bad_days_hide_no_step_and_are_none(bad):
    levels = [700.0 if n in bad else 1000.0 for n in range(40)]
    assert curve_of(levels).steps == ()
    assert curve_of([*levels, *[950.0] * 4]).levels.cuts in ((40,), (39,))


def test_steps_that_were_found_stay(seed=3):
    levels = [1000.0] * 20 + [940.0] * 20
    for last in range(30, 40, 3):
        assert (
            curve_of(levels[:last], seed).levels.cuts
            == curve_of(levels, seed).levels.cuts
        )


def simulated(levels, generator, processes=3):
    noise = generator.normal(0, histories.PROCESS, (len(levels), processes))
    means = (
        np.log(levels)
        + generator.normal(0, histories.ENTRY, len(levels))
        + noise.mean(1)
    )
    deviation = math.sqrt(noise.var(1, ddof=1).mean())
    return steps.levels(means, [processes] * len(levels), deviation)


def test_error_rates_of_the_search():
    """benchmarks/history.py has the full simulation: 0.2 % and 97 %."""
    generator = np.random.default_rng(1)
    alarms = sum(bool(simulated([1.0] * 100, generator).cuts) for _ in range(100))
    found = sum(
        any(
            abs(cut - 20) <= 1
            for cut in simulated([1.0] * 20 + [0.95] * 3, generator).cuts
        )
        for _ in range(100)
    )
    assert alarms <= 3 and found >= 90


def test_intervals_of_changes_hold():
    generator = np.random.default_rng(2)
    covered = sum(
        change.low <= 1 <= change.high
        for change in (
            simulated([1.0] * 12, generator).change((0, 11), (11, 12), 11)
            for _ in range(400)
        )
    )
    assert 370 <= covered <= 398


def test_entries_of_few_processes_weigh_less():
    levels = steps.levels([0.0] * 9 + [0.3], [9] * 9 + [1], 0.3)
    assert levels.weights[-1] < levels.weights[0] and levels.level(0, 10)[0] < 0.03


@pytest.mark.parametrize(
    ("levels", "gates"),
    [
        ([1000.0] * 20, ["ok"]),
        ([1000.0] * 20 + [850.0], ["regression"]),
        ([1000.0] * 20 + [850.0] * 2, ["regression"]),  # with which the step is found
        ([1000.0] * 20 + [850.0] * 12, ["ok"]),  # the new level
        ([1000.0] * 20 + [1150.0], ["ok"]),
        ([1000.0] * 20 + [950.0], ["cannot judge"]),
        ([1000.0] * 2, ["cannot judge"]),
        ([1000.0], ["cannot judge"]),
    ],
)
def test_the_latest_entry_is_judged(levels, gates):
    made = [
        histories.entry(n, rates)
        for n, rates in enumerate(histories.scattered(levels, 4))
    ]
    report = curves.check("h", curves.timeline(made), 0.05)
    assert [result.gate for result in report.results] == gates
    assert report.exit_status == {"ok": 0, "regression": 1, "cannot judge": 2}[gates[0]]


def test_what_is_not_measured_any_more_is_not_judged():
    made = [
        histories.entry(n, rates)
        for n, rates in enumerate(histories.scattered([1000.0] * 20))
    ]
    other = dataclasses.replace(
        made[-1].configurations[0], options={"encoder_type": "dynamic_rnn"}
    )
    made.append(histories.entry(20, configurations=(other,)))
    report = curves.check("h", curves.timeline(made), 0.05)
    kinds = [result.reason.kind for result in report.results]
    assert kinds == ["too-few-entries"] and len(report.only_before) == 1


def test_repeats_that_are_added_later_leave_the_other_configurations_judged():
    """The second entry of a commit has one configuration alone; of the other one, the first entry is the latest."""
    rates = histories.scattered([1000.0] * 20 + [800.0])
    made = [histories.entry(n, each) for n, each in enumerate(rates)]
    other = dataclasses.replace(
        made[-1].configurations[0], options={"encoder_type": "dynamic_rnn"}
    )
    made.append(
        histories.entry(21, commit=histories.commit_of(20), configurations=(other,))
    )
    report = curves.check("h", curves.timeline(made), 0.05)
    assert report.exit_status == 1 and report.only_before == ()


def test_a_metric_of_an_entry_is_the_geometric_mean_as_in_reports():
    made = histories.entry(1, [1000.0, 1000.0])
    part = dataclasses.replace(
        made.configurations[0],
        metrics={"step_p50_s": (0.1, 0.4), "accuracy": (0.0, 0.5)},
    )
    [curve] = curves.timeline(
        [dataclasses.replace(made, configurations=(part,))]
    ).curves
    assert curve.points[0].metric("step_p50_s") == pytest.approx(0.2)
    assert curve.points[0].metric("accuracy") == pytest.approx(0.25)


def test_all_configurations_of_one_file_are_titled_apart():
    parts = tuple(
        history.Configuration(
            options={"encoder_type": "cudnn_lstm", "num_devices": n},
            unit="words",
            num_devices=n,
            rates=(1.0,),
        )
        for n in (1, 2)
    )
    titles = [
        curve.title
        for curve in curves.timeline([histories.entry(1, configurations=parts)]).curves
    ]
    assert len(set(titles)) == 2
