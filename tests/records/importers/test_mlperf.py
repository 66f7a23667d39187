"""MLPerf's logs: devices from the system's description, olympic means, runs without a score, older releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rnn_scaling.records.importers import importing
from rnn_scaling.records.importers.formats import FORMATS
from rnn_scaling.records.importers.reading import LineError, Terms
from rnn_scaling.reports import imports, mlperf_scores
from tests.support import log_samples, real_logs
from tests.support.log_samples import parse
from tests.support.paths import GOLDEN


def submission(tmp_path: Path, logs: dict[str, str]) -> list[Path]:
    place = tmp_path / "results" / "dgx1" / "gnmt"
    place.mkdir(parents=True)
    for name, text in logs.items():
        (place / name).write_text(text)
    return [place / name for name in logs]


def test_mlperfs_devices_come_from_the_systems_description(tmp_path):
    (path,) = submission(tmp_path, {"result_0.txt": real_logs.GNMT_MLPERF})
    system = tmp_path / "systems" / "dgx1.json"

    def devices(*paths):
        logs, errors = importing.read_files(paths, Terms())
        assert not errors
        log = next(log for log in logs if log.format == "mlperf")
        return (
            log.runs[0].options.get("num_devices"),
            log.tables[0].column("Accelerators")[0],
            log.notes[-1],
        )

    assert devices(path)[:2] == (None, None) and "systems/NAME.json" in devices(path)[2]
    system.parent.mkdir()
    system.write_text(real_logs.MLPERF_SYSTEM)
    assert devices(path)[:2] == (8, 8) and devices(path)[2].endswith(
        f"8 accelerators, as {system} says."
    )
    elsewhere = system.rename(tmp_path / "any.json")
    # The description's file name differs from the system in the log's path.
    assert devices(path, elsewhere)[:2] == (None, None)
    free = tmp_path / "any.log"
    free.write_text(real_logs.GNMT_MLPERF)
    assert devices(free, elsewhere)[:2] == (8, 8)
    other = tmp_path / "dgx1.json"
    other.write_text(real_logs.MLPERF_SYSTEM.replace('"8"', '"4"'))
    # The log's path selects one of two descriptions.
    assert devices(path, elsewhere, other)[:2] == (4, 4)
    system.write_text(real_logs.MLPERF_SYSTEM)
    assert devices(path, other)[:2] == (8, 8)  # the one at its own place comes first


def test_a_log_without_a_platform_has_that_of_its_system(tmp_path):
    lines = real_logs.GNMT_MLPERF.splitlines(keepends=True)
    text = "".join(line for line in lines if "submission_platform" not in line)
    path = tmp_path / "any.log"
    path.write_text(text)
    system = tmp_path / "any.json"
    system.write_text(real_logs.MLPERF_SYSTEM)
    logs, _ = importing.read_files([path, system], Terms())
    (log,) = (log for log in logs if log.format == "mlperf")
    assert log.runs[0].options["machine"] == "dgx1_ngc20.06_pytorch"


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", '{"number_of_nodes": "2", "accelerators_per_node": "0"}', '{"a": '],
)
def test_a_description_without_accelerators_is_an_error(text):
    with pytest.raises(LineError):
        parse("mlperf_system", text)


@pytest.mark.parametrize(
    ("times", "without", "mean"),
    [
        ([100, 110, 120, 130, 900], 0, 120),
        ([100, 110, 120, 130], 1, 120),  # the run without a score is the slowest
        ([100, 110, 120], 2, None),
    ],
)
def test_olympic_mean(times, without, mean):
    assert mlperf_scores.olympic_mean(times, without) == mean


def test_mlperf_scores_of_several_logs_and_runs_without_one(tmp_path):
    texts = {}
    for i, stop in enumerate((105500, 115500, 125500, 135500, 905500)):
        texts[f"result_{i}.txt"] = log_samples.MLPERF.replace(
            str(1700000000000 + 105500), str(1700000000000 + stop)
        )
    texts["result_5.txt"] = log_samples.MLPERF.replace('"success"', '"aborted"')
    logs, errors = importing.read_files(submission(tmp_path, texts), Terms())
    assert not errors
    document = json.loads(imports.render_json(imports.collect(logs, is_audited=False)))
    (row,) = document["scores"]["rows"]
    score = dict(zip(document["scores"]["columns"], row))
    assert (score["Runs"], score["Without a score"], score["Accelerators"]) == (
        6,
        1,
        16,
    )
    assert score["Olympic mean (s)"] == pytest.approx(
        (110.5 + 120.5 + 130.5 + 900.5) / 4
    )
    statements = {found["kind"]: found for found in document["statements"]}
    slow = statements["import-slow-run"]
    assert slow["subject"].endswith("result_4.txt")
    assert slow["values"]["seconds"] == pytest.approx(900.5)
    failed = statements["import-no-score"]
    assert failed["subject"].endswith("result_5.txt")
    assert failed["values"]["count"] == 1
    assert failed["values"]["total"] == 6


def test_an_mlperf_log_without_a_run_has_no_score():
    with pytest.raises(LineError, match="no score: .* no run_start"):
        parse("mlperf", log_samples.mllog("submission_benchmark", 0, "gnmt") + "\n")


def test_mlperfs_rate_is_the_mean_of_reports_under_one_name():
    reports = [
        ("throughput", 90),
        ("tracked_stats", {"throughput": 100}),
        ("block_train_throughput", 500),
    ]
    keyed = [
        ("run_start", None),
        *reports,
        ("tracked_stats", {"throughput": 110, "loss": 2}),
        ("run_stop", None),
    ]
    events = [
        {"time_ms": 1000 * i, "key": key, "value": value}
        for i, (key, value) in enumerate(keyed)
    ]
    events[-1]["metadata"] = {"status": "success"}
    log = parse(
        "mlperf", "".join(f":::MLLOG {json.dumps(event)}\n" for event in events)
    )
    assert log.runs[0].rate.value == 105 and log.tables[0].column(
        "Throughput reports"
    ) == (2,)


def test_mlperf_of_older_releases():
    v06 = (
        ':::MLL 1571444841.158 submission_benchmark: {"value": "gnmt", "metadata": {"lineno": 179}}\n'
        ':::MLL 1571444842.000 run_start: {"value": null, "metadata": {"lineno": 1}}\n'
        ':::MLL 1571444902.500 run_stop: {"value": null, "metadata": {"lineno": 1, "status": "success"}}\n'
    )
    v05 = (
        ":::MLPv0.5.0 ncf 1579665554.500000000 (ncf_estimator_main.py:80) run_start\n"
        'NCF_RAW_:::MLPv0.5.0 ncf 1579665614.500000000 (ncf_estimator_main.py:187) run_stop: {"success": %s}\n'
        ":::MLPv0.5.0 ncf 1579665614.881932020 (ncf_estimator_main.py:193) run_final\n"
    )
    for text, status, seconds in (
        (v06, "success", 60.5),
        (v05 % "true", "success", 60.0),
    ):
        assert FORMATS["mlperf"].detect(text)
        assert parse("mlperf", text).tables[0].rows[0][2:4] == (
            status,
            pytest.approx(seconds),
        )
    assert parse("mlperf", v05 % "false").tables[0].rows[0][2] == "no score (aborted)"


def old_log(*events):
    """Return a log of release 0.5 of (seconds, key, value); a value None is left out."""
    lines = []
    for seconds, key, value in events:
        text = "" if value is None else f": {json.dumps(value)}"
        lines.append(
            f":::MLPv0.5.0 gnmt {1541778000 + seconds}.5 (train.py:9) {key}{text}"
        )
    return "\n".join(lines) + "\n"


def old_run(text):
    (table,) = parse("mlperf", text).tables
    return dict(zip(table.columns, table.rows[0]))


def test_a_log_of_release_0_5_has_benchmark_batch_epochs_and_rate():
    text = (GOLDEN / "logs/mlperf_v05.log").read_text()
    log = parse("mlperf", text)
    run = old_run(text)
    assert (run["Benchmark"], run["Status"]) == ("gnmt", "success")
    assert (run["Global batch size"], run["Epochs"]) == (2048, 2)
    assert run["Trained samples"] == 2 * 3534981
    # Two epochs of 735.26 and 751.48 s lie outside the evaluations.
    assert run["Mean throughput (samples/s)"] == pytest.approx(4755.4, rel=1e-4)
    (run,) = log.runs
    assert run.options["model"] == "gnmt"
    assert run.options["global_batch_size"] == 2048
    assert run.rate.value == pytest.approx(4755.4, rel=1e-4)
    assert not log.problems


@pytest.mark.parametrize(
    ("events", "epochs", "rate"),
    [
        # Epochs count from 0, each with an evaluation.
        ([(10, "train_epoch", 0), (110, "eval_start", None),
          (120, "eval_accuracy", {"epoch": 0, "value": 9}), (120, "eval_stop", None),
          (120, "train_epoch", 1), (220, "eval_start", None),
          (230, "eval_accuracy", {"epoch": 1, "value": 22})], 2, 10),
    ],
)  # fmt: skip
def test_epochs_and_rate_of_release_0_5(events, epochs, rate):
    start = [(0, "preproc_num_train_examples", 1000), (1, "run_start", None)]
    stop = [(500, "run_stop", {"success": True})]
    run = old_run(old_log(*start, *events, *stop))
    assert run["Epochs"] == epochs
    assert run["Trained samples"] == 1000 * epochs
    assert run["Mean throughput (samples/s)"] == pytest.approx(rate, rel=0.05)


@pytest.mark.parametrize(
    ("sizes", "samples"),
    [
        ([("input_size", 900), ("preproc_num_train_examples", 1000)], 900),
        ([("input_size", 224), ("preproc_num_train_examples", 1000)], 1000),
        ([("input_batch_size", 8), ("input_size", 300)], 300),
        ([("preproc_num_train_examples", "none")], None),
    ],
)
def test_samples_of_an_epoch_of_release_0_5(sizes, samples):
    events = [(2, key, value) for key, value in sizes]
    text = old_log(
        (1, "run_start", None),
        *events,
        (10, "train_epoch", 0),
        (20, "eval_start", None),
        (21, "input_batch_size", 77),
        (22, "input_size", 999),
        (30, "eval_stop", None),
        (31, "run_stop", {"success": True}),
    )
    run = old_run(text)
    assert run["Trained samples"] == samples
    assert run["Global batch size"] == dict(sizes).get("input_batch_size")


@pytest.mark.parametrize(
    ("stop", "quality", "status"),
    [
        ({"success": "true"}, 1.0, "success"),
        ({"success": False}, 99.0, "no score (aborted)"),
        (None, 22.0, "success"),  # without a status, the target quality decides
        (None, 21.0, "no score (no status)"),
    ],
)
def test_success_of_release_0_5(stop, quality, status):
    text = old_log(
        (1, "run_start", None),
        (2, "eval_target", 21.8),
        (3, "eval_accuracy", {"epoch": 0, "value": quality}),
        (9, "run_stop", stop),
    )
    assert old_run(text)["Status"] == status
