"""A run's record as an MLPerf training log: ":::MLLOG {json}" lines, with what was measured and nothing else.

Format: mlcommons/logging, mlperf_logging/mllog and compliance_checker/training_0.7.0/*.yaml, the last rules of GNMT.
"""

import datetime
from collections.abc import Iterator
from typing import Any

from rnn_scaling.analysis.metrics import ACCURACY, Measured
from rnn_scaling.config.conditions import unread_options
from rnn_scaling.config.registry import DATA_SOURCES
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.input_files import json_text

POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
NO_SUBMISSION = "none, not a submission"
Event = tuple[float, str, str, Any, dict[str, Any]]
"""Seconds after the run's start, type, key, value, metadata."""


def text(record: RunRecord) -> str:
    """The log; of a run without a batch what was set, and when it began."""
    started = datetime.datetime.fromisoformat(
        record.environment.started or "1970-01-01T00:00:00+00:00"
    ).timestamp()
    lines = []
    for seconds, kind, key, value, metadata in (*_settings(record), *_run(record)):
        event = {
            "namespace": "",
            "time_ms": round(1000 * (started + seconds)),
            "event_type": kind,
            "key": key,
        }
        lines.append(
            f":::MLLOG {json_text({**event, 'value': value, 'metadata': metadata}, indent=None)}"
        )
    return "".join(lines)


def _settings(record: RunRecord) -> Iterator[Event]:
    config, unread = record.options, unread_options(record.options)
    is_gnmt = (
        "attention" not in unread and config["attention_architecture"] == "gnmt_v2"
    )
    towers = config["num_devices"] * config["num_workers"]
    hosts = len(record.workers.hosts) if record.workers else 1
    values: dict[str, Any] = {
        "submission_benchmark": "gnmt" if is_gnmt else config["model"],
        "submission_division": "open",
        "submission_org": NO_SUBMISSION,
        "submission_platform": f"{towers}x {_device(record)}",
        "submission_status": "research",
        "cache_clear": False,
        "seed": config["seed"],
        "global_batch_size": _global_batch(record),
        "opt_name": config["optimizer"],
        "opt_base_learning_rate": record.resolved.learning_rate
        or config["learning_rate"],
        "opt_learning_rate_warmup_steps": config["lr_warmup_batches"],
    }
    if hosts and towers % hosts == 0:
        values |= {"number_of_nodes": hosts, "accelerators_per_node": towers // hosts}
    if config["max_gradient_norm"]:
        values["opt_gradient_clip_norm"] = config["max_gradient_norm"]
    for key, value in values.items():
        yield 0.0, POINT, key, value, {}
    lengths = [
        config[name] for name in ("src_max_len", "tgt_max_len") if name not in unread
    ]
    if lengths:
        yield 0.0, POINT, "max_sequence_length", max(lengths), {"method": "truncate"}
    if samples := _train_samples(record):
        yield 0.0, POINT, "train_samples", samples, {}
    yield 0.0, POINT, "eval_samples", 0, {}
    yield 0.0, START, "init_start", None, {}


def _run(record: RunRecord) -> Iterator[Event]:
    """From the end of the initialisation to that of the last batch, where there is one."""
    phases, batches = record.phases, record.batches
    if not batches.seconds:
        return
    start = phases.start + phases.cluster + phases.build + (phases.resume or 0.0)
    stop = start + sum(batches.seconds)
    samples, set_size = _trained(record), _train_samples(record)
    epochs = {"epoch_count": samples / set_size} if set_size else {}
    yield start, END, "init_stop", None, {}
    yield start, START, "run_start", None, {}
    yield start, START, "block_start", None, {"first_epoch_num": 1, **epochs}
    if record.throughput and record.throughput.seconds:
        rate = batches.measured * _global_batch(record) / record.throughput.seconds
        yield (
            stop,
            POINT,
            "tracked_stats",
            {"throughput": rate},
            {"step": len(batches.seconds)},
        )
    yield (
        stop,
        END,
        "block_stop",
        None,
        {"first_epoch_num": 1, "samples_count": samples},
    )
    if accuracy := ACCURACY.compute(
        Measured((record,), record.options["num_devices"], None, None)
    ):
        metadata = {
            "epoch_num": 1,
            "samples_count": samples,
            "of": "training batches, the last tenth",
        }
        yield stop, POINT, "eval_accuracy", accuracy.value, metadata
    status = "success" if record.status == "ok" else "aborted"
    yield (
        stop,
        END,
        "run_stop",
        None,
        {"status": status, "target": "all batches", "samples_count": samples},
    )


def _device(record: RunRecord) -> str:
    gpus = record.environment.gpus
    if record.options["device"] == "gpu" and gpus:
        return gpus[0].get("name", "GPU")
    return f"{record.options['cpu_cores_per_device']}-core CPU device, {record.environment.cpu or 'unknown'}"


def _global_batch(record: RunRecord) -> int:
    """Samples of an update: those of all towers' micro-batches."""
    config = record.options
    per_tower = config["batch_size"] * config["gradient_accumulation_steps"]
    return int(
        config["global_batch_size"]
        or per_tower * config["num_devices"] * config["num_workers"]
    )


def _trained(record: RunRecord) -> int:
    return len(record.batches.seconds) * _global_batch(record)


def _train_samples(record: RunRecord) -> int | None:
    """Samples of an epoch: of the files; of random data, which never come again, all of the run; None: not counted."""
    source = DATA_SOURCES[record.options["data_source"]]
    counted = record.resolved.train_samples
    return (
        counted or (None if source.files or source.varies else _trained(record)) or None
    )
