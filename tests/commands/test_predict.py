"""predict: from folders and tables to predictions that are kept, judged and summed up; refusals in one line."""

import dataclasses
import json
import os
import shutil

import pytest

import rnn_scaling
from rnn_scaling.commands import audit, history, predict, report
from rnn_scaling.records import predictions
from tests.support.paths import ROOT
from tests.support.records import change_record
from tests.support.scaling_runs import make_timed_run, skip_pictures, write_folder

CASES = ROOT / "tests/golden/audit/cases"
TABLE = "# Speed\n\n| GPUs | Batch size | words/s |\n|--|--|--|\n| 1 | 384 | 42953 |\n| 2 | 384 | 80945 |\n"
FOUR = "| 4 | 384 | 145385 |\n"


def runs(*devices, rate=1000.0, **config):
    return [
        make_timed_run(n, rate * n * 0.97 ** (n - 1), k, **config)
        for n in devices
        for k in range(3)
    ]


@pytest.fixture
def go(run_command, tmp_path, monkeypatch):
    """Return a function that runs the command in tmp_path."""
    monkeypatch.chdir(tmp_path)
    return lambda *words, command=predict: run_command(command, *words)


def read_json(go, *words):
    status, out, err = go(*words, "--format=json")
    assert (status, err) == (0, ""), err
    return json.loads(out)


def write_table(tmp_path, *rows):
    """Write a Markdown table of rows whose cells are separated by "|"."""
    head, *others = rows
    rule = "|".join("--" for _ in head.split("|"))
    lines = [f"| {row} |\n" for row in (head, rule, *others)]
    (tmp_path / "t.md").write_text("".join(lines))


def table_series(go, *words):
    """Return the only series of the table."""
    [series] = read_json(go, "t.md", *words)["series"]
    return series


def list_values(points):
    return [point["value"] for point in points]


def list_statements(series):
    """Kind -> values of the statements of a series."""
    return {one["kind"]: one["values"] for one in series["statements"]}


def kinds(content):
    return [statement["kind"] for statement in content["track_record"]]


def test_a_table_is_predicted(go, tmp_path):
    (tmp_path / "t.md").write_text(TABLE + FOUR)
    status, out, err = go("t.md", "--num_devices=8,16")
    assert (status, err, os.listdir(tmp_path)) == (0, "", ["t.md"])
    assert [row[2] for row in list_rows(out)[2:5]] == ["42,953", "80,945", "145,385"]
    content = read_json(go, "t.md", "--num_devices=8", "--output=out")
    assert content == json.loads((tmp_path / "out/prediction.json").read_text())
    [series] = content["series"]
    facts = (series["unit"], series["scaling"], series["source"])
    assert facts == ("words", "weak", "t.md:5")
    assert list_values(series["measured"]) == [42953, 80945, 145385]
    [point] = series["predicted"]
    assert point["low"] < point["rate"] < point["high"]


def test_the_default_question_is_about_further_machines(go, tmp_path):
    """Two devices fill the two cores, so four devices are two such machines."""
    machine = {"resolved": {"device_type": "CPU"}, "environment": {"cpu_cores": 2}}
    write_folder(
        tmp_path / "mine", [change_record(run, **machine) for run in runs(1, 2)]
    )
    [series] = read_json(go, "mine")["series"]
    machines = {"machines": 2, "devices": 2, "measured": 1}
    assert list_statements(series)["predict-machines"] == machines
    assert "prediction-cores" not in list_statements(series)
    [here] = read_json(go, "mine", "--num_devices=4")["series"]
    assert "prediction-cores" in list_statements(here)
    rates = [one["predicted"][0]["rate"] for one in (series, here)]
    assert rates[0] > 1.5 * rates[1]


