"""predict: from folders and tables to predictions that are kept, judged and summed up; refusals in one line."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest

import rnn_scaling
from rnn_scaling.commands import audit, history, predict, report
from rnn_scaling.records import predictions
from rnn_scaling.records.predictions import Fitted
from tests.support.paths import ROOT
from tests.support.scaling_runs import timed, write_folder

TABLE = "# Speed\n\n| GPUs | Batch size | words/s |\n|--|--|--|\n| 1 | 384 | 42953 |\n| 2 | 384 | 80945 |\n"
FOUR = "| 4 | 384 | 145385 |\n"


def runs(*devices, rate=1000.0, **config):
    return [
        timed(n, rate * n * 0.97 ** (n - 1), k, **config)
        for n in devices
        for k in range(3)
    ]


@pytest.fixture
def go(tmp_path, monkeypatch, capsys):
    """Runs the command in tmp_path; returns exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words, command=predict):
        status = command.main([*words])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


def as_json(go, *words):
    status, out, err = go(*words, "--format=json")
    assert (status, err) == (0, ""), err
    return json.loads(out)


def as_json_with_warnings(go, *words):
    status, out, _ = go(*words, "--format=json")
    assert status == 0
    return json.loads(out)


def kinds(content):
    return [statement["kind"] for statement in content["track_record"]]


def test_a_table_is_predicted(go, tmp_path):
    (tmp_path / "t.md").write_text(TABLE + FOUR)
    status, out, err = go("t.md", "--num_devices=8,16")
    assert (
        (status, err) == (0, "")
        and "16 devices would" in out
        and os.listdir(tmp_path) == ["t.md"]
    )
    content = as_json(go, "t.md", "--num_devices=8", "--output=out")
    [series] = content["series"]
    assert content == json.loads((tmp_path / "out" / "prediction.json").read_text())
    assert (series["unit"], series["scaling"], series["source"]) == (
        "words",
        "weak",
        "t.md:5",
    )
    assert [point["value"] for point in series["measured"]] == [42953, 80945, 145385]
    [point] = series["predicted"]
    assert point["low"] < point["rate"] < point["high"] and sum(
        point["parts"].values()
    ) == pytest.approx(1 - point["efficiency"])
    assert {*os.listdir(tmp_path / "out")} == {
        "prediction.json",
        "prediction.html",
        "prediction.png",
    }


def test_without_a_number_of_devices_multiples_of_the_largest_are_predicted(
    go, tmp_path
):
    (tmp_path / "t.md").write_text(TABLE)
    [series] = as_json(go, "t.md")["series"]
    assert [point["devices"] for point in series["predicted"]] == [4, 8, 16]


@pytest.mark.parametrize(
    "header, rows, expected",
    [
        (
            "GPUs | images/sec",
            "1|100 2|190",
            ("images", "weak", [100, 190], ["predict-constant-work"]),
        ),
        (
            "GPUs | speedup",
            "1|1.0 2|1.9",
            ("x", "weak", [1, 1.9], ["predict-constant-work"]),
        ),
        (
            "GPUs | total time (s)",
            "1|100 2|50",
            ("steps", "strong", [0.01, 0.02], ["predict-strong-seconds"]),
        ),
        (
            "GPUs | epoch (s)",
            "1|100 2|98",
            ("steps", "strong", [0.01, 1 / 98], ["predict-strong-seconds"]),
        ),
        (
            "GPUs | step (ms)",
            "1|200 2|250",
            ("steps", "weak", [5, 8], ["predict-weak-seconds"]),
        ),
        (
            "GPUs | time per step (s)",
            "1|2.0 2|2.5",
            ("steps", "weak", [0.5, 0.8], ["predict-weak-seconds"]),
        ),
        (
            "GPUs | batch | epoch (s)",
            "1|64|100 2|64|50",
            ("steps", "weak", [0.01, 0.02], ["predict-strong-seconds"]),
        ),
        (
            "GPUs | global batch size | images/s",
            "1|64|100 2|64|190",
            ("images", "strong", [100, 190], []),
        ),
        (
            "GPUs | batch size | images/s",
            "1|64|100 2|128|190",
            ("images", "weak", [100, 190], []),
        ),
        (
            "GPUs | First batch (s) | Total (s)",
            *(
                "1|1.38|100 2|2.21|50",
                ("steps", "strong", [0.01, 0.02], ["predict-strong-seconds"]),
            ),
        ),
    ],
)
def test_what_a_table_means_is_said(go, tmp_path, header, rows, expected):
    lines = [header, "|".join("-" for _ in header.split("|")), *rows.split()]
    (tmp_path / "t.md").write_text("\n".join(f"| {line} |" for line in lines))
    [series] = as_json(go, "t.md", "--num_devices=4")["series"]
    assumed = [s["kind"] for s in series["statements"]]
    assert (series["unit"], series["scaling"]) == expected[:2]
    assert [point["value"] for point in series["measured"]] == pytest.approx(
        expected[2]
    )
    assert [kind for kind in assumed if kind.endswith(("seconds", "work"))] == expected[
        3
    ]


