"""The MLPerf log of a run: read back by our importer, and judged by MLPerf's own checker."""

import json

import pytest

from rnn_scaling.models.config import GNMT_V2
from rnn_scaling.records.importers import mlperf
from rnn_scaling.reports import mlperf_log
from tests.support.log_samples import parse
from tests.support.records import make_record

GNMT = {
    **GNMT_V2,
    "num_devices": 4,
    "batch_size": 16,
    "seed": 7,
    "accuracy": True,
    "optimizer": "adam",
}
PHASES = {
    "start": 2.0,
    "build": 3.0,
    "first_batch": 1.5,
    "warmup": 0.5,
    "measured": 1.0,
    "total": 8.0,
}


def make_run(status="ok", config=None, **parts):
    """2 warm-up batches and 2 measured ones, 3 s in all; half of the last batch's words are predicted right."""
    batches = {"loss_items": [50] * 4, "correct": [0, 5, 10, 25]}
    resolved = {
        "learning_rate": 0.004,
        "train_samples": 128,
        **parts.pop("resolved", {}),
    }
    environment = {"started": "2026-01-02T03:04:05+00:00", "cpu": "Some CPU"}
    return make_record(
        status,
        config={**GNMT, **(config or {})},
        seconds=[1.5, 0.5, 0.4, 0.6],
        warmup=2,
        **{
            "batches": batches,
            "phases": PHASES,
            "environment": environment,
            "resolved": resolved,
            **parts,
        },
    )


def list_events(run):
    """Return the events of a run's log by their keys."""
    lines = mlperf_log.format_log(run).splitlines()
    events = [json.loads(line.removeprefix(mlperf.LINE_PREFIX)) for line in lines]
    return {event["key"]: event for event in events}


def test_the_importer_reads_back_what_the_record_has():
    log = parse("mlperf", mlperf_log.format_log(make_run()))
    (runs,), (rate,) = log.tables, log.runs
    assert not log.problems
    row = dict(zip(runs.columns, runs.rows[0]))
    expected = {
        "Benchmark": "gnmt",
        "Status": "success",
        "Platform": "4x 1-core CPU device, Some CPU",
        "Accelerators": 4,
        "Global batch size": 64,
        "Seed": 7,
        "Run (s)": 3.0,
        "Init (s)": 5.0,
        "Trained samples": 256,
        "Last quality": 0.5,
        "Mean throughput (samples/s)": 2 * 64,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert rate.options["num_devices"] == 4
    assert rate.rate.value == 2 * 64
    expected = {
        "opt_name": "adam",
        "opt_base_learning_rate": 0.004,
        "train_samples": 128,
        "eval_samples": 0,
        "cache_clear": False,
        "max_sequence_length": 30,
    }
    events = list_events(make_run())
    assert {name: events[name]["value"] for name in expected} == expected


def test_the_samples_of_all_micro_batches_count():
    events = list_events(make_run(config={"gradient_accumulation_steps": 3}))
    batch = 4 * 16 * 3
    assert events["global_batch_size"]["value"] == batch
    throughput = events["tracked_stats"]["value"]["throughput"]
    assert throughput == pytest.approx(2 * batch / 1.0)
    num_updates = 4
    assert events["run_stop"]["metadata"]["samples_count"] == num_updates * batch
    assert events["block_start"]["metadata"]["epoch_count"] == num_updates * batch / 128


def test_a_log_has_no_value_that_was_not_measured():
    uncounted = {"batches": {}, "resolved": {"train_samples": None}}
    files = {"model": "alexnet", "data_source": "tfrecord"}
    events = list_events(make_run(config=files, **uncounted))
    unknown = {"eval_accuracy", "train_samples", "max_sequence_length"}
    assert not unknown & events.keys() and "opt_gradient_clip_norm" not in events
    assert events["block_start"]["metadata"] == {"first_epoch_num": 1}
    # No sample comes again, so the run is one epoch.
    assert list_events(make_run(**uncounted))["train_samples"]["value"] == 256


@pytest.mark.parametrize(
    "seconds, keys",
    [((), {"init_start"}), ((0.5,), {"init_start", "run_start", "run_stop"})],
)
def test_a_failed_run_has_a_log_without_a_score(seconds, keys):
    environment = {"started": "2026-01-02T03:04:05+00:00"}
    run = make_record("failed", config=GNMT, seconds=seconds, environment=environment)
    events = list_events(run)
    assert {"init_start", "run_start", "run_stop"} & events.keys() == keys
    assert "tracked_stats" not in events
    if seconds:
        assert events["run_stop"]["metadata"]["status"] == "aborted"


@pytest.mark.parametrize(
    "correct, objections",
    [
        ([0, 5, 10, 25], []),
        ([0, 5, 10, 11], ["eval_accuracy"]),  # 22 %, and gnmt's target is 24
        (None, ["'eval_accuracy'"]),
    ],
)
def test_mlperfs_checker_asks_for_nothing_but_an_accuracy(
    tmp_path, correct, objections
):
    from mlperf_logging.compliance_checker import mlp_compliance

    batches = (
        {"batches": {"loss_items": [50] * 4, "correct": correct}}
        if correct
        else {"batches": {}}
    )
    path = tmp_path / "run.log"
    path.write_text(mlperf_log.format_log(make_run(**batches)))
    checker = mlp_compliance.make_checker("training", "0.7.0", quiet=False, werror=True)
    valid = mlp_compliance.main(str(path), "training_0.7.0/common.yaml", checker)[0]
    messages = [*checker.overwritable.values(), *checker.not_overwritable]
    assert len(messages) == len(objections) == (not valid), messages
    assert all(objection in message for objection, message in zip(objections, messages))
