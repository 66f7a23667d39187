"""The command simulate: from a folder or given values, as text or JSON; one-line errors."""

import json
import shutil

import numpy as np
import pytest

from rnn_scaling.commands import predict
from rnn_scaling.records.own_files import is_own
from tests.support.paths import ROOT

STATED = ("--step_ms=100", "--exchange_mb=100", "--link_gbit=25", "--steps=40")


@pytest.fixture
def go(run_command, monkeypatch):
    """Return a function that runs the command."""
    monkeypatch.chdir(ROOT)
    return lambda *words, question=("--simulate",): run_command(
        predict, *question, *words
    )


def test_stated_values_give_the_curve_and_its_parts(go, tmp_path):
    causes = ("--jitter=5%", "--stragglers=10%", "--link_failures=1%")
    words = (*STATED, "--num_devices=8,64", *causes)
    status, text, err = go(*words)
    assert (status, err) == (0, "")
    assert "exchange bandwidth" in text.lower()
    status, out, _ = go(*words, "--format=json", f"--output={tmp_path}")
    content = json.loads(out)
    path = tmp_path / "simulation.json"
    assert content == json.loads(path.read_text()) and is_own(path)
    for point in content["series"][0]["predicted"]:
        lost = 1 - point["efficiency"]
        assert sum(point["parts"].values()) == pytest.approx(lost, abs=1e-6)
    assert go(*words, "--format=json")[1] == out
    assert go(*words, "--format=json", "--seed=2")[1] != out


def test_a_simulated_rate_does_not_look_like_a_forecast_with_an_interval(go):
    causes = ("--jitter=20%", "--stragglers=10%")
    links = ("--devices_per_machine=8", "--fabric_gbit=0.001")
    words = (*STATED, "--num_devices=8,64", *causes, *links)
    text = go(*words)[1]
    [series] = json.loads(go(*words, "--format=json")[1])["series"]
    assert "±" not in text and "| measured" not in text
    kinds = {statement["kind"] for statement in series["statements"]}
    assert kinds >= {"simulation-error", "predict-link-inside", "predict-link-between"}
    for point in series["predicted"]:
        assert point["low"] == point["rate"] == point["high"]
        assert f"{100 * point['parts']['exchange bandwidth']:.1f} |" in text
    assert 0 < series["predicted"][1]["efficiency"] < 5e-4
    assert " 0.0 %" not in text and " 0.0 |" not in text.partition("(%) |\n")[0]


def test_a_folder_is_calibrated_and_checked(go):
    folder = str(ROOT / "docs/results/default")
    status, text, err = go(
        folder, "--num_devices=8", "--steps=40", "--format=json", "--series=replicated"
    )
    assert status == 0 and err == ""
    for series in json.loads(text)["series"]:
        kinds = {
            statement["kind"]: statement["values"] for statement in series["statements"]
        }
        assert "simulation-fitted" in kinds
        assert abs(kinds["simulation-check"]["percent"]) < 3


def test_predict_whatif_and_simulate_agree_about_further_machines(go, tmp_path):
    rates = {1: [], 2: []}
    for path in (ROOT / "docs/results/default").glob("cudnn_lstm-independent-*.json"):
        shutil.copy(path, tmp_path)
        record = json.loads(path.read_text())
        rates[record["config"]["num_devices"]].append(
            record["throughput"]["items_per_second"]
        )
    efficiency = np.mean(rates[2]) / 2 / np.mean(rates[1])
    words = (
        str(tmp_path),
        "--num_devices=16",
        "--devices_per_machine=2",
        "--format=json",
    )
    [predicted] = json.loads(go(*words, question=())[1])["series"]
    [changed] = json.loads(go(*words, question=["--what_if"])[1])["series"]
    [simulated] = json.loads(go(*words, "--steps=40")[1])["series"]
    assert simulated["predicted"][0]["efficiency"] == pytest.approx(
        efficiency, abs=0.01
    )
    assert predicted["predicted"][0]["efficiency"] == pytest.approx(
        efficiency, abs=0.02
    )
    assert changed["changes"][0]["efficiency"]["value"] == pytest.approx(
        efficiency, abs=0.02
    )
    of_one, of_two, of_64 = (size["memory_gib"]["value"] for size in predicted["sizes"])
    assert of_one < of_two == of_64


@pytest.mark.parametrize(
    "words, culprit",
    [
        (STATED, "--num_devices"),
        (("--num_devices=8", "docs", "--step_ms=100"), "--step_ms"),
        (("--num_devices=8", "--step_ms=100"), "--exchange_mb"),
        (("--num_devices=8", "no/such/folder"), "no/such/folder"),
    ],
)
def test_what_is_wrong_is_one_line(go, words, culprit):
    status, out, err = go(*words)
    assert (status, out) == (2, "") and culprit in err and err.count("\n") == 1
