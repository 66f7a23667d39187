"""The command `compare`: exit status, matching, pairs, drift and bad input."""

import dataclasses
import json
import random
from pathlib import Path

import pytest

from rnn_scaling.analysis.comparison import judgement
from rnn_scaling.analysis.history import entries
from rnn_scaling.commands import compare
from rnn_scaling.records import folder, history, record
from rnn_scaling.reports import comparison, json_report
from rnn_scaling.reports.comparison_statements import (
    A_AND_B,
    state_method,
    state_verdicts,
)
from rnn_scaling.reports.summary import summarise
from tests.support.compared import run, write
from tests.support.records import change_record, read_fields, throughput

STEADY = [1000.0, 1004.0, 997.0, 1001.0, 999.0]


def scale_rates(factor, rates=STEADY):
    return [factor * rate for rate in reversed(rates)]


@pytest.fixture
def go(run_command, tmp_path, monkeypatch):
    """Return a function that compares before with after."""
    monkeypatch.chdir(tmp_path)
    sides = ("before", "after")
    return lambda *words, paths=sides: run_command(compare, *paths, *words)


@pytest.fixture
def judge(tmp_path):
    """Return a function that judges before and after."""

    def call(*accepted, **options):
        sides = judgement.read(tmp_path / "before", tmp_path / "after")
        question = judgement.Question(accepted=frozenset(accepted), **options)
        return judgement.judge(*sides, question)

    return call


def kinds(report):
    """Return the kinds of the reason of the first result, its notes and the method."""
    result = report.results[0]
    texts = [*state_verdicts(report), *state_method(report), *result.notes]
    if result.reason:
        texts.append(result.reason)
    return {statement.kind for statement in texts}


def write_sides(tmp_path, before, after, **changes):
    write(tmp_path / "before", before)
    write(tmp_path / "after", after, **changes)


@pytest.mark.parametrize(
    "after, words, status, kind, values",
    [
        (scale_rates(0.97), [], 0, "no-regression", {"limit": 5}),
        (
            scale_rates(0.97),
            ["--max_regression=2%"],
            1,
            "regression",
            {"limit": 2, "change": pytest.approx(-3)},
        ),
        (scale_rates(0.95), [], 2, "not-judged", {"limit": 5}),
        ([900.0], [], 2, "not-judged", {"unjudged": 1}),
    ],
)
def test_exit_status_and_result(after, words, status, kind, values, go, tmp_path):
    write_sides(tmp_path, STEADY, after)
    printed_status, out, err = go(*words)
    assert (printed_status, err) == (status, "")
    assert out.splitlines()[-1].startswith("result: ")
    statement = json.loads(go("--format=json", *words)[1])["statements"][0]
    assert statement["kind"] == kind
    assert statement["values"].items() >= values.items()


def threads(n):
    return {"cpu_affinity": list(range(n)), "inter_op_parallelism_threads": n + 1}


def write_golden_sides(tmp_path):
    for n, rate in ((1, 1.0), (2, 1.8)):
        common = {"num_devices": n, "resolved": threads(n)}
        write(tmp_path / "before", [rate * r for r in STEADY], f"lstm-{n}", **common)
        environment = {"cpu_governor": None}
        if n == 2:
            rate *= 0.9
            environment["python"] = "3.13.1"
        common |= {"xla": True, "environment": environment}
        write(tmp_path / "after", scale_rates(rate), f"lstm-{n}", **common)
    four = {"num_devices": 4, "resolved": threads(4)}
    write(tmp_path / "before", [3000.0], "lstm-4", **four)
    failed = {"num_devices": 4, "xla": True, "status": "failed"}
    write(tmp_path / "after", [2900.0, 2950.0], "lstm-4", **failed)


@pytest.mark.parametrize(
    "name, words", [("compare.txt", []), ("compare.md", ["--format=markdown"])]
)
def test_exact_text(name, words, go, tmp_path, is_golden):
    write_golden_sides(tmp_path)
    status, out, _ = go(*words, "--force_incomparable=cpu_governor")
    assert status == 1
    assert is_golden(name, out)