def test_each_column_has_its_own_unit_and_digits(go, tmp_path):
    (tmp_path / "t.md").write_text(
        "|GPUs|a images/s|b tokens/s|\n|-|-|-|\n|1|100.00|1|\n|2|190.00|2|\n|4|350.00|4|\n"
    )
    first, second = as_json(go, "t.md", "--num_devices=8")["series"]
    assert (first["unit"], second["unit"]) == ("images", "tokens")
    widths = [
        s["predicted"][0]["high"] / s["predicted"][0]["low"] for s in (first, second)
    ]
    assert widths[1] > widths[0], "it has one digit"


def test_small_rates_keep_their_digits(go, tmp_path):
    (tmp_path / "t.md").write_text(
        "| GPUs | total time (s) |\n|--|--|\n| 1 | 1000 |\n| 2 | 600 |\n"
    )
    assert "| 0.0010 |" in " ".join(go("t.md", "--num_devices=4")[1].split())


def test_a_folder_is_predicted_kept_once_and_judged_later(go, tmp_path):
    mine = write_folder(tmp_path / "mine", runs(1, 2))
    content = as_json(go, "mine", "--num_devices=4,8")
    assert [point["devices"] for point in content["series"][0]["predicted"]] == [4, 8]
    as_json(go, "mine", "--num_devices=4,8")
    [kept], left_out = predictions.read(mine)
    assert not left_out and [len(fitted.rates) for fitted in kept.fitted] == [3, 3]
    assert kinds(as_json(go, "--track_record", ".")) == ["track-record-none"]
    write_folder(mine, runs(1, 2, 4))
    content = as_json(go, "mine", "--num_devices=8")
    assert kinds(content) == ["track-record", "predict-hit"]
    assert content["track_record"][0]["values"]["cases"] == 1
    status, out, _ = go("mine", "--output=page", command=report)
    assert status == 0 and "Hit: " in out
    assert "predict-hit" in (tmp_path / "page" / "report.json").read_text()
    assert go("--track_record", "mine")[0] == 0


def test_an_outlier_is_a_miss_and_copies_count_once(go, tmp_path):
    write_folder(tmp_path / "mine", runs(1, 2))
    as_json(go, "mine", "--num_devices=4")
    write_folder(tmp_path / "mine", [*runs(1, 2), *runs(4, rate=200.0)])
    assert kinds(as_json(go, "mine", "--num_devices=4")) == [
        "track-record",
        "predict-miss",
    ]
    (tmp_path / "mine").rename(tmp_path / "results")
    subprocess.run(
        ["cp", "-r", tmp_path / "results", tmp_path / "results_copy"], check=True
    )
    assert (
        as_json(go, "--track_record", "results", "results_copy")["track_record"][0][
            "values"
        ]["cases"]
        == 1
    )
    assert as_json(go, "--track_record")["track_record"][0]["values"]["held"] == 0, (
        "below results"
    )


def test_other_commands_pass_over_predictions(go, tmp_path):
    write_folder(tmp_path / "mine", runs(1, 2))
    before = go("mine", command=audit)
    as_json(go, "mine", "--num_devices=4")
    assert go("mine", command=audit) == before
    assert not rnn_scaling.load(tmp_path / "mine").left_out
    assert go("import", "mine", command=history)[::2] == (0, "")


