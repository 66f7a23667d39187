"""Test programs that divide one batch among their devices."""

import itertools

import pytest

from rnn_scaling.analysis import rows
from rnn_scaling.analysis.rows import find_fixed_totals
from rnn_scaling.records import folder
from rnn_scaling.reports import cautions
from rnn_scaling.reports.summary import summarise
from tests.test_recorder import record_run

DEVICES = (1, 2, 4)


def totals(*sizes):
    return find_fixed_totals([("group", size) for size in sizes])


@pytest.mark.parametrize("batches", [(64,), (64, 128), (60, 90, 120)])
def test_strong_and_weak_grids_are_recognised(batches):
    strong = list(itertools.product(DEVICES, batches))
    assert totals(*strong) == [total for _, total in strong]
    weak = [(devices, batch * devices) for devices, batch in strong]
    assert totals(*weak) == [None] * len(weak)


@pytest.mark.parametrize("sizes", [[(1, 64), (1, 128)], [(1, 64), (2, 96)]])
def test_sizes_without_a_common_total_stay_weak(sizes):
    assert totals(*sizes) == [None] * len(sizes)


@pytest.mark.usefixtures("quiet_machine")
def test_a_total_that_does_not_divide_is_one_series(tmp_path):
    """Record 65 samples like a Keras callback, sometimes as samples per device."""
    sizes = {1: {"batch_size": 65}, 2: {"global_batch_size": 65}, 5: {"batch_size": 13}}
    for devices, repeat in itertools.product(sizes, "ab"):
        path = tmp_path / f"{devices}{repeat}.json"
        step_s = 0.5 if repeat == "a" else 0.505
        record_run(path, devices, step_s=step_s, **sizes[devices])
    summary = summarise(folder.read(tmp_path), "mine")
    [series] = summary.series
    assert series.is_strong_scaling
    table = list(series.rows)
    assert [len(row.records) for row in table] == [2, 2, 2]
    speedups = [row.metric(rows.METRICS["speedup"]).value for row in table]
    assert speedups == pytest.approx([1.0, 2.0, 5.0])
    assert {(row.batch_size, row.global_batch_size) for row in table} == {(None, 65)}
    assert not cautions.find_hand_made_strong_scaling(summary)
    assert not series.losses[series.rows[1]].missing