def test_two_settings_are_called_a_and_b(tmp_path, monkeypatch):
    write_golden_sides(tmp_path)
    (tmp_path / "before").rename(tmp_path / "a")
    (tmp_path / "after").rename(tmp_path / "b")
    monkeypatch.chdir(tmp_path)
    question = judgement.Question(accepted=frozenset({"cpu_governor"}))
    report = comparison.read_and_judge(Path("a"), Path("b"), question)
    text = comparison.render_text(report, A_AND_B).lower()
    assert "before" not in text
    assert "after" not in text


@pytest.mark.parametrize("metric", ["items_per_second", "speedup", "efficiency"])
def test_a_row_has_one_interval_in_report_and_compare(metric, tmp_path, go):
    """The rows share a scatter, have a larger one, a single run, or another governor."""
    rng = random.Random(1)
    for side, factor in (("before", 1000.0), ("after", 900.0)):
        for seed, (runs, spread) in enumerate([(5, 0.01), (4, 0.05), (1, 0.0)], 1):
            for n in (1, 2):
                rate = factor * n
                rates = [rate * rng.lognormvariate(0, spread) for _ in range(runs)]
                options = {"num_devices": n, "seed": seed, "resolved": threads(n)}
                write(tmp_path / side, rates, f"s{seed}-{n}", **options)
        slow = {"environment": {"cpu_governor": "powersave"}, "resolved": threads(1)}
        write(tmp_path / side, [factor / 2, factor / 2.1], "slow", seed=1, **slow)
    report = json.loads(go(f"--metric={metric}", "--format=json")[1])
    name = "words_per_second" if metric == "items_per_second" else metric
    for side in ("before", "after"):
        summary = summarise(folder.read(tmp_path / side), side)
        expected = []
        for series in json.loads(json_report.render(summary))["series"]:
            for row in series["rows"]:
                if metric == "items_per_second" or row["num_devices"] > 1:
                    expected.append(row[name])
        expected.sort(key=lambda interval: interval["value"])
        intervals = [result[side] for result in report["results"]]
        intervals.sort(key=lambda interval: interval["value"])
        for interval, other in zip(intervals, expected, strict=True):
            for end in ("value", "low", "high"):
                assert interval[end] == pytest.approx(other[end], rel=1e-9)
            assert interval["kind"] == other["kind"]


def test_incomparable_runs_are_not_judged_unless_forced(go, tmp_path):
    changes = {"batch_size": 64, "environment": {"cpu": "Processor B"}}
    write_sides(tmp_path, STEADY, scale_rates(0.5), **changes)
    status, out, _ = go()
    assert status == 2 and "--batch_size" in out.splitlines()[-1]
    assert "Processor A" in out and "Processor B" in out
    assert go("--force_incomparable=cpu_model")[0] == 2
    status, out, _ = go("--force_incomparable=cpu_model,batch_size")
    assert status == 1 and "(accepted)" in out
    assert go("--force_incomparable")[0] == 1


@pytest.mark.parametrize(
    "before, kind", [([1000.0], "one-run-a-side"), (STEADY, "one-run-on-one-side")]
)
def test_a_single_run_shows_no_change(before, kind, go, judge, tmp_path):
    write_sides(tmp_path, before, [980.0])
    report = judge()
    assert report.exit_status == 2
    assert kinds(report) >= {kind, "runs-needed", "too-few-runs"}
    out = go()[1]
    assert "-2.0 % " in out and f"{len(before)}+1" in out


def write_at(tmp_path, side, rates, hours):
    """Write runs that start at these hours, with names that do not show the order.

    Every batch takes its own time, so no two runs are the same.
    """
    for path in (tmp_path / side).glob("*.json"):
        path.unlink()
    for number, (rate, hour) in enumerate(zip(rates, hours)):
        record_ = run(
            rate, environment={"started": f"2026-01-01T{hour:02}:00:00+00:00"}
        )
        batches = read_fields(record_)["batches"]
        for k, seconds in enumerate(batches["seconds"]):
            batches["seconds"][k] = seconds * (1 + 1e-6 * (hour + k))
        record_ = change_record(
            record_, batches=batches, throughput=throughput(batches)
        )
        repeat = 3 * number % len(rates) + 1
        record.write(record_, tmp_path / side / f"run.r{repeat}.json")


