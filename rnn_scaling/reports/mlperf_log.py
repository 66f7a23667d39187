"""A run's record as an MLPerf training log: ":::MLLOG {json}" lines.

It contains only what was measured. The format is mlcommons/logging's,
mlperf_logging/mllog and compliance_checker/training_0.7.0/*.yaml, which has the last
rules of GNMT.

`commands.run_files` writes it for --mlperf_log, and the export `mllog` for a folder.
"""

import dataclasses
import datetime
from collections.abc import Container, Iterator, Mapping
from typing import Any

from rnn_scaling.analysis.metrics import ACCURACY, Measured
from rnn_scaling.config.conditions import find_unread_options
from rnn_scaling.config.registry import DATA_SOURCES
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.input_files import format_json

_POINT = "POINT_IN_TIME"
_START = "INTERVAL_START"
_END = "INTERVAL_END"
_NO_SUBMISSION = "none, not a submission"
_UNKNOWN_START = "1970-01-01T00:00:00+00:00"


@dataclasses.dataclass(frozen=True)
class Event:
    """One line of the log."""

    seconds: float  # seconds after the run's start
    kind: str
    key: str
    value: Any = None
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def format_log(record: RunRecord) -> str:
    """Return the log; without a batch, it has settings and the start."""
    time = datetime.datetime.fromisoformat(record.environment.started or _UNKNOWN_START)
    started = time.timestamp()
    lines = []
    for event in (*_make_setting_events(record), *_run_events(record)):
        fields = {
            "namespace": "",
            "time_ms": round(1000 * (started + event.seconds)),
            "event_type": event.kind,
            "key": event.key,
            "value": event.value,
            "metadata": event.metadata,
        }
        lines.append(f":::MLLOG {format_json(fields, indent=None)}")
    return "".join(lines)


def _make_setting_events(record: RunRecord) -> list[Event]:
    """Return the events before the initialisation: the settings of the run."""
    options = record.options
    unread = find_unread_options(options)
    settings = _list_settings(record, unread)
    events = [Event(0.0, _POINT, key, value) for key, value in settings.items()]
    lengths = [
        options[name] for name in ("src_max_len", "tgt_max_len") if name not in unread
    ]
    if lengths:
        method = {"method": "truncate"}
        events.append(
            Event(
                0.0,
                kind=_POINT,
                key="max_sequence_length",
                value=max(lengths),
                metadata=method,
            )
        )
    if samples := _count_epoch_samples(record):
        events.append(Event(0.0, _POINT, "train_samples", samples))
    return [
        *events,
        Event(0.0, _POINT, "eval_samples", 0),
        Event(0.0, _START, "init_start"),
    ]


def _list_settings(record: RunRecord, unread: Container[str]) -> dict[str, Any]:
    """Return the settings by the keys of MLPerf.

    Args:
      record: The run.
      unread: The options that the run does not read.
    """
    options = record.options
    is_gnmt = (
        "attention" not in unread and options["attention_architecture"] == "gnmt_v2"
    )
    num_towers = options["num_devices"] * options["num_workers"]
    num_hosts = len(record.workers.hosts) if record.workers else 1
    learning_rate = record.resolved.learning_rate or options["learning_rate"]
    values: dict[str, Any] = {
        "submission_benchmark": "gnmt" if is_gnmt else options["model"],
        "submission_division": "open",
        "submission_org": _NO_SUBMISSION,
        "submission_platform": f"{num_towers}x {_name_device(record)}",
        "submission_status": "research",
        "cache_clear": False,
        "seed": options["seed"],
        "global_batch_size": _find_global_batch_size(record),
        "opt_name": options["optimizer"],
        "opt_base_learning_rate": learning_rate,
        "opt_learning_rate_warmup_steps": options["lr_warmup_batches"],
    }
    if num_hosts and num_towers % num_hosts == 0:
        values["number_of_nodes"] = num_hosts
        values["accelerators_per_node"] = num_towers // num_hosts
    if options["max_gradient_norm"]:
        values["opt_gradient_clip_norm"] = options["max_gradient_norm"]
    return values


def _run_events(record: RunRecord) -> Iterator[Event]:
    """Yield the events after the initialisation, up to the end of the last batch."""
    phases = record.phases
    batches = record.batches
    if not batches.seconds:
        return
    start = phases.start + phases.cluster + phases.build + (phases.resume or 0.0)
    stop = start + sum(batches.seconds)
    num_samples = _count_trained_samples(record)
    num_train_samples = _count_epoch_samples(record)
    block: dict[str, Any] = {"first_epoch_num": 1}
    if num_train_samples:
        block["epoch_count"] = num_samples / num_train_samples
    yield Event(start, _END, "init_stop")
    yield Event(start, _START, "run_start")
    yield Event(start, _START, "block_start", metadata=block)
    if record.throughput and record.throughput.seconds:
        num_measured = batches.measured * _find_global_batch_size(record)
        rate = {"throughput": num_measured / record.throughput.seconds}
        step = {"step": len(batches.seconds)}
        yield Event(stop, kind=_POINT, key="tracked_stats", value=rate, metadata=step)
    block = {"first_epoch_num": 1, "samples_count": num_samples}
    yield Event(stop, _END, "block_stop", metadata=block)

    measured = Measured.of_run(record)
    accuracy = ACCURACY.compute(measured)
    if accuracy:
        metadata = {
            "epoch_num": 1,
            "samples_count": num_samples,
            "of": "training batches, the last tenth",
        }
        yield Event(
            stop,
            kind=_POINT,
            key="eval_accuracy",
            value=accuracy.value,
            metadata=metadata,
        )
    metadata = {
        "status": "success" if record.status == "ok" else "aborted",
        "target": "all batches",
        "samples_count": num_samples,
    }
    yield Event(stop, _END, "run_stop", metadata=metadata)


def _name_device(record: RunRecord) -> str:
    gpus = record.environment.gpus
    if record.options["device"] == "gpu" and gpus:
        return gpus[0].get("name", "GPU")
    cores = record.options["cpu_cores_per_device"]
    return f"{cores}-core CPU device, {record.environment.cpu or 'unknown'}"


def _find_global_batch_size(record: RunRecord) -> int:
    """Return the samples of an update: the micro-batches of all towers."""
    options = record.options
    if options["global_batch_size"]:
        return int(options["global_batch_size"])
    num_towers = options["num_devices"] * options["num_workers"]
    per_tower = options["batch_size"] * options["gradient_accumulation_steps"]
    return int(per_tower * num_towers)


def _count_trained_samples(record: RunRecord) -> int:
    return len(record.batches.seconds) * _find_global_batch_size(record)


def _count_epoch_samples(record: RunRecord) -> int | None:
    """Return the samples of an epoch; None if they were not counted.

    Random data never repeat, so an epoch is the whole run.
    """
    if record.resolved.train_samples:
        return record.resolved.train_samples
    source = DATA_SOURCES[record.options["data_source"]]
    if source.files or source.varies:
        return None
    return _count_trained_samples(record) or None
