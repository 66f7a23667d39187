"""The verdict on two sets of runs: exact text, exit codes, matching, pairs, Holm, false alarms, bad input."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import sys

import pytest

from rnn_scaling.analysis import rows
from rnn_scaling.analysis.comparison import matching, verdicts
from rnn_scaling.analysis.comparison.compared_metrics import CHOICES
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP
from rnn_scaling.commands import compare
from rnn_scaling.records import folder, record
from rnn_scaling.reports import json_report
from rnn_scaling.reports.summary_builder import summarise
from tests.support.compared import run, write
from tests.support.records import changed, fields_of, throughput

STEADY = [1000.0, 1004.0, 997.0, 1001.0, 999.0]


def scaled(factor, rates=STEADY):
    return [factor * rate for rate in reversed(rates)]


@pytest.fixture
def go(tmp_path, monkeypatch, capsys):
    """Compares tmp_path/before with tmp_path/after; returns exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words, paths=("before", "after")):
        status = compare.main([*paths, *words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def sides(tmp_path, before, after, **changes):
    write(tmp_path / "before", before)
    write(tmp_path / "after", after, **changes)


@pytest.mark.parametrize(
    "after,words,status,kind,values",
    [
        (scaled(1.0), [], 0, "no-regression", {"limit": 5, "total": 1}),
        (scaled(0.97), [], 0, "no-regression", {"limit": 5}),
        (scaled(1.2), [], 0, "no-regression", {"limit": 5}),
        (
            scaled(0.97),
            ["--max_regression=2%"],
            1,
            "regression",
            {"limit": 2, "change": pytest.approx(-3)},
        ),
        (
            scaled(0.9),
            ["--max_regression=0.05"],
            1,
            "regression",
            {"limit": 5, "change": pytest.approx(-10)},
        ),
        (scaled(0.95), [], 2, "not-judged", {"limit": 5}),
        ([900.0, 1100.0, 1000.0], [], 2, "not-judged", {"limit": 5}),
        ([900.0], [], 2, "not-judged", {"unjudged": 1}),
    ],
)
def test_exit_status_and_result(after, words, status, kind, values, go, tmp_path):
    sides(tmp_path, STEADY, after)
    got, out, err = go(*words)
    assert (got, err) == (status, "")
    assert out.splitlines()[-1].startswith("result: ")
    statement = json.loads(go("--format=json", *words)[1])["statements"][0]
    assert statement["kind"] == kind and statement["values"] == {
        **statement["values"],
        **values,
    }


def golden_sides(tmp_path):
    for n, rate in ((1, 1.0), (2, 1.8)):
        write(
            tmp_path / "before",
            [rate * r for r in STEADY],
            f"lstm-{n}",
            num_devices=n,
            resolved=threads(n),
        )
        environment = {"cpu_governor": None, **({"python": "3.13.1"} if n == 2 else {})}
        after = {"num_devices": n, "xla": True, "environment": environment}
        write(
            tmp_path / "after",
            scaled(rate * (0.9 if n == 2 else 1.0)),
            f"lstm-{n}",
            resolved=threads(n),
            **after,
        )
    write(tmp_path / "before", [3000.0], "lstm-4", num_devices=4, resolved=threads(4))
    write(
        tmp_path / "after",
        [2900.0, 2950.0],
        "lstm-4",
        num_devices=4,
        xla=True,
        status="failed",
    )


def threads(n):
    return {"cpu_affinity": list(range(n)), "inter_op_parallelism_threads": n + 1}


@pytest.mark.parametrize(
    "name,words", [("compare.txt", []), ("compare.md", ["--format=markdown"])]
)
def test_exact_text(name, words, go, tmp_path, is_golden):
    golden_sides(tmp_path)
    status, out, _ = go(*words, "--force_incomparable=cpu_governor")
    assert status == 1
    assert is_golden(name, out)


def test_a_terminal_has_a_table_that_fits_it(go, tmp_path, monkeypatch):
    sides(tmp_path, STEADY, scaled(0.9))
    piped = go()[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    status, shown, _ = go()
    assert status == 1 and max(map(len, shown.splitlines())) <= 80 < max(
        map(len, piped.splitlines())
    )
    assert "REGRESSION" in shown and shown.splitlines()[-1] == piped.splitlines()[-1]


def test_json_holds_everything(go, tmp_path):
    golden_sides(tmp_path)
    status, out, _ = go("--format=json")
    held = json.loads(out)
    assert (status, held["schema"], held["exit_status"]) == (
        2,
        "rnn_scaling.compare/1",
        2,
    )
    assert held["changes"] == [{"name": "xla", "before": "False", "after": "True"}]
    assert [f["difference"]["what"] for f in held["found"]] == [
        "CPU governor",
        "Python",
    ]
    assert held["results"][1]["comparison"]["ratio"]["value"] == pytest.approx(0.9)


@pytest.mark.parametrize("metric", ["items_per_second", "speedup", "efficiency"])
@pytest.mark.parametrize("words", [[], ["--paired"]])
def test_a_row_has_one_interval_in_report_and_compare(metric, words, tmp_path, go):
    """Rows that share their scatter, one whose own is larger, one of a single run, and runs on two networks."""
    rng = random.Random(1)
    for side, factor in (("before", 1000.0), ("after", 900.0)):
        for seed, (runs, spread) in enumerate([(5, 0.01), (4, 0.05), (1, 0.0)], 1):
            for n in (1, 2):
                rates = [
                    factor * n * rng.lognormvariate(0, spread) for _ in range(runs)
                ]
                write(
                    tmp_path / side,
                    rates,
                    f"s{seed}-{n}",
                    num_devices=n,
                    seed=seed,
                    resolved=threads(n),
                )
        slow = [factor / 2, factor / 2.1]
        write(
            tmp_path / side,
            slow,
            "slow",
            seed=1,
            environment={"cpu_governor": "powersave"},
            resolved=threads(1),
        )
    held = json.loads(go(f"--metric={metric}", "--format=json", *words)[1])
    compared = {
        when: [result[when] for result in held["results"]]
        for when in ("before", "after")
    }
    for when, sides in compared.items():
        summary = summarise(folder.read(tmp_path / when), when)
        rows = [
            row
            for each in json.loads(json_report.render(summary))["series"]
            for row in each["rows"]
        ]
        name = "words_per_second" if metric == "items_per_second" else metric
        wanted = [
            row[name]
            for row in rows
            if metric == "items_per_second" or row["num_devices"] > 1
        ]
        ends = [
            [[each[end] for end in ("value", "low", "high")] for each in several]
            for several in (sides, wanted)
        ]
        assert sorted(ends[0]) == [
            pytest.approx(each, rel=1e-9) for each in sorted(ends[1])
        ]
        assert sorted(each["kind"] for each in sides) == sorted(
            each["kind"] for each in wanted
        )


def test_incomparable_runs_are_not_judged_unless_forced(go, tmp_path):
    sides(
        tmp_path, STEADY, scaled(0.5), batch_size=64, environment={"cpu": "Processor B"}
    )
    status, out, _ = go()
    assert status == 2 and "Cannot judge: incomparable: --batch_size," in out
    assert "- CPU model: Processor A" in out and "Processor B after" in out
    assert go("--force_incomparable=cpu_model")[0] == 2
    status, out, _ = go("--force_incomparable=cpu_model,batch_size")
    assert status == 1 and "(accepted)" in out
    assert go("--force_incomparable")[0] == 1


def test_a_regression_elsewhere_is_told_beside_what_cannot_be_judged(go, tmp_path):
    sides(tmp_path, STEADY, scaled(0.8))
    for side in ("before", "after"):
        write(tmp_path / side, [1000.0], "other", seed=2)
    assert go()[0] == 1


def test_the_worst_of_several_regressions_is_named(go, tmp_path):
    sides(tmp_path, STEADY, scaled(0.8))
    write(tmp_path / "before", STEADY, "other", seed=2)
    write(tmp_path / "after", scaled(0.7), "other", seed=2)
    last = go()[1].splitlines()[-1]
    assert (
        "in 2 of 2 configurations" in last
        and "worst -30.0 % in" in last
        and "cudnn_lstm, independent, 1 device, seed=2" in last
    )


def test_one_run_a_side_says_that_it_cannot_tell(go, tmp_path):
    sides(tmp_path, [1000.0], [980.0])
    status, out, _ = go()
    assert status == 2 and "| -2.0 % |" in re.sub(" +", " ", out) and "±" not in out
    assert "one run do not show" in out
    assert "slow-down of 5 %" in out and "3 at 1 %" in out
    assert "Cannot judge: fewer than 2 runs" in out and "per side" in out


def test_a_single_run_on_one_side_is_not_called_one_a_side(go, tmp_path):
    sides(tmp_path, STEADY, [980.0])
    out = go()[1]
    assert "5+1" in out and "One run on one side" in out and "One run a side" not in out


def timed(tmp_path, side, rates, hours):
    """Runs that start at these hours of a day; every batch takes its own time, as it does."""
    (tmp_path / side).mkdir(exist_ok=True)
    for number, (rate, hour) in enumerate(zip(rates, hours)):
        made = run(rate, environment={"started": f"2026-01-01T{hour:02d}:00:00+00:00"})
        batches = fields_of(made)["batches"]
        batches["seconds"] = [
            each * (1 + 1e-6 * (hour + k)) for k, each in enumerate(batches["seconds"])
        ]
        made = changed(made, batches=batches, throughput=throughput(batches))
        repeat = 3 * number % len(rates) + 1  # names do not tell the order
        record.write(
            made,
            tmp_path / side / (f"run.r{repeat}.json" if repeat > 1 else "run.json"),
        )


def test_drift_between_two_sittings_is_named_and_ab_is_what_has_none(go, tmp_path):
    timed(tmp_path, "before", STEADY, range(5))
    timed(tmp_path, "after", scaled(0.9), range(10, 15))
    status, out, _ = go()
    assert status == 1 and "Regression beyond 5 %: -10.0" in out
    assert "at different times" in out and "`ab` runs both sides" in out
    for path in (tmp_path / "after").iterdir():
        path.unlink()
    timed(tmp_path, "after", scaled(0.9), [0, 2, 4, 6, 8])
    assert "sittings" not in go()[1] and go()[0] == 1
    assert "sittings" not in go("--paired")[1]


def test_drift_that_is_seen_within_a_sitting_widens_the_interval(go, tmp_path):
    falling = [1000.0 * 0.985**k for k in range(8)]
    timed(tmp_path, "before", falling, range(8))
    timed(tmp_path, "after", [0.9 * rate for rate in falling], range(10, 18))
    status, out, _ = go()
    assert status == 2 and out.count("±: ") == 1 and "REGRESSION" not in out
    assert "Change and p:" in out and out.count("drift of the runs") == 1
    for side in ("before", "after"):  # the same rates in an order that shows no drift
        for path in (tmp_path / side).iterdir():
            path.unlink()
    shuffled = [falling[i] for i in (3, 6, 0, 5, 2, 7, 1, 4)]
    timed(tmp_path, "before", shuffled, range(8))
    timed(tmp_path, "after", [0.9 * rate for rate in shuffled], range(10, 18))
    status, out, _ = go()
    assert status == 1 and out.count("±: ") == 1


def test_the_same_runs_on_both_sides_tell_nothing(go, tmp_path):
    timed(tmp_path, "before", STEADY, range(5))
    timed(tmp_path, "after", STEADY, range(5))
    status, out, _ = go()
    assert status == 2 and "runs on both sides (5)" in out


def test_two_single_records(go, tmp_path):
    sides(tmp_path, [1000.0], [980.0])
    assert go(paths=("before/run.json", "after/run.json"))[0] == 2
    assert go(paths=("before/run.json", "before/run.json"))[2].startswith(
        "error: before/run.json and"
    )


# Drift of the machine that both runs of a pair have: unpaired it hides the change, paired it cancels.
DRIFT = [1000.0, 1100.0, 900.0, 1200.0, 1050.0]


def test_pairs_cancel_drift(go, tmp_path):
    noise = [1.001, 0.999, 1.0, 1.002, 0.998]
    sides(tmp_path, DRIFT, [0.93 * rate * each for rate, each in zip(DRIFT, noise)])
    assert go()[0] == 2
    status, out, _ = go("--paired")
    assert status == 1 and "Student's t test" in out


def test_pairs_are_told_by_the_numbers_in_their_names(go, tmp_path):
    sides(tmp_path, DRIFT, [0.93 * rate for rate in DRIFT])
    (tmp_path / "before" / "run.json").unlink()
    (tmp_path / "after" / "run.r3.json").unlink()
    status, out, _ = go("--paired")
    assert status == 1 and " 3+3 " in out and "-7.0 %" in out
    assert "2 runs without" in out and "left out" in out
    record.write(run(1000.0), tmp_path / "before" / "again.r2.json")
    status, out, _ = go("--paired")
    assert status == 2 and "several files are repeat 2" in out


def test_failed_runs_are_told_and_not_compared(go, tmp_path):
    sides(tmp_path, STEADY, scaled(1.0))
    record.write(run(status="failed"), tmp_path / "after" / "run.r2.json")
    status, out, _ = go()
    assert (
        status == 0
        and "1 of 5 runs after failed" in out
        and "run.r2.json: ResourceExhaustedError" in out
    )
    for path in (tmp_path / "after").glob("*.json"):
        record.write(run(status="failed"), path)
    status, out, _ = go()
    assert status == 2 and "Cannot judge: none of 5" in out


def test_interrupted_runs_measured_something_else(go, tmp_path):
    sides(tmp_path, STEADY, scaled(1.0))
    held = dataclasses.replace(
        run(500.0), status="interrupted", error={"type": "Interrupted", "message": ""}
    )
    record.write(held, tmp_path / "after" / "run.r9.json")
    status, out, _ = go()
    assert (
        status == 0
        and " 5+5 " in out
        and "1 of 6 runs after" in out
        and "run.r9.json: Interrupted" in out
    )


def test_weak_and_strong_runs_are_not_matched_by_a_change_that_only_one_has(
    go, tmp_path
):
    for side, size in (("before", 32), ("after", 64)):
        write(tmp_path / side, STEADY, "weak", batch_size=size)
        write(tmp_path / side, STEADY, "strong", global_batch_size=64)
    status, out, _ = go()
    assert status == 2 and "changed: no option" in out
    assert "Cannot judge: missing configurations" in out


def test_configurations_that_are_missing_after_are_not_passed_over(go, tmp_path):
    sides(tmp_path, STEADY, scaled(1.0))
    write(tmp_path / "before", STEADY, "two", seed=2)
    status, out, _ = go()
    assert (
        status == 2
        and "Cannot judge: missing configurations" in out
        and "seed=2" in out
    )
    assert go("--force_incomparable=missing_configurations")[0] == 0
    write(tmp_path / "after", STEADY, "two", seed=2)
    write(tmp_path / "after", STEADY, "three", seed=3)
    status, out, _ = go()
    assert status == 0 and "only after" in out and "seed=3" in out


def test_nothing_in_common(go, tmp_path):
    for seed in (1, 2):
        write(tmp_path / "before", [1000.0], f"a{seed}", seed=seed)
    write(tmp_path / "after", [1000.0], "b", seed=3)
    status, out, err = go()
    assert (status, out) == (2, "")
    assert (
        err.startswith("error: no configuration is in")
        and "before has cudnn_lstm" in err
    )


def test_speedup_is_relative_to_each_sides_own_single_device(go, tmp_path):
    for side, one, two in (("before", 1.0, 1.9), ("after", 0.5, 0.75)):
        write(tmp_path / side, [one * r for r in STEADY], "n1")
        write(
            tmp_path / side,
            [two * r for r in reversed(STEADY)],
            "n2",
            num_devices=2,
            resolved=threads(2),
        )
    status, out, _ = go("--metric=speedup")
    assert (
        status == 1
        and "Regression beyond 5 %: -21.1" in out
        and "independent, 2 devices" in out
        and "1.900 ± " in out
    )
    paired = go("--metric=efficiency", "--paired")
    assert (
        paired[0] == 1
        and "efficiency before, %" in paired[1]
        and "95.0 ± " in paired[1]
        and "Regression beyond 5 %: -21.1" in paired[1]
    )
    for path in (tmp_path / "after").glob("n1*"):
        path.unlink()
    status, out, _ = go("--metric=speedup", "--force_incomparable")
    assert status == 2 and "good run on one device" in out
    for path in [*(tmp_path / "before").glob("n2*"), *(tmp_path / "after").glob("n2*")]:
        path.unlink()


def test_efficiency_counts_another_number_of_devices(go, tmp_path):
    for side, n, rate in (("before", 2, 2.0), ("after", 4, 3.0)):
        write(tmp_path / side, STEADY, "n1")
        write(
            tmp_path / side,
            [rate * r for r in STEADY],
            f"n{n}",
            num_devices=n,
            resolved=threads(n),
        )
    sides = [matching.read(tmp_path / side) for side in ("before", "after")]
    names = {**sides[0].names, **sides[1].names}
    scaled = [rows.build_rows(side.records)[1] for side in sides]
    configuration = matching.Configuration("2 to 4", *scaled, names)
    assert verdicts.measure(
        configuration, SPEEDUP, False
    ).comparison.ratio.value == pytest.approx(1.5)
    for paired in (False, True):
        assert verdicts.measure(
            configuration, EFFICIENCY, paired
        ).comparison.ratio.value == pytest.approx(0.75)


def test_runs_of_different_units_are_never_compared(go, tmp_path):
    write(tmp_path / "before", STEADY)
    write(tmp_path / "after", STEADY, model="lm", unit="tokens")
    status, out, _ = go("--force_incomparable")
    assert status == 2 and "before counts words" in out


def test_one_small_p_among_many_is_no_regression(go, tmp_path):
    """Alone it would be one, for a limit of 0: -6 % at p = 0.03."""
    slow = [0.94 * r for r in (1000.0, 1060.0, 945.0, 1020.0, 975.0)]
    sides(tmp_path, STEADY, slow)
    assert go("--max_regression=0%")[0] == 1
    for seed in range(2, 12):
        for side in ("before", "after"):
            write(tmp_path / side, STEADY, f"s{seed}", seed=seed)
    status, out, _ = go("--max_regression=0%")
    assert (
        status == 2
        and "REGRESSION" not in out
        and "11 configurations are tested" in out
    )


@pytest.mark.parametrize(
    "words,line",
    [
        (["--metric=loss"], f"--metric=loss must be one of {', '.join(CHOICES)}"),
        (["--format=pdf"], "--format=pdf must be one of text, markdown, json"),
        (["--paired=maybe"], "--paired=maybe must be true or false"),
        (
            ["--max_regression=5"],
            "--max_regression=5 must be a share from 0 to below 1, written as 5% or 0.05",
        ),
        (["third"], "expected BEFORE AFTER, got before after third; --help explains"),
        (
            ["--metric=speedup"],
            "no configuration with several devices is on both sides; --metric=speedup of one device is 1",
        ),
    ],
)
def test_wrong_use_is_one_line(words, line, go, tmp_path):
    sides(tmp_path, STEADY, STEADY)
    assert go(*words) == (2, "", f"error: {line}\n")


def test_folders_without_runs(go, tmp_path):
    write(tmp_path / "outer" / "inner", [1.0])
    (tmp_path / "empty").mkdir()
    status, _, err = go(paths=("outer", "empty"))
    assert status == 2
    outer, empty = err.splitlines()
    assert outer.startswith("error: outer: no run records ") and "outer/inner" in outer
    assert empty.startswith("error: empty: no run records ") and "outer" not in empty
    (tmp_path / "empty" / "cut.json").write_text("{")
    cut = "error: empty: no run records (*.json) in this folder that can be read (empty/cut.json: "
    assert cut in go(paths=("outer", "empty"))[2]
    assert go(paths=("nowhere", "empty"))[2].startswith("error: nowhere: No such file")


def test_bad_records_are_named_and_the_good_compared(go, tmp_path):
    sides(tmp_path, STEADY, scaled(1.0))
    good = (tmp_path / "after" / "run.json").read_text()
    (tmp_path / "after" / "cut.json").write_text(good[:200])
    (tmp_path / "after" / "newer.json").write_text(good.replace("run/1", "run/2"))
    negative = json.loads(good)
    negative["batches"]["seconds"][3] = -1
    (tmp_path / "after" / "negative.json").write_text(json.dumps(negative))
    status, out, err = go()
    assert status == 0 and "after after (5 runs)" in out
    assert [line.split(":")[1] for line in err.splitlines()] == [
        f" after/{n}.json" for n in ("cut", "negative", "newer")
    ]
    assert all(
        line.startswith("warning: ") and line.endswith("; left out")
        for line in err.splitlines()
    )
    assert go(paths=("before", "after/negative.json"))[2].count("\n") == 1
