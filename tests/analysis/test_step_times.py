"""The change of step times: found where it is, within the noise where there is none, the same every time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rnn_scaling.analysis.comparison import step_times
from rnn_scaling.commands import compare
from rnn_scaling.records import record
from rnn_scaling.reports import comparison_statements
from tests.support.compared import run
from tests.support.records import changed, throughput


def sides(random, processes, batches, spread=0.02, factors=(1.0, 1.0)):
    """Seconds of processes that differ by `spread`, with 1 % of steps three times as long."""
    made = []
    for factor in factors:
        slow = 3 ** (random.random((processes, batches)) < 0.01)
        seconds = factor * np.exp(
            spread * random.normal(size=(processes, 1))
            + 0.05 * random.normal(size=slow.shape)
        )
        made.append([*(seconds * slow)])
    return made


@pytest.mark.parametrize("paired", [False, True])
def test_intervals_contain_the_true_change(paired):
    random, inside, total = np.random.default_rng(1), np.zeros(3), 100
    for _ in range(total):
        found = step_times.changes(
            sides(random, 3, 100, factors=(1.0, 1.2)), paired, False
        )
        inside += [
            change.ratio.ends[0] <= 1.2 <= change.ratio.ends[1] for change in found
        ]
    assert (
        inside >= 88
    ).all()  # 95 expected; percentiles of a plain bootstrap contain it in 80 of 100


def test_without_batches_there_is_no_percentile_and_one_process_has_no_interval():
    random = np.random.default_rng(2)
    found = step_times.changes(sides(random, 3, 30), False, False)
    assert [change.ratio is None for change in found] == [False, False, True]
    (before, after) = sides(random, 1, 30)
    assert all(
        change.ratio.ends is None
        for change in step_times.changes([before, after], False, False)[:2]
    )
    assert step_times.changes([before, [np.array([])]], False, False) == ()


@pytest.mark.parametrize("batches", [50, 20_000])
def test_the_interval_is_at_least_that_of_the_batches(batches):
    """Three processes with the same batches have no scatter, and yet their percentiles are not exact."""
    random = np.random.default_rng(3)
    ((process,), _) = sides(random, 1, batches, 0.0)
    change = step_times.changes([[process] * 3, [process] * 3], False, False)[0]
    median = (
        0.05 * (np.pi / 2 / batches) ** 0.5
    )  # the standard error of a median of normal numbers
    assert change.ratio.value == 1 and change.ratio.standard_error == pytest.approx(
        median * (2 / 3) ** 0.5, rel=0.25
    )


def write_sides(tmp_path, tail, processes=5):
    """Sides whose means are the same, though 3 % of the steps after are `tail` times as long."""
    random = np.random.default_rng(4)
    for side, longer in (("before", 1.0), ("after", tail)):
        for number in range(1, processes + 1):
            seconds = 0.1 * np.exp(
                0.02 * random.normal(size=200) + 0.02 * random.normal()
            )
            seconds[random.permutation(200)[:6]] *= longer
            seconds *= (1 / seconds.mean() * 0.1) * (1 + 0.01 * random.normal())
            made = run(batches=200)
            batches = {
                "warmup": 1,
                "measured": 200,
                "seconds": [9.0, *seconds.tolist()],
                "items": [100] * 201,
            }
            made = changed(made, batches=batches, throughput=throughput(batches))
            record.write(made, tmp_path / side / f"run.r{number}.json")


@pytest.mark.parametrize("words", [[], ["--paired"]])
def test_a_longer_tail_is_stated_where_the_mean_is_the_same(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_sides(tmp_path, 2.0)
    outputs = []
    for _ in range(2):
        status = compare.main(["before", "after", "--format=json", *words])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1], "seeded"
    report = json.loads(outputs[0])
    (statement,) = [
        each
        for each in report["statements"]
        if each["kind"].startswith("step-time-grew")
    ]
    values = statement["values"]
    assert status == 0 and report["results"][0]["verdict"] == "no difference seen"
    assert (
        values["percentile"] == 99
        and 50 < values["low"] < values["change"] < values["high"] < 150
    )
    assert compare.main(["before", "after", *words]) == 0
    text = capsys.readouterr().out
    assert (
        f"grew by {values['change']:.1f} %" in text
        and "| +" in text.split("Change of the step time")[1]
    )
    assert compare.main(["after", "before", "--format=json"]) == 0
    kinds = [each["kind"] for each in json.loads(capsys.readouterr().out)["statements"]]
    assert "step-time-shrank" in kinds and "step-time-grew" not in kinds


def test_without_a_change_nothing_is_stated(tmp_path):
    from rnn_scaling import compare as judge

    write_sides(tmp_path, 1.0)
    report = judge(tmp_path / "before", tmp_path / "after")
    assert [change.percentile for change in report.results[0].step_times] == [
        50,
        95,
        99,
    ]
    assert comparison_statements.step_time_statements(report) == []
