"""Titles of series say what tells them apart, and no more."""

from __future__ import annotations

from rnn_scaling.analysis import rows
from tests.analysis.test_attribution import record


def titles(*records):
    return rows.titles(rows.by_series(rows.with_baselines(list(records))))


def test_a_strong_series_has_no_batch_size_of_its_own():
    weak = [record(100, batch_size=size) for size in (32, 64)]
    strong = record(100, 2, "replicated", global_batch_size=64)
    assert titles(*weak, strong) == [
        "cudnn_lstm, independent, batch_size=32",
        "cudnn_lstm, independent, batch_size=64",
        "cudnn_lstm, replicated, strong scaling, 64 sentence pairs a step",
    ]


def test_what_a_batch_holds_is_the_workloads():
    series = [
        record(100, 2, global_batch_size=64, **option) for option in ({"model": "lm"}, {"model": "of others"}, {})
    ]
    assert [title.partition("strong scaling, ")[2] for title in titles(*series)] == [
        "64 sentences a step",
        "64 samples a step",
        "64 sentence pairs a step",
    ]


def test_an_option_that_differs_is_named():
    assert titles(record(100, num_units=8), record(100, num_units=16)) == [
        "cudnn_lstm, independent, num_units=8",
        "cudnn_lstm, independent, num_units=16",
    ]
