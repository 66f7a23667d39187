"""Curves of a history: order, change points with their error rates, and the last entry."""

import dataclasses
import math

import numpy as np
import pytest

from rnn_scaling.analysis.history import curves, entries
from rnn_scaling.analysis.history import levels as search
from rnn_scaling.analysis.history.curves import Range
from rnn_scaling.records import history
from rnn_scaling.system.machine import commits
from tests.support import histories
from tests.support.compared import run


@pytest.fixture(autouse=True)
def in_folder_without_git(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commits.count_commits.cache_clear()


def make_curve(levels, seed=0):
    [curve] = curves.build_timeline(histories.entries(levels, seed)).curves
    return curve


def cuts_of(levels, seed=0):
    return make_curve(levels, seed).levels.cuts


def configuration(encoder="cudnn_lstm", num_devices=1, **options):
    options |= {"encoder_type": encoder, "decoder_type": encoder, "device": "cpu"}
    options["num_devices"] = num_devices
    return history.Configuration(
        options=options, unit="words", num_devices=num_devices, rates=(1000.0,)
    )


def make_committed_run(commit, rate=1000.0, cpu="Processor A", **options):
    facts = {
        "commit": {"hash": commit, "modified": False, "diff": None},
        "started": "2026-01-01T10:00:00+01:00",
        "cpu": cpu,
    }
    return run(rate, environment=facts, **options)


def test_records_become_an_entry_for_each_commit_and_machine():
    a = histories.make_commit(1)
    b = histories.make_commit(2)
    records = [
        make_committed_run(a, 1000.0),
        make_committed_run(a, 1001.0),
        make_committed_run(b, 900.0),
        make_committed_run(b, 1.0, status="failed"),
        make_committed_run(a, 2000.0, "Processor B"),
    ]
    built = entries.build_entries(records, label="x")
    assert [(entry.commit.hash, entry.machine.cpu) for entry in built] == [
        (a, "Processor A"),
        (b, "Processor A"),
        (a, "Processor B"),
    ]
    assert built[0].measured == "2026-01-01T09:00:00Z" and built[0].label == "x"
    [measured] = built[0].configurations
    assert measured.rates == pytest.approx((1000.0, 1001.0))
    assert measured.options["encoder_type"] == "cudnn_lstm"
    named = entries.build_entries(records, commit=b)
    assert {entry.commit.hash for entry in named} == {b}


def test_entries_of_known_commits_are_in_the_order_of_history(tmp_path):
    # The dates of these commits decrease, starting in 2033.
    first, second, third = histories.repository(tmp_path, 3)
    built = []
    for number, commit in enumerate([third, first, second, first]):
        built.append(histories.entry(number, commit=commit))
    missing = histories.entry(0, commit=histories.make_commit(9))
    in_order = [missing, built[1], built[3], built[2], built[0]]
    assert curves.sort_entries([*built, missing]) == in_order


def test_entries_without_git_are_in_the_order_of_dates():
    built = [histories.entry(n, commit=None if n % 2 else "") for n in range(6)]
    assert curves.sort_entries(built[::-1]) == built


@pytest.mark.parametrize(
    "count, expected",
    [(1, Range.ONE), (2, Range.SEVERAL), (0, Range.SAME), (None, Range.UNKNOWN)],
)
def test_a_change_point_has_its_range_of_commits(count, expected, tmp_path):
    hashes = histories.repository(tmp_path, 3)
    before = hashes[0]
    after = hashes[count or 0]
    if count is None:
        before = histories.make_commit(8)
        after = histories.make_commit(9)
    built = []
    for n, rates in enumerate(histories.scatter_rates([1000.0] * 20 + [900.0] * 10)):
        versions = {"tensorflow": "2.21" if n < 20 else "2.22"}
        commit = before if n < 20 else after
        built.append(histories.entry(n, rates, commit=commit, versions=versions))
    [curve] = curves.build_timeline(built).curves
    [step] = curve.change_points
    assert step.range == expected
    assert step.commits == count
    assert step.before == built[19]
    assert step.after == built[20]
    assert step.change.low < 0.9 < step.change.high
    assert step.versions == {"tensorflow": ("2.21", "2.22")}


def test_a_change_that_is_reverted_is_two_change_points():
    curve = make_curve([1000.0] * 20 + [930.0] * 6 + [1000.0] * 10)
    assert curve.levels.cuts == (20, 26)
    changes = [step.change.value for step in curve.change_points]
    assert changes == pytest.approx([0.93, 1 / 0.93], rel=0.015)


@pytest.mark.parametrize("bad", [{0}, {1}, {2}, {5}, {20}, {39}, {5, 12, 30}])
def test_bad_days_are_no_change_points_and_hide_none(bad):
    levels = [700.0 if n in bad else 1000.0 for n in range(40)]
    assert cuts_of(levels) == ()
    assert cuts_of([*levels, *[950.0] * 4]) in ((40,), (39,))


def test_change_points_that_were_found_stay():
    levels = [1000.0] * 20 + [940.0] * 20
    for last in range(30, 40, 3):
        assert cuts_of(levels[:last], 3) == cuts_of(levels, 3)


def find_simulated_levels(levels, generator):
    size = (len(levels), 3)
    noise = generator.normal(0, histories.PROCESS, size)
    days = generator.normal(0, histories.ENTRY, len(levels))
    means = np.log(levels) + days + noise.mean(1)
    deviation = math.sqrt(noise.var(1, ddof=1).mean())
    return search.find_levels(means, [3] * len(levels), deviation)


def test_error_rates_of_the_search():
    """benchmarks/history.py has the full simulation: 0.2 % and 97 %."""
    generator = np.random.default_rng(1)
    alarms = 0
    found = 0
    for _ in range(100):
        alarms += bool(find_simulated_levels([1.0] * 100, generator).cuts)
        cuts = find_simulated_levels([1.0] * 20 + [0.95] * 3, generator).cuts
        found += any(abs(cut - 20) <= 1 for cut in cuts)
    assert alarms <= 3 and found >= 90


def test_intervals_of_changes_contain_the_true_change():
    generator = np.random.default_rng(2)
    covered = 0
    for _ in range(400):
        levels = find_simulated_levels([1.0] * 12, generator)
        change = levels.change((0, 11), (11, 12), 11)
        covered += change.low <= 1 <= change.high
    assert 370 <= covered <= 398


def test_entries_of_few_processes_weigh_less():
    levels = search.find_levels([0.0] * 9 + [0.3], [9] * 9 + [1], 0.3)
    assert levels.weights[-1] < levels.weights[0]
    assert levels.level(0, 10)[0] < 0.03


@pytest.mark.parametrize(
    "levels, gate",
    [
        ([1000.0] * 20, "ok"),
        ([1000.0] * 20 + [850.0], "regression"),
        # The new level.
        ([1000.0] * 20 + [850.0] * 12, "ok"),
        ([1000.0] * 20 + [950.0], "cannot judge"),
        ([1000.0] * 2, "cannot judge"),
    ],
)
def test_the_latest_entry_is_judged(levels, gate):
    timeline = curves.build_timeline(histories.entries(levels, 4))
    report = curves.check("h", timeline, 0.05)
    assert [result.gate for result in report.results] == [gate]
    assert report.exit_status == {"ok": 0, "regression": 1, "cannot judge": 2}[gate]


def test_a_curve_that_is_not_measured_any_more_is_not_judged():
    built = histories.entries([1000.0] * 20)
    other = configuration("dynamic_rnn")
    built.append(histories.entry(20, configurations=(other,)))
    report = curves.check("h", curves.build_timeline(built), 0.05)
    kinds = [result.reason.kind for result in report.results]
    assert kinds == ["too-few-entries"] and len(report.only_before) == 1


def test_a_further_entry_of_the_commit_leaves_other_configurations_judged():
    built = histories.entries([1000.0] * 20 + [800.0])
    commit = histories.make_commit(20)
    other = configuration("dynamic_rnn")
    built.append(histories.entry(21, commit=commit, configurations=(other,)))
    report = curves.check("h", curves.build_timeline(built), 0.05)
    assert report.exit_status == 1 and report.only_before == ()


def test_a_metric_of_an_entry_is_the_geometric_mean_as_in_reports():
    metrics = {"step_p50_s": (0.1, 0.4), "accuracy": (0.0, 0.5)}
    part = dataclasses.replace(configuration(), rates=(1000.0,) * 2, metrics=metrics)
    entry = histories.entry(1, configurations=(part,))
    [curve] = curves.build_timeline([entry]).curves
    assert curve.points[0].metric("step_p50_s") == pytest.approx(0.2)
    assert curve.points[0].metric("accuracy") == pytest.approx(0.25)


def with_load(entry, *loads):
    """Return an entry whose runs had these loads of other processes."""
    [part] = entry.configurations
    part = dataclasses.replace(part, loads=loads)
    return dataclasses.replace(entry, configurations=(part,))


def test_the_load_of_the_counted_runs_is_in_the_entry():
    commit = histories.make_commit(1)
    quiet = make_committed_run(commit)
    busy = make_committed_run(commit, 900.0)
    load = dataclasses.replace(busy.environment.load, others=0.4)
    facts = dataclasses.replace(busy.environment, load=load)
    busy = dataclasses.replace(busy, environment=facts)
    [entry] = entries.build_entries([quiet, busy])
    [part] = entry.configurations
    assert part.loads == (0.01, 0.4) and part.is_disturbed
    [entry] = entries.build_entries([quiet, quiet])
    assert not entry.configurations[0].is_disturbed


def test_disturbed_entries_are_not_searched_and_the_latest_is_not_judged():
    quiet = histories.entries([1000.0] * 20 + [850.0] * 4, 4)
    disturbed = [with_load(entry, 0.0, 0.4, None) for entry in quiet[20:]]
    timeline = curves.build_timeline([*quiet[:20], *disturbed])
    [curve] = timeline.curves
    assert (len(curve.quiet_points), len(curve.points)) == (20, 24)
    assert curve.change_points == ()
    report = curves.check("h", timeline, 0.05)
    assert report.exit_status == 2
    assert report.results[0].reason.kind == "disturbed-entry"

    later = [
        dataclasses.replace(entry, measured=f"2026-03-{day:02}T00:00:00Z", commit=None)
        for day, entry in enumerate(histories.entries([850.0] * 4, 5), 1)
    ]
    timeline = curves.build_timeline([*quiet[:20], *disturbed, *later])
    [change_point] = timeline.curves[0].change_points
    assert change_point.before.name == quiet[19].name
    assert change_point.after.name == later[0].name


def test_a_quiet_entry_of_the_latest_commit_is_judged():
    quiet = histories.entries([1000.0] * 20, 4)
    again = histories.entry(20, [600.0] * 3, commit=histories.make_commit(19))
    timeline = curves.build_timeline([*quiet, with_load(again, 0.4, 0.4, 0.4)])
    assert curves.check("h", timeline, 0.05).exit_status == 0


@pytest.mark.filterwarnings("error")
def test_a_history_of_disturbed_entries_only_has_no_change_points():
    loaded = [with_load(e, 0.4, 0.4, 0.4) for e in histories.entries([1000.0] * 5)]
    timeline = curves.build_timeline(loaded)
    [curve] = timeline.curves
    assert curve.change_points == () and curve.entry_deviation == 0.0
    assert curves.check("h", timeline, 0.05).exit_status == 2


def test_curves_are_in_the_order_of_machines_and_of_their_names():
    modes = [("replicated", 2), ("replicated", 16), ("independent", 4)]
    parts = [configuration(num_devices=n, variable_update=mode) for mode, n in modes]
    for order in (parts, parts[::-1]):
        built = []
        for machine in ("B", "A"):
            entry = histories.entry(0, machine=machine, configurations=tuple(order))
            built.append(entry)
        titles = [curve.title for curve in curves.build_timeline(built).curves]
        names = [
            "cudnn_lstm, independent, 4 devices",
            "cudnn_lstm, replicated, 2 devices",
            "cudnn_lstm, replicated, 16 devices",
        ]
        assert titles[:3] == [f"{name}, B" for name in names]
        assert titles[3:] == [f"{name}, A" for name in names]


def test_curves_of_another_program_name_one_device_as_well():
    parts = [
        history.Configuration(
            options={"trainer": "mine", **devices},
            unit="words",
            num_devices=num_devices,
            rates=(10.0,),
        )
        for num_devices, devices in ((1, {}), (2, {"num_devices": 2}))
    ]
    timeline = curves.build_timeline([histories.entry(0, configurations=tuple(parts))])
    titles = [curve.title for curve in timeline.curves]
    assert titles == ["mine, 1 device", "mine, 2 devices"]
