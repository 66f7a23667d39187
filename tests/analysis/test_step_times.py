"""Changes of step times: true changes are in their intervals, and equal ones stay silent."""

import json

import numpy as np
import pytest

from rnn_scaling import compare as judge
from rnn_scaling.analysis.comparison.step_times import compare_percentiles
from rnn_scaling.commands import compare
from rnn_scaling.records import record
from rnn_scaling.reports import comparison_statements
from tests.support.compared import run
from tests.support.records import change_record, throughput


def processes(random, count, batches, spread=0.02, factor=1.0):
    """Return the seconds of processes, with 1 % of the steps three times as long."""
    slow = 3 ** (random.random((count, batches)) < 0.01)
    logs = spread * random.normal(size=(count, 1))
    logs = logs + 0.05 * random.normal(size=slow.shape)
    return list(factor * np.exp(logs) * slow)


@pytest.mark.parametrize("paired", [False, True])
def test_intervals_contain_the_true_change(paired):
    random = np.random.default_rng(1)
    inside = np.zeros(3)
    for _ in range(100):
        before = processes(random, 3, 100)
        after = processes(random, 3, 100, factor=1.2)
        changes = compare_percentiles(before, after, paired, False)
        ends = np.array([change.ratio.ends for change in changes])
        inside += (ends[:, 0] <= 1.2) & (ends[:, 1] >= 1.2)
    # 95 are expected; percentiles of a plain bootstrap contain it in 80 of 100.
    assert (inside >= 88).all()


def test_few_batches_give_no_percentile_and_one_process_no_interval():
    random = np.random.default_rng(2)
    sides = [processes(random, 3, 30) for _ in range(2)]
    changes = compare_percentiles(*sides, False, False)
    assert [change.ratio is None for change in changes] == [False, False, True]
    one = processes(random, 1, 30)
    for change in compare_percentiles(one, one, False, False)[:2]:
        assert change.ratio.ends is None
    assert compare_percentiles(one, [np.array([])], False, False) == ()


@pytest.mark.parametrize("batches", [50, 20_000])
def test_the_interval_is_at_least_that_of_the_batches(batches):
    """Processes with equal batches have no scatter, but their percentiles are not exact."""
    random = np.random.default_rng(3)
    side = processes(random, 1, batches, 0.0) * 3
    change = compare_percentiles(side, side, False, False)[0]
    # The standard error of a median of normal numbers.
    median_error = 0.05 * (np.pi / 2 / batches) ** 0.5
    assert change.ratio.value == 1
    assert change.ratio.standard_error == pytest.approx(
        median_error * (2 / 3) ** 0.5, rel=0.25
    )


def write_sides(tmp_path, tail):
    """Write sides with equal means; after, 3 % of the steps are `tail` times as long."""
    random = np.random.default_rng(4)
    for side, longer in (("before", 1.0), ("after", tail)):
        for number in range(1, 6):
            noise = 0.02 * random.normal(size=200) + 0.02 * random.normal()
            seconds = np.exp(noise)
            seconds[random.permutation(200)[:6]] *= longer
            seconds *= 0.1 / seconds.mean() * (1 + 0.01 * random.normal())
            batches = {
                "warmup": 1,
                "measured": 200,
                "seconds": [9.0, *seconds.tolist()],
                "items": [100] * 201,
            }
            run_record = change_record(
                run(batches=200), batches=batches, throughput=throughput(batches)
            )
            record.write(run_record, tmp_path / side / f"run.r{number}.json")


@pytest.mark.parametrize("words", [[], ["--paired"]])
def test_a_longer_tail_is_stated_if_the_mean_is_the_same(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_sides(tmp_path, 2.0)

    def step_time_statements(*sides):
        assert compare.main([*sides, "--format=json", *words]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["results"][0]["verdict"] == "no difference seen"
        return [
            statement
            for statement in report["statements"]
            if statement["kind"].startswith(("step-time-grew", "step-time-shrank"))
        ]

    found = step_time_statements("before", "after")
    assert step_time_statements("before", "after") == found
    [statement] = found
    values = statement["values"]
    assert statement["kind"].startswith("step-time-grew")
    assert values["percentile"] == 99
    assert 50 < values["low"] < values["change"] < values["high"] < 150
    assert compare.main(["before", "after", *words]) == 0
    assert f"{values['change']:.1f} %" in capsys.readouterr().out
    [statement] = step_time_statements("after", "before")
    assert statement["kind"].startswith("step-time-shrank")


def test_without_a_change_nothing_is_stated(tmp_path):
    write_sides(tmp_path, 1.0)
    report = judge(tmp_path / "before", tmp_path / "after")
    percentiles = [change.percentile for change in report.results[0].step_times]
    assert percentiles == [50, 95, 99]
    assert comparison_statements.state_step_times(report) == []
