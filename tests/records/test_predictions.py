"""Stored predictions are written once; edits, newer files and crashes lose none."""

import dataclasses
import json

import pytest

from rnn_scaling.records import predictions
from rnn_scaling.records.predictions import Fitted, KeptPrediction, Predicted

PREDICTION = KeptPrediction(
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


def test_a_written_prediction_is_read(tmp_path):
    predictions.write(PREDICTION, tmp_path)
    assert predictions.read(tmp_path) == ([PREDICTION], [])
    assert predictions.read(tmp_path / "none") == ([], [])


def test_an_equal_prediction_at_another_time_is_not_written(tmp_path):
    predictions.write(PREDICTION, tmp_path)
    predictions.write(
        dataclasses.replace(PREDICTION, date="2027-01-01T00:00:00Z", version="2"),
        tmp_path,
    )
    predictions.write(dataclasses.replace(PREDICTION, predicted=()), tmp_path)
    assert predictions.read(tmp_path) == ([PREDICTION], [])
    for k in range(5):
        predictions.write(
            dataclasses.replace(PREDICTION, date=f"200{9 - k}", name=f"series {k}"),
            tmp_path,
        )
    names = [prediction.name for prediction in predictions.read(tmp_path)[0]]
    assert names == ["series 4", "series 3", "series 2", "series 1", "series 0", "a"]


def edit_json(text, **changes):
    return json.dumps({**json.loads(text), **changes})


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],  # as on a full disk
        lambda text: "[]",
        lambda text: text.replace("350", "360"),
        lambda text: edit_json(text, schema="rnn_scaling.prediction/2"),
        lambda text: edit_json(text, fitted=None),
    ],
)
def test_a_bad_file_is_one_line_and_hides_no_other(tmp_path, change):
    predictions.write(PREDICTION, tmp_path)
    [path] = (tmp_path / predictions.FOLDER).iterdir()
    path.with_name("broken.json").write_text(change(path.read_text()))
    stored, [line] = predictions.read(tmp_path)
    assert stored == [PREDICTION] and "broken.json: " in line and "\n" not in line


def test_rates_identify_runs_despite_their_order_and_last_digits():
    again = dataclasses.replace(
        PREDICTION.fitted[0], rates=(101.0, 100.0 * (1 + 1e-14))
    )
    assert again.keys == PREDICTION.fitted[0].keys
    assert Fitted(devices=3, rates=(100.0,)).keys.isdisjoint(PREDICTION.runs)


def test_the_machines_of_an_older_file_are_read_from_its_statement(tmp_path):
    statement = {"kind": "predict-machines", "values": {"machines": 2}}
    older = dataclasses.replace(PREDICTION, statements=(statement,))
    predictions.write(older, tmp_path)
    predictions.write(dataclasses.replace(PREDICTION, machines=3), tmp_path)
    stored, _ = predictions.read(tmp_path)
    assert {prediction.machines for prediction in stored} == {2, 3}