@pytest.mark.parametrize("question", ["", "--what_if"])
def test_more_than_8_times_the_measured_number_needs_a_flag(go, tmp_path, question):
    (tmp_path / "t.md").write_text(TABLE + FOUR)
    words = ["t.md", *filter(None, [question])]
    found = read_json(go, *words, "--num_devices=8,33")["series"]
    assert len(found) == 1
    assert list_statements(found[0])["prediction-left-out-far"]["devices"] == [33]
    status, out, err = go(*words, "--num_devices=33")
    assert (status, out) == (2, "")
    assert "--far" in err
    assert read_json(go, *words, "--num_devices=33", "--far")["series"]


@pytest.mark.parametrize(
    "header, rows, facts, values, assumed",
    [
        ("GPUs | speedup", "1|1.0 2|1.9", "x weak", [1, 1.9], "constant-work"),
        (
            "GPUs | total time (s)",
            "1|100 2|50",
            "steps strong",
            [0.01, 0.02],
            "strong-seconds",
        ),
        ("GPUs | step (ms)", "1|200 2|250", "steps weak", [5, 8], "weak-seconds"),
        (
            "GPUs | batch | epoch (s)",
            "1|64|100 2|64|50",
            "steps weak",
            [0.01, 0.02],
            "strong-seconds",
        ),
        (
            "GPUs | global batch size | images/s",
            "1|64|100 2|64|190",
            "images strong",
            [100, 190],
            None,
        ),
    ],
)
def test_what_a_table_means_is_said(go, tmp_path, header, rows, facts, values, assumed):
    write_table(tmp_path, header, *rows.split())
    series = table_series(go, "--num_devices=4")
    assert f"{series['unit']} {series['scaling']}" == facts
    assert list_values(series["measured"]) == pytest.approx(values)
    kinds = [
        kind for kind in list_statements(series) if kind.endswith(("seconds", "work"))
    ]
    assert kinds == ([f"predict-{assumed}"] if assumed else [])


@pytest.mark.parametrize(
    "header, unit",
    [
        ("k img/s", "k img"),
        ("Throughput (M tokens/s)", "M tokens"),
        ("tokens/s (x1000)", "x1000 tokens"),
        ("Tokens/s, thousands", "thousands tokens"),
        ("kimg/s", "kimg"),
        ("GB/s", "GB"),
        ("Images/s", "images"),
        ("speed of 2 img/s", "img"),
    ],
)
def test_a_multiple_in_the_header_stays_in_the_unit(go, tmp_path, header, unit):
    rows = (f"GPUs|{header}", "1|0.4", "2|0.8", "4|1.5")
    write_table(tmp_path, *rows)
    series = table_series(go, "--num_devices=8")
    assert series["unit"] == unit
    assert series["measured"][0]["value"] == 0.4


