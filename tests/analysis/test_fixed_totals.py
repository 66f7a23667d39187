"""Programs that give all devices one batch scale strongly, though their records have the samples of one device."""

from __future__ import annotations

import itertools

import pytest

from rnn_scaling.analysis import rows
from rnn_scaling.analysis.rows import fixed_totals
from rnn_scaling.records import folder
from rnn_scaling.reports import cautions, summary_builder
from tests.test_recorder import recorded

DEVICES = (1, 2, 4)


def totals(*sizes):
    return fixed_totals([("group", size) for size in sizes])


@pytest.mark.parametrize("batches", [(64,), (64, 128), (60, 90, 120)])
def test_every_grid_is_read_as_it_was_made(batches):
    strong = list(itertools.product(DEVICES, batches))
    assert totals(*strong) == [total for _, total in strong]
    weak = [(devices, batch * devices) for devices, batch in strong]
    assert totals(*weak) == [None] * len(weak)


@pytest.mark.parametrize(
    "sizes", [[(1, 64)], [(1, 64), (1, 128)], [(1, 64), (2, 96)], []]
)
def test_sizes_without_anything_in_common_are_left_alone(sizes):
    assert totals(*sizes) == [None] * len(sizes)


def test_other_work_is_another_group():
    assert fixed_totals([("a", (1, 64)), ("b", (2, 64)), None]) == [None, None, None]


def test_repeats_and_a_total_that_does_not_divide_are_of_one_series(tmp_path):
    """As a Keras callback tells 65 samples: on one device and on five those of each, on two all."""
    sizes = {1: {"batch_size": 65}, 2: {"global_batch_size": 65}, 5: {"batch_size": 13}}
    for (devices, size), repeat in itertools.product(sizes.items(), "ab"):
        recorded(
            tmp_path / f"{devices}{repeat}.json",
            devices,
            step_s=0.5 if repeat == "a" else 0.505,
            **size,
        )
    summary = summary_builder.summarise(folder.read(tmp_path), "mine")
    (series,) = summary.series
    assert series.is_strong_scaling and [
        len(each.row.records) for each in series.rows
    ] == [
        2,
        2,
        2,
    ]
    speedups = [each.row.metric(rows.METRICS["speedup"]).value for each in series.rows]
    assert speedups == pytest.approx([1.0, 2.0, 5.0])
    assert {
        (each.row.batch_size, each.row.global_batch_size) for each in series.rows
    } == {(None, 65)}
    assert (
        not cautions.hand_made_strong_scaling(summary)
        and not series.rows[1].loss.missing
    )


def test_records_of_batches_that_grow_with_the_devices_stay_weak(tmp_path):
    for devices in DEVICES:
        recorded(tmp_path / f"{devices}.json", devices, batch_size=64)
    (series,) = summary_builder.summarise(folder.read(tmp_path), "mine").series
    assert not series.is_strong_scaling and series.rows[2].row.batch_size == 64
