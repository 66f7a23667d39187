"""MLPerf's logs: devices from the system's description, olympic means, runs without a score, older releases."""

import json

import pytest

from rnn_scaling.records.importers import importing
from rnn_scaling.records.importers.formats import FORMATS
from rnn_scaling.records.importers.reading import LineError, Terms
from rnn_scaling.reports import imports, mlperf_scores
from tests.support import log_samples, real_logs
from tests.support.log_samples import parse


def submission(tmp_path, logs):
    place = tmp_path / "results/dgx1/gnmt"
    place.mkdir(parents=True)
    for name, text in logs.items():
        (place / name).write_text(text)
    return [place / name for name in logs]


def read_options(*paths):
    """Return the options of the run in the only log of these files."""
    logs, errors = importing.read_files(paths, Terms())
    assert not errors
    [log] = (log for log in logs if log.format == "mlperf")
    options = log.runs[0].options
    assert log.tables[0].list_column("Accelerators") == (options.get("num_devices"),)
    return options


def test_mlperfs_devices_and_platform_come_from_the_systems_description(tmp_path):
    [path] = submission(tmp_path, {"result_0.txt": real_logs.GNMT_MLPERF})
    assert "num_devices" not in read_options(path)
    system = tmp_path / "systems/dgx1.json"
    system.parent.mkdir()
    system.write_text(real_logs.MLPERF_SYSTEM)
    assert read_options(path)["num_devices"] == 8
    elsewhere = system.rename(tmp_path / "any.json")
    # The description's file name differs from the system in the log's path.
    assert "num_devices" not in read_options(path, elsewhere)
    free = tmp_path / "any.log"
    lines = real_logs.GNMT_MLPERF.splitlines(keepends=True)
    free.write_text(
        "".join(each for each in lines if "submission_platform" not in each)
    )
    own = {"num_devices": 8, "machine": "dgx1_ngc20.06_pytorch"}
    assert own.items() <= read_options(free, elsewhere).items()
    other = tmp_path / "dgx1.json"
    other.write_text(real_logs.MLPERF_SYSTEM.replace('"8"', '"4"'))
    # The log's path selects one of two descriptions.
    assert read_options(path, elsewhere, other)["num_devices"] == 4
    system.write_text(real_logs.MLPERF_SYSTEM)
    # The one at its own place comes first.
    assert read_options(path, other)["num_devices"] == 8


@pytest.mark.parametrize(
    "name, text",
    [
        ("mlperf_system", "{}"),
        ("mlperf_system", '{"number_of_nodes": "2", "accelerators_per_node": "0"}'),
        ("mlperf_system", '{"a": '),
        ("mlperf", log_samples.mllog("submission_benchmark", 0, "gnmt")),  # no run
    ],
)
def test_a_file_without_accelerators_or_without_a_run_is_an_error(name, text):
    with pytest.raises(LineError):
        parse(name, text)


@pytest.mark.parametrize(
    "times, without, mean",
    [
        ([100, 110, 120, 130, 900], 0, 120),
        ([100, 110, 120, 130], 1, 120),  # the run without a score is the slowest
        ([100, 110, 120], 2, None),
    ],
)
def test_olympic_mean(times, without, mean):
    assert mlperf_scores.compute_olympic_mean(times, without) == mean


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
    [row] = document["scores"]["rows"]
    score = dict(zip(document["scores"]["columns"], row))
    assert score["Runs"] == 6
    assert score["Without a score"] == 1
    assert score["Accelerators"] == 16
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


def test_mlperfs_rate_is_the_mean_of_reports_under_one_name():
    lines = [
        log_samples.mllog("run_start", 0),
        log_samples.mllog("throughput", 1, 90),
        log_samples.mllog("tracked_stats", 2, {"throughput": 100}),
        log_samples.mllog("block_train_throughput", 3, 500),
        log_samples.mllog("tracked_stats", 4, {"throughput": 110, "loss": 2}),
        log_samples.mllog("run_stop", 5, status="success"),
    ]
    log = parse("mlperf", "\n".join(lines))
    assert log.runs[0].rate.value == 105
    assert log.tables[0].list_column("Throughput reports") == (2,)


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


SUCCESS = {"success": True}


def read_old_run(*events, stop=SUCCESS):
    """Return the run of a log of release 0.5.

    Args:
      events: (seconds, key, value); a value None is left out.
      stop: Value of the last event, run_stop.
    """
    lines = []
    last = (events[-1][0] + 1, "run_stop", stop)
    for seconds, key, value in [(1, "run_start", None), *events, last]:
        text = "" if value is None else f": {json.dumps(value)}"
        lines.append(
            f":::MLPv0.5.0 gnmt {1541778000 + seconds}.5 (train.py:9) {key}{text}"
        )
    [table] = parse("mlperf", "\n".join(lines)).tables
    return dict(zip(table.columns, table.rows[0]))


def test_epochs_of_release_0_5_count_from_0_and_their_evaluations_are_left_out():
    events = [(1, "preproc_num_train_examples", 1000)]
    for epoch in range(2):
        events.append((10 + 110 * epoch, "train_epoch", epoch))
        events.append((110 + 110 * epoch, "eval_start", None))
        accuracy = {"epoch": epoch, "value": 9}
        events.append((120 + 110 * epoch, "eval_accuracy", accuracy))
        events.append((120 + 110 * epoch, "eval_stop", None))
    run = read_old_run(*events)
    assert run["Epochs"] == 2
    assert run["Trained samples"] == 2000
    assert run["Mean throughput (samples/s)"] == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize(
    "sizes, samples",
    [
        ([("input_size", 900), ("preproc_num_train_examples", 1000)], 900),
        ([("input_size", 224), ("preproc_num_train_examples", 1000)], 1000),
        ([("input_batch_size", 8), ("input_size", 300)], 300),
        ([("preproc_num_train_examples", "none")], None),
    ],
)
def test_samples_of_an_epoch_of_release_0_5(sizes, samples):
    run = read_old_run(
        *((2, key, value) for key, value in sizes),
        (10, "train_epoch", 0),
        (20, "eval_start", None),
        (21, "input_batch_size", 77),
        (22, "input_size", 999),
        (30, "eval_stop", None),
    )
    assert run["Trained samples"] == samples
    assert run["Global batch size"] == dict(sizes).get("input_batch_size")


@pytest.mark.parametrize(
    "stop, quality, status",
    [
        ({"success": "true"}, 1.0, "success"),
        ({"success": False}, 99.0, "no score (aborted)"),
        (None, 22.0, "success"),  # without a status, the target quality decides
        (None, 21.0, "no score (no status)"),
    ],
)
def test_success_of_release_0_5(stop, quality, status):
    target = (2, "eval_target", 21.8)
    accuracy = (3, "eval_accuracy", {"epoch": 0, "value": quality})
    assert read_old_run(target, accuracy, stop=stop)["Status"] == status
