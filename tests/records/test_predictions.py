"""Predictions that are kept: written once, read with types, and nothing lost by edits, newer files or crashes."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rnn_scaling.records import predictions
from rnn_scaling.records.predictions import Fitted, KeptPrediction, Predicted

MADE = KeptPrediction(
    date="2026-01-02T00:00:00Z",
    version="1",
    source="results/mine",
    name="a",
    unit="words",
    scaling="weak",
    fitted=(Fitted(devices=1, rates=(100.0, 101.0)), Fitted(devices=2, rates=(190.0,))),
    predicted=(
        Predicted(
            devices=4, rate=350.0, low=300.0, high=400.0, parts={"exchange": 0.1}
        ),
    ),
    models={"ring": 1.0},
    statements=({"kind": "x"},),
)


def files(folder):
    return sorted((folder / predictions.FOLDER).iterdir())


def test_what_was_written_is_read(tmp_path):
    predictions.keep(MADE, tmp_path)
    assert predictions.read(tmp_path) == ([MADE], [])
    assert predictions.read(tmp_path / "none") == ([], [])


def test_the_same_at_another_time_is_nothing_new(tmp_path):
    predictions.keep(MADE, tmp_path)
    predictions.keep(
        dataclasses.replace(MADE, date="2027-01-01T00:00:00Z", version="2"), tmp_path
    )
    predictions.keep(dataclasses.replace(MADE, predicted=()), tmp_path)
    assert predictions.read(tmp_path) == ([MADE], [])
    for k in range(5):
        predictions.keep(
            dataclasses.replace(MADE, date=f"200{9 - k}", name=f"series {k}"), tmp_path
        )
    names = [kept.name for kept in predictions.read(tmp_path)[0]]
    assert names == [*(f"series {k}" for k in reversed(range(5))), "a"], "by date"


def edited(text, **changes):
    return json.dumps({**json.loads(text), **changes})


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],  # as by a full disk
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace("350", "360"),
        lambda text: edited(text, schema="rnn_scaling.prediction/2"),
        lambda text: edited(text, fitted=None),
    ],
)
def test_a_file_that_is_none_is_one_line_and_hides_no_other(tmp_path, change):
    predictions.keep(MADE, tmp_path)
    [path] = files(tmp_path)
    path.with_name("broken.json").write_text(change(path.read_text()))
    kept, [line] = predictions.read(tmp_path)
    assert kept == [MADE] and "broken.json: " in line and "\n" not in line


def test_a_field_of_a_newer_version_is_kept(tmp_path):
    predictions.keep(dataclasses.replace(MADE, further={"new": 1}), tmp_path)
    [kept], _ = predictions.read(tmp_path)
    assert kept.further == {"new": 1}


def test_runs_are_known_by_their_rates():
    again = dataclasses.replace(MADE.fitted[0], rates=(101.0, 100.0 * (1 + 1e-14)))
    assert again.keys == MADE.fitted[0].keys, (
        "the order and the last digits say nothing"
    )
    assert Fitted(devices=3, rates=(100.0,)).keys.isdisjoint(MADE.runs)