def test_a_history_is_found_or_named(go, tmp_path):
    write_at(tmp_path, "before", STEADY, range(5))
    write_at(tmp_path, "after", scale_rates(0.9), range(10, 15))
    for day in range(1, 7):
        runs = []
        for rate in STEADY:
            time = {"started": f"2025-12-{day:02}T00:00:00+00:00"}
            level = 1 + 0.02 * (day % 2) + 0.001 * day
            runs.append(run(rate * level, environment=time))
        for entry in entries.build_entries(runs):
            history.write(entry, tmp_path / "history")
    for words in ([], ["--history=history"]):
        report = json.loads(go("--format=json", *words)[1])
        assert report["results"][0]["drift"]["sessions"] == 6
    status, _, err = go("--history=nowhere")
    assert status == 2 and "--history=nowhere" in err
    status, _, err = go("--history=history", "--paired")
    assert status == 2 and "--paired" in err


def test_drift_that_is_seen_within_a_session_widens_the_interval(judge, tmp_path):
    falling = [1000.0 * 0.985**k for k in range(8)]
    write_at(tmp_path, "before", falling, range(8))
    write_at(tmp_path, "after", [0.9 * rate for rate in falling], range(10, 18))
    report = judge()
    assert report.exit_status == 2 and "drift-in-interval" in kinds(report)


def test_an_assumed_drift_is_stated_with_its_size(go, judge, tmp_path):
    write_at(tmp_path, "before", STEADY, range(5))
    write_at(tmp_path, "after", scale_rates(0.9), range(10, 15))
    found = {each.kind: each.values for each in state_verdicts(judge())}
    assert found["two-sittings"]["apart"] == pytest.approx(600)
    shares = found["interleaved-runs-would-show"]
    assert shares["interleaved"] < shares["now"] / 2
    [result] = json.loads(go("--format=json")[1])["results"]
    half_width = 100 * result["drift"]["half_width"]
    assert half_width == pytest.approx(found["two-sittings"]["drift"])


def test_the_same_runs_on_both_sides_are_not_judged(judge, tmp_path):
    write_at(tmp_path, "before", STEADY, range(5))
    write_at(tmp_path, "after", STEADY, range(5))
    [result] = judge().results
    assert result.reason.kind == "shared-runs" and result.reason.values["runs"] == 5


def test_two_single_records(go, tmp_path):
    write_sides(tmp_path, [1000.0], [980.0])
    assert go(paths=("before/run.json", "after/run.json"))[0] == 2
    _, _, err = go(paths=("before/run.json", "before/run.json"))
    assert err.startswith("error: before/run.json and")


# Drift that both runs of a pair have: unpaired it hides the change, paired it cancels.
DRIFT = [1000.0, 1100.0, 900.0, 1200.0, 1050.0]


def test_pairs_have_the_same_number_in_their_names(judge, tmp_path):
    write_sides(tmp_path, DRIFT, [0.93 * rate for rate in DRIFT])
    (tmp_path / "before/run.json").unlink()
    (tmp_path / "after/run.r3.json").unlink()
    report = judge(paired=True)
    [result] = report.results
    assert report.exit_status == 1 and result.runs == (3, 3)
    assert result.comparison.ratio.value == pytest.approx(0.93)
    [note] = result.notes
    assert note.kind == "runs-without-partner"
    assert note.values["runs"] == 2
    record.write(run(1000.0), tmp_path / "before/again.r2.json")
    [result] = judge(paired=True).results
    assert result.reason.kind == "ambiguous-pairs"
    assert result.reason.values["repeat"] == 2


def list_incomparable(report):
    differences = [labelled.difference for labelled in report.differences]
    return [each.name for each in differences if each.is_incomparable]


def test_configurations_that_were_not_run_again_stop_the_judgement(judge, tmp_path):
    write_sides(tmp_path, STEADY, scale_rates(1.0))
    write(tmp_path / "before", STEADY, "two", seed=2)
    report = judge()
    assert report.exit_status == 2
    assert list_incomparable(report) == ["missing configurations"]
    assert "seed=2" in report.differences[0].difference.first[0]
    assert judge("missing_configurations").exit_status == 0
    write(tmp_path / "after", STEADY, "two", seed=2)
    write(tmp_path / "after", STEADY, "three", seed=3)
    report = judge()
    assert report.exit_status == 0
    [label] = report.only_after
    assert "seed=3" in label


