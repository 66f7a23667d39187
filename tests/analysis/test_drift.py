"""Drift between two sessions: when it counts, how large it is, and what it does."""

import datetime
import math

import numpy as np
import pytest

from rnn_scaling.analysis import significance
from rnn_scaling.analysis.comparison import drift, judgement, matching, verdicts
from rnn_scaling.analysis.comparison.drift import Drift, Source
from rnn_scaling.analysis.confidence import (
    Scatter,
    compute_interval_over_runs,
    divide_rates,
)
from rnn_scaling.analysis.history import entries, sessions
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.records import history, record
from rnn_scaling.reports.comparison_statements import state_sessions
from tests.support.compared import run

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
STEADY = (1000.0, 1010.0, 990.0)


@pytest.fixture(autouse=True)
def in_folder_without_git(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def make_started_run(minutes, rate=1000.0, **changes):
    """Return a run that started some minutes after START."""
    time = START + datetime.timedelta(minutes=float(minutes))
    return run(float(rate), environment={"started": time.isoformat()}, **changes)


def side(tmp_path, name, minutes, rates=None):
    """Write runs that started at these minutes, and return them as a side."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    rates = rates or [1000.0 + k for k in range(len(minutes))]
    for number, (minute, rate) in enumerate(zip(minutes, rates), 1):
        record.write(make_started_run(minute, rate), folder / f"run.r{number}.json")
    return matching.read(folder)


@pytest.mark.parametrize(
    "before, after, apart",
    [
        ([0, 1, 2], [60, 61, 62], 60),
        ([0, 1, 2, 3, 14], [10, 11, 12, 13, 15], 8.2),
        # one run was repeated later
        ([0, 3, 4], [1, 2, 5], None),
        ([0, 0, 0], [0, 0, 0], None),
        ([0, 3, 4, 7], [1, 2, 5, 6], None),  # A B B A A B B A
        # Sweeps in the order A B B A: the means are equal, the sessions are 60 min apart.
        ([0, 1, 2, 180, 181, 182], [60, 61, 62, 120, 121, 122], 90),
        ([0, 1, 120, 121], [60, 61, 180, 181], 60),  # A B A B
        ([0, 1, 2, 120, 121, 122], [60, 61, 62], 60),  # A B A
    ],
)
def test_sides_that_alternate_are_one_session(tmp_path, before, after, apart):
    found = drift.find_sessions(
        side(tmp_path, "before", before), side(tmp_path, "after", after)
    )
    if apart is None:
        assert found is None
    else:
        assert found.minutes_apart == pytest.approx(apart)


def test_sweeps_of_several_configurations_may_be_interleaved(tmp_path):
    """A sweep runs each configuration once before the other side's sweep begins."""
    sides = {}
    for repeats in (1, 3):
        for name, offset in (("before", 0), ("after", 10)):
            folder = tmp_path / str(repeats) / name
            folder.mkdir(parents=True)
            for sweep in range(3):
                for number in range(2 * repeats):
                    minute = 20 * sweep + offset + number
                    one = make_started_run(
                        minute, 1000 + minute, num_devices=1 + number % 2
                    )
                    record.write(one, folder / f"run{sweep}{number}.json")
            sides[repeats, name] = matching.read(folder)
    found = {}
    for repeats in (1, 3):
        pair = (sides[repeats, "before"], sides[repeats, "after"])
        found[repeats] = drift.find_sessions(*pair)
    assert found[1] is None
    assert found[3].minutes_apart == pytest.approx(10)
    assert found[3].counts == (3, 3)
    assert found[3].variance_share == pytest.approx(1 / 3)


def test_drift_counts_once_for_each_session():
    rates = [compute_interval_over_runs([100.0, 102.0, 98.0]) for _ in range(2)]
    without = divide_rates(*rates)
    scatter = Scatter(0.03, 1e9, Note.DRIFT)
    with_drift = divide_rates(*rates, scatter)
    expected = math.hypot(without.relative_error, 0.03 * math.sqrt(2))
    assert with_drift.relative_error == pytest.approx(expected)
    assert with_drift.value == without.value
    assert Note.DRIFT in with_drift.kind.notes
    assert with_drift.degrees > without.degrees
    uncertain = divide_rates(*rates, Scatter(0.03, 2, Note.DRIFT))
    assert uncertain.degrees < 4
    assert uncertain.half_width > with_drift.half_width > without.half_width


def test_drift_is_assumed_to_be_as_large_as_the_scatter_of_runs():
    assumed = drift.assume([Scatter(0.02, 4), Scatter(0.04, 8)])
    assert assumed.deviation == pytest.approx(math.sqrt((4 * 4 + 8 * 16) / 12) / 100)
    assert assumed.degrees == 3
    assert assumed.source == Source.ASSUMED
    # Two runs per side show little.
    assert drift.assume([Scatter(0.02, 1), Scatter(0.02, 1)]).degrees == 1
    # Even a machine whose runs agree differs from day to day.
    assert drift.assume([Scatter(0.0, 4)]).deviation == drift.MIN_ASSUMED_DEVIATION
    assert drift.assume([]) is None


def make_past_rates(number, deviation, num_runs=5, seed=1):
    """Return the rates of some sessions; their runs differ by 2 %."""
    rng = np.random.default_rng(seed)
    levels = deviation * rng.normal(size=(number, 1))
    return np.exp(levels + 0.02 * rng.normal(size=(number, num_runs))).tolist()


@pytest.mark.parametrize("deviation", [0.0, 0.01, 0.04])
def test_many_sessions_show_the_drift(deviation):
    assumed = Drift(0.02, 3, Source.ASSUMED)
    found = sessions.add_session_drift(assumed, make_past_rates(100, deviation))
    assert found.source is Source.HISTORY
    assert found.sessions == 100
    assert found.deviation == pytest.approx(deviation, rel=0.15, abs=0.005)
    assert found.degrees == pytest.approx(102)


def test_few_sessions_only_correct_the_assumption():
    assumed = Drift(0.02, 3, Source.ASSUMED)
    assert sessions.add_session_drift(assumed, make_past_rates(2, 0.0)) == assumed
    few = sessions.add_session_drift(assumed, make_past_rates(4, 0.0))
    assert 0.01 < few.deviation < 0.02
    assert few.degrees == 6


def test_a_lasting_change_is_not_drift():
    assumed = Drift(0.02, 3, Source.ASSUMED)
    rates = make_past_rates(60, 0.01)
    stepped = rates[:30]
    for session in rates[30:]:
        stepped.append([0.8 * rate for rate in session])
    found = sessions.add_session_drift(assumed, stepped)
    assert found.deviation == pytest.approx(0.01, abs=0.004)


def past_entries(minutes, factors, **changes):
    """Return entries of sessions that started at these minutes."""
    found = []
    for minute, factor in zip(minutes, factors):
        runs = []
        for k, rate in enumerate(STEADY):
            runs.append(make_started_run(minute + k, rate * factor, **changes))
        found += entries.build_entries(runs)
    return sessions.PastSessions(tuple(found))


def judge_sessions(tmp_path, name, known=None, after=1.0, **options):
    """Judge two sessions that are a day apart."""
    sides = []
    for number, factor in enumerate((1.0, after)):
        minutes = [1440 * number + k for k in range(3)]
        rates = [factor * rate for rate in STEADY]
        if number:
            rates.reverse()
        sides.append(side(tmp_path, f"{name}{number}", minutes, rates))
    question = judgement.Question(past=known, **options)
    return judgement.judge(*sides, question)


def test_a_history_of_the_machine_replaces_the_assumption(tmp_path):
    days = [-1440 * day for day in range(1, 21)]
    results = {}
    for name, step in (("without", None), ("calm", 0.001), ("wild", 0.1)):
        factors = [1 + (step or 0) * (day % 2) for day in range(20)]
        known = past_entries(days, factors) if step else None
        [results[name]] = judge_sessions(tmp_path, name, known, after=0.9).results
    assert results["without"].drift.source is Source.ASSUMED
    assert {results[name].drift.sessions for name in ("calm", "wild")} == {20}
    half_widths = [
        results[name].comparison.ratio.half_width
        for name in ("calm", "without", "wild")
    ]
    assert half_widths == sorted(half_widths)
    assert results["calm"].verdict == "slower"
    assert results["wild"].verdict == "no difference seen"


def test_only_separate_sessions_of_the_same_configuration_and_machine_count(tmp_path):
    days = [-1440 * day for day in range(1, 9)]
    levels = [1 + 0.01 * (day % 3) for day in range(8)]
    for name, known, num_sessions in (
        ("same", past_entries(days, levels), 8),
        # Entries of one session: they are a minute apart.
        ("near", past_entries([-1440 - k for k in range(8)], levels), 0),
        # Entries that contain the compared runs.
        ("own", past_entries([*days, 0, 1440], [*levels, 1.0, 1.0]), 8),
        ("other", past_entries(days, levels, num_devices=2), 0),
    ):
        [result] = judge_sessions(tmp_path, name, known).results
        assert result.drift.sessions == num_sessions, name


def test_a_speedup_has_no_drift(tmp_path):
    for name, minutes in (("before", 0), ("after", 1440)):
        folder = tmp_path / name
        folder.mkdir()
        for devices in (1, 2):
            for k, rate in enumerate(STEADY):
                one = make_started_run(minutes + k, devices * rate, num_devices=devices)
                record.write(one, folder / f"on{devices}.r{k + 1}.json")
    sides = judgement.read(tmp_path / "before", tmp_path / "after")
    report = judgement.judge(*sides, judgement.Question(metric="speedup"))
    assert [result.drift for result in report.results] == [None]
    [statement] = state_sessions(report)
    assert statement.kind == "two-sittings-of-ratios"


def test_interleaved_pairs_have_no_drift(tmp_path):
    report = judge_sessions(tmp_path, "pairs", paired=True)
    assert [result.drift for result in report.results] == [None]
    assert state_sessions(report) == []


def test_more_runs_do_not_help_against_drift(tmp_path):
    rates = [compute_interval_over_runs(rates) for rates in ([1.0, 1.01, 0.99],) * 2]
    for deviation, is_enough in ((1e-9, True), (0.02, False)):
        between = Drift(deviation, 100, Source.HISTORY)
        widened = significance.judge_ratio(divide_rates(*rates, between.scatter))
        needed = verdicts.count_needed_runs(widened, 0.02, between)
        assert (needed is not None) is is_enough
    [result] = judge_sessions(tmp_path, "x", max_regression=0.001).results
    assert result.reason.kind == "undecided-drift"


def test_sessions_are_read_from_histories_and_results(tmp_path):
    known = past_entries([-1440, -2880], [1.0, 1.01])
    kept = tmp_path / "history"
    kept.mkdir()
    for entry in known.entries:
        history.write(entry, kept)
    side(tmp_path, "results", [0, 1])
    found = sessions.read([kept, tmp_path / "results"])
    assert len(found.entries) == 3
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with pytest.raises(matching.InputError, match=name):
            sessions.read([tmp_path / name])


def test_sides_that_take_turns_drift_less(tmp_path):
    before = side(tmp_path, "before", [0, 1, 2, 180, 181, 182])
    after = side(tmp_path, "after", [60, 61, 62, 120, 121, 122])
    [result] = judgement.judge(before, after, judgement.Question()).results
    assert result.drift.variance_share == pytest.approx(3 / 4)
    assert Note.DRIFT in result.comparison.ratio.kind.notes
