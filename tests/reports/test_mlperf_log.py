"""The MLPerf log of a run: read back by our importer, and judged by MLPerf's own checker."""

from __future__ import annotations

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


def events_of(text):
    return [
        json.loads(line.removeprefix(mlperf.LINE_PREFIX)) for line in text.splitlines()
    ]


def test_the_importer_reads_back_what_the_record_has():
    log = parse("mlperf", mlperf_log.text(make_run()))
    (runs,), (rate,) = log.tables, log.runs
    assert not log.problems
    row = dict(zip(runs.columns, runs.rows[0]))
    expected = {
        **{
            "Benchmark": "gnmt",
            "Status": "success",
            "Accelerators": 4,
            "Global batch size": 64,
            "Seed": 7,
        },
        **{
            "Run (s)": 3.0,
            "Init (s)": 5.0,
            "Trained samples": 256,
            "Last quality": 0.5,
        },
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert (
        row["Platform"] == "4x 1-core CPU device, Some CPU"
        and row["Mean throughput (samples/s)"] == 2 * 64
    )
    assert (rate.options["num_devices"], rate.rate.value) == (4, 2 * 64)
    values = {
        event["key"]: event["value"] for event in events_of(mlperf_log.text(make_run()))
    }
    expected = {
        **{
            "opt_name": "adam",
            "opt_base_learning_rate": 0.004,
            "train_samples": 128,
            "eval_samples": 0,
        },
        **{"cache_clear": False, "max_sequence_length": 30},
    }
    assert {name: values[name] for name in expected} == expected


def test_the_samples_of_all_micro_batches_count():
    run = make_run(config={"gradient_accumulation_steps": 3})
    events = {event["key"]: event for event in events_of(mlperf_log.text(run))}
    assert events["global_batch_size"]["value"] == 4 * 16 * 3
    assert events["tracked_stats"]["value"] == {
        "throughput": pytest.approx(2 * 4 * 16 * 3 / 1.0)
    }
    assert (
        events["run_stop"]["metadata"]["samples_count"] == 4 * 4 * 16 * 3
    )  # 4 updates
    assert events["block_start"]["metadata"]["epoch_count"] == 4 * 4 * 16 * 3 / 128


def test_a_log_has_no_value_that_was_not_measured():
    uncounted = {"batches": {}, "resolved": {"train_samples": None}}
    files = {"model": "alexnet", "data_source": "tfrecord"}
    events = {
        event["key"]: event
        for event in events_of(mlperf_log.text(make_run(config=files, **uncounted)))
    }
    assert not {
        "eval_accuracy",
        "train_samples",
        "max_sequence_length",
        "opt_gradient_clip_norm",
    } & {*events}
    assert events["block_start"]["metadata"] == {"first_epoch_num": 1}
    drawn = events_of(
        mlperf_log.text(make_run(**uncounted))
    )  # no sample comes again: one epoch
    assert [event["value"] for event in drawn if event["key"] == "train_samples"] == [
        256
    ]


@pytest.mark.parametrize(
    "seconds, keys",
    [((), {"init_start"}), ((0.5,), {"init_start", "run_start", "run_stop"})],
)
def test_a_failed_run_has_a_log_without_a_score(seconds, keys):
    run = make_record(
        "failed",
        config=GNMT,
        seconds=seconds,
        environment={"started": "2026-01-02T03:04:05+00:00"},
    )
    events = {event["key"]: event for event in events_of(mlperf_log.text(run))}
    assert {"init_start", "run_start", "run_stop"} & {
        *events
    } == keys and "tracked_stats" not in events
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
    path.write_text(mlperf_log.text(make_run(**batches)))
    checker = mlp_compliance.make_checker("training", "0.7.0", quiet=False, werror=True)
    valid = mlp_compliance.main(str(path), "training_0.7.0/common.yaml", checker)[0]
    messages = [*checker.overwritable.values(), *checker.not_overwritable]
    assert len(messages) == len(objections) == (not valid), messages
    assert all(objection in message for objection, message in zip(objections, messages))