def list_rows(out):
    """Return the cells of the first table that is printed."""
    lines = [line for line in out.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(
    "header, cells, unit, printed",
    [
        ("training time (hours)", ("20", "11"), "h", ["20", "11"]),
        ("time", ("1:02:30", "0:32:10"), "s", ["3,750", "1,930"]),
    ],
)
def test_rows_of_times_are_recognised(go, tmp_path, header, cells, unit, printed):
    rows = [f"{n}|{cell}" for n, cell in zip((1, 2), cells)]
    write_table(tmp_path, f"GPUs|{header}", *rows)
    head, _, *rows = list_rows(go("t.md", "--num_devices=4")[1])
    assert head[2] == f"Time ({unit})"
    assert [row[2] for row in rows[:2]] == printed


def test_the_speedup_of_the_baseline_is_exact(go, tmp_path):
    """Read a printed 1 as exactly 1, not as a number between 0.5 and 1.5.

    A printed 1.00 therefore gives the same intervals.
    """
    widths = []
    for one in ("1", "1.00"):
        rows = ("GPUs|speedup", f"1|{one}", "2|1.96", "4|3.77")
        write_table(tmp_path, *rows)
        series = table_series(go, "--num_devices=8")
        [point] = series["predicted"]
        widths.append(point["high"] / point["low"])
    assert widths[0] == widths[1] < 1.6


@pytest.mark.parametrize("title", ["Nodes", "# of machines"])
def test_nodes_are_machines(go, tmp_path, title):
    text = (CASES / "two_lengths.md").read_text().replace("Nodes", title)
    (tmp_path / "t.md").write_text(text)
    assert list_rows(go("t.md", "--num_devices=32")[1])[0][0] == "Machines"
    [short, long] = read_json(go, "t.md", "--num_devices=32")["series"]
    assert list_values(short["measured"]) == [810.0, 3102.3, 12044.7]
    assert list_values(long["measured"]) == [130.0, 492.7, 1899.3]
    assert "prediction-switch-unknown" in list_statements(short)
    assert "prediction-topology-unknown" not in list_statements(short)
    assert go("t.md", "--num_devices=32", "--devices_per_machine=8")[0] == 2


def test_a_table_is_no_evidence_for_a_cause(go):
    table = str(CASES / "user_time.md")
    [series] = read_json(go, table, "--num_devices=16")["series"]
    [point] = series["predicted"]
    named = {part for part, share in point["parts"].items() if share > 1e-9}
    assert named == {"not split"}
    assert point["time"]["value"] == pytest.approx(1 / point["rate"])
    assert [one["time"] for one in series["measured"]] == [20.40, 10.51, 5.67, 3.29]
    [found] = read_json(go, table, "--what_if")["series"]
    assert {*found["parts"]} == {"compute", "not split"}


def test_superlinear_points_are_named(go, tmp_path):
    rows = ("GPUs|words/s", "1|1000", "2|2150", "4|3900")
    write_table(tmp_path, *rows)
    series = table_series(go, "--num_devices=8")
    assert list_statements(series)["prediction-superlinear"]["devices"] == [2]


def test_of_many_tables_the_first_are_answered_and_the_others_counted(go, tmp_path):
    texts = [TABLE.replace("# Speed", f"# Speed {k}") for k in range(40)]
    (tmp_path / "t.md").write_text("\n".join(texts))
    status, out, err = go("t.md", "--num_devices=4", "--format=json")
    left_out = 40 - len(json.loads(out)["series"])
    assert status == 0
    assert left_out > 0
    assert err.startswith(f"warning: left out {left_out} more series")
    series = table_series(go, "--num_devices=4", "--series=Speed 39")
    assert series["name"].startswith("Speed 39")


def test_a_folder_is_predicted_kept_once_and_judged_later(go, tmp_path):
    mine = write_folder(tmp_path / "mine", runs(1, 2))
    content = read_json(go, "mine", "--num_devices=4,8")
    assert [point["devices"] for point in content["series"][0]["predicted"]] == [4, 8]
    read_json(go, "mine", "--num_devices=4,8")
    [kept], left_out = predictions.read(mine)
    assert not left_out and [len(fitted.rates) for fitted in kept.fitted] == [3, 3]
    assert kinds(read_json(go, "--track_record", ".")) == ["track-record-none"]
    write_folder(mine, runs(1, 2, 4))
    content = read_json(go, "mine", "--num_devices=8")
    assert kinds(content) == ["track-record", "predict-hit"]
    assert content["track_record"][0]["values"]["cases"] == 1
    with skip_pictures():
        status, out, _ = go("mine", "--output=page", command=report)
    assert status == 0 and "Hit: " in out
    assert "predict-hit" in (tmp_path / "page/report.json").read_text()
    assert go("--track_record", "mine")[0] == 0


def test_an_outlier_is_a_miss_and_copies_count_once(go, tmp_path):
    write_folder(tmp_path / "mine", runs(1, 2))
    read_json(go, "mine", "--num_devices=4")
    write_folder(tmp_path / "mine", [*runs(1, 2), *runs(4, rate=200.0)])
    found = kinds(read_json(go, "mine", "--num_devices=4"))
    assert found == ["track-record", "predict-miss"]
    (tmp_path / "mine").rename(tmp_path / "results")
    shutil.copytree(tmp_path / "results", tmp_path / "results_copy")

    def track_record(*folders):
        return read_json(go, "--track_record", *folders)["track_record"][0]["values"]

    assert track_record("results", "results_copy")["cases"] == 1
    assert track_record()["held"] == 0, "below results"


def test_other_commands_pass_over_predictions(go, tmp_path):
    write_folder(tmp_path / "mine", runs(1, 2))
    before = go("mine", command=audit)
    read_json(go, "mine", "--num_devices=4")
    assert go("mine", command=audit) == before
    assert not rnn_scaling.load(tmp_path / "mine").left_out
    assert go("import", "mine", command=history)[::2] == (0, "")


@pytest.mark.parametrize(
    "words, part",
    [
        ([], "one folder"),
        (["mine", "--num_devices=0"], "--num_devices=0"),
        (["mine", "--num_devices=4", "--link_gbit=10"], "--link_gbit"),
        (["one", "--num_devices=4"], "--num_devices=1 is measured"),
        (["mixed", "--num_devices=4"], "batch sizes"),
        (["mixed.md", "--num_devices=4"], "scaling"),
        (["nothing.md", "--num_devices=4"], "nothing.md"),
    ],
)
def test_what_cannot_be_predicted_is_one_line_each(go, tmp_path, words, part):
    write_folder(tmp_path / "mine", runs(1, 2, variable_update="replicated"))
    write_folder(tmp_path / "one", runs(1))
    write_folder(
        tmp_path / "mixed",
        [make_timed_run(1, 100, batch_size=64), make_timed_run(2, 150, batch_size=16)],
    )
    (tmp_path / "mixed.md").write_text(TABLE.replace("2 | 384", "2 | 500"))
    (tmp_path / "nothing.md").write_text("no table")
    status, out, err = go(*words)
    assert (status, out) == (2, "") and part in err
    assert 1 <= err.count("error: ") == err.count("\n") <= 2


def test_series_that_cannot_be_predicted_are_warnings_next_to_others(go, tmp_path):
    write_folder(
        tmp_path / "mine", [*runs(1, 2), *runs(1, variable_update="replicated")]
    )
    status, out, err = go("mine", "--num_devices=4")
    assert status == 0 and "4 devices would" in out
    assert err.startswith("warning: ") and err.count("\n") == 1


@pytest.mark.parametrize("broken", [predictions.FOLDER, f"{predictions.FOLDER}/a.json"])
def test_what_is_in_the_way_is_a_warning(go, tmp_path, broken):
    mine = write_folder(tmp_path / "mine", runs(1, 2))
    (mine / broken).parent.mkdir(exist_ok=True)
    (mine / broken).write_text("{")
    status, out, err = go("mine", "--num_devices=4")
    assert status == 0 and out
    assert err.startswith("warning: ") and err.count("\n") == 1


def test_a_prediction_without_runs_is_left_out_by_every_reader(go, tmp_path):
    mine = write_folder(tmp_path / "mine", runs(1, 2))
    read_json(go, "mine", "--num_devices=4")
    [kept], _ = predictions.read(mine)
    forged = dataclasses.replace(kept, name="forged", fitted=())
    predictions.write(forged, mine)
    write_folder(mine, runs(1, 2, 4))
    for words, command in (
        (("mine",), report),
        (("mine", "--num_devices=8"), predict),
        (("--track_record", "mine"), predict),
    ):
        status, _, err = go(*words, command=command)
        assert status == 0
        assert "fitted" in err
    content = json.loads(go("--track_record", "mine", "--format=json")[1])
    assert kinds(content) == ["track-record", "predict-hit"]


def test_without_a_number_of_devices_as_many_again_are_predicted(go, tmp_path):
    (tmp_path / "t.md").write_text(TABLE)
    series = table_series(go)
    assert [point["devices"] for point in series["predicted"]] == [4]