@pytest.mark.parametrize(
    "words, part",
    [
        ([], "one folder"),
        (["mine", "mine", "--num_devices=4"], "one folder"),
        (["none", "--num_devices=4"], "none"),
        (["mine", "--num_devices=0"], "--num_devices=0"),
        (["mine", "--num_devices=4,x"], "--num_devices=4,x"),
        (["mine", "--num_devices=4", "--latency_us=5"], "--link_gbit"),
        (["mine", "--num_devices=4", "--links=none"], "--links=none"),
        (["mine", "--num_devices=4", "--link_gbit=10"], "--link_gbit"),
        (["mine", "--num_devices=4", "--series=none"], "--series=none"),
        (["one", "--num_devices=4"], "--num_devices=1 is measured"),
        (["two", "--num_devices=1"], "--num_devices=1"),
        (["mixed", "--num_devices=4"], "batch sizes"),
        (["empty", "--num_devices=4"], "empty"),
        (["t.md", "--num_devices=4", "--link_gbit=10"], "--link_gbit"),
        (["mixed.md", "--num_devices=4"], "scaling"),
        (["nothing.md", "--num_devices=4"], "nothing.md"),
        (["--track_record", "none"], "none"),
    ],
)
def test_what_cannot_be_predicted_is_one_line_each(go, tmp_path, words, part):
    write_folder(tmp_path / "mine", runs(1, 2, variable_update="replicated"))
    write_folder(tmp_path / "one", runs(1))
    write_folder(tmp_path / "two", runs(2, 4))
    write_folder(
        tmp_path / "mixed", [timed(1, 100, batch_size=64), timed(2, 150, batch_size=16)]
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.md").write_text(TABLE)
    (tmp_path / "mixed.md").write_text(TABLE.replace("2 | 384", "2 | 500"))
    (tmp_path / "nothing.md").write_text("no table")
    status, out, err = go(*words)
    assert (status, out) == (2, "") and part in err
    assert (
        all(line.startswith("error: ") for line in err.splitlines())
        and len(err.splitlines()) <= 2
    )


def test_series_that_cannot_be_predicted_are_warnings_next_to_others(go, tmp_path):
    write_folder(
        tmp_path / "mine", [*runs(1, 2), *runs(1, variable_update="replicated")]
    )
    status, out, err = go("mine", "--num_devices=4")
    assert status == 0 and "4 devices would" in out
    assert err.startswith("warning: ") and err.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_a_warning(go, tmp_path):
    mine = write_folder(tmp_path / "mine", runs(1, 2))
    (mine / predictions.FOLDER).write_text("in the way")
    status, out, err = go("mine", "--num_devices=4")
    assert (
        status == 0
        and "4 devices would" in out
        and err.count("\n") == 1
        and "not kept" in err
    )


def test_a_broken_prediction_is_named_and_hides_nothing(go, tmp_path):
    mine = write_folder(tmp_path / "mine", runs(1, 2))
    as_json(go, "mine", "--num_devices=4")
    (mine / predictions.FOLDER / "broken.json").write_text("{")
    status, out, err = go("mine", "--num_devices=8")
    assert status == 0 and err.count("\n") == 1 and "broken.json" in err
    assert len(predictions.read(mine)[0]) == 2


@pytest.mark.parametrize("fitted", [(), (Fitted(devices=1, rates=()),)])
def test_a_prediction_without_runs_is_left_out_by_every_reader(go, tmp_path, fitted):
    mine = write_folder(tmp_path / "mine", runs(1, 2))
    as_json(go, "mine", "--num_devices=4")
    [kept], _ = predictions.read(mine)
    forged = dataclasses.replace(kept, name="forged", fitted=fitted)
    predictions.keep(forged, mine)
    write_folder(mine, runs(1, 2, 4))
    for words, command in (
        (("mine",), report),
        (("mine", "--num_devices=8"), predict),
        (("--track_record", "mine"), predict),
    ):
        status, _, err = go(*words, command=command)
        assert status == 0
        assert "fitted" in err
    content = as_json_with_warnings(go, "--track_record", "mine")
    assert kinds(content) == ["track-record", "predict-hit"]


def test_writers_at_once_leave_one_file(tmp_path):
    mine = write_folder(tmp_path / "mine", runs(1, 2))
    words = [
        sys.executable,
        "-m",
        "rnn_scaling",
        "predict",
        str(mine),
        "--num_devices=4",
    ]
    started = [
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0]
    assert (
        len(predictions.read(mine)[0]) == 1
        and len(os.listdir(mine / predictions.FOLDER)) == 1
    )