def test_nothing_in_common(go, tmp_path):
    for seed in (1, 2):
        write(tmp_path / "before", [1000.0], f"a{seed}", seed=seed)
    write(tmp_path / "after", [1000.0], "b", seed=3)
    status, out, err = go()
    assert (status, out) == (2, "")
    assert err.startswith("error: no configuration is on both sides: ")
    assert "cudnn_lstm" in err


def write_scaling(tmp_path, side, one, several, num_devices=2):
    """Write runs on one device and on several, at these multiples of STEADY."""
    write(tmp_path / side, [one * rate for rate in STEADY], "n1")
    rates = [several * rate for rate in reversed(STEADY)]
    options = {"num_devices": num_devices, "resolved": threads(num_devices)}
    write(tmp_path / side, rates, f"n{num_devices}", **options)


def test_speedup_is_relative_to_each_sides_own_single_device(judge, tmp_path):
    write_scaling(tmp_path, "before", 1.0, 1.9)
    write_scaling(tmp_path, "after", 0.5, 0.75)
    for question in ({"metric": "speedup"}, {"metric": "efficiency", "paired": True}):
        report = judge(**question)
        [result] = report.results
        assert report.exit_status == 1 and "2 devices" in result.label
        assert result.comparison.ratio.value == pytest.approx(1.5 / 1.9)
    assert result.before.value == pytest.approx(0.95)
    for path in (tmp_path / "after").glob("n1*"):
        path.unlink()
    report = judge("all", metric="speedup")
    assert report.exit_status == 2 and "no-run-on-one-device" in kinds(report)


def test_runs_of_different_units_are_never_compared(judge, tmp_path):
    write_sides(tmp_path, STEADY, STEADY, model="lm", unit="tokens")
    [result] = judge("all").results
    assert result.reason.kind == "other-units"


@pytest.mark.parametrize(
    "words, start",
    [
        (["--max_regression=5"], "--max_regression=5 must be a share"),
        (["third"], "expected BEFORE AFTER, got before after third; "),
        (["--metric=speedup"], "--metric=speedup needs "),
    ],
)
def test_wrong_use_is_one_line(words, start, go, tmp_path):
    write_sides(tmp_path, STEADY, STEADY)
    status, out, err = go(*words)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {start}") and err.count("\n") == 1


def test_folders_without_runs(go, tmp_path):
    write(tmp_path / "outer/inner", [1.0])
    (tmp_path / "empty").mkdir()
    status, _, err = go(paths=("outer", "empty"))
    outer, empty = err.splitlines()
    assert status == 2
    assert outer.startswith("error: outer: ") and "outer/inner" in outer
    assert empty.startswith("error: empty: ") and "outer" not in empty
    (tmp_path / "empty/cut.json").write_text("{")
    assert "(empty/cut.json: " in go(paths=("outer", "empty"))[2]
    assert go(paths=("nowhere", "empty"))[2].startswith("error: nowhere: No such file")


def test_the_worst_of_several_regressions_is_named(judge, tmp_path):
    write_sides(tmp_path, STEADY, scale_rates(0.8))
    write(tmp_path / "before", STEADY, "other", seed=2)
    write(tmp_path / "after", scale_rates(0.7), "other", seed=2)
    statement = state_verdicts(judge())[0]
    assert statement.kind == "regressions" and "seed=2" in statement.subject
    assert statement.values.items() >= {"slower": 2, "total": 2}.items()
    assert statement.values["change"] == pytest.approx(-30)


def test_bad_runs_are_noted_and_not_compared(judge, tmp_path):
    write_sides(tmp_path, STEADY, scale_rates(1.0))
    error = {"type": "MadeUp", "message": "why"}
    bad = dataclasses.replace(run(500.0), status="failed", error=error)
    record.write(bad, tmp_path / "after/run.r9.json")
    report = judge()
    [result] = report.results
    assert report.exit_status == 0 and result.runs == (5, 5)
    [note] = result.notes
    assert note.kind == "bad-runs" and note.values["file"] == "run.r9.json"
    assert note.values["bad"] == 1
    assert note.values["runs"] == 6
    for path in (tmp_path / "after").glob("*.json"):
        record.write(bad, path)
    [result] = judge().results
    assert result.reason.kind == "no-good-run" and result.reason.values["runs"] == 6
