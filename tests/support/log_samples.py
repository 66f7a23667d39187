"""One small log of each format, written for these tests in the documented form; the texts are in golden/logs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from rnn_scaling.analysis import steady_state
from rnn_scaling.records.importers import importing
from rnn_scaling.records.importers.formats import FORMATS
from rnn_scaling.records.importers.reading import Reading, Terms
from tests.support import real_logs
from tests.support.real_logs import read_raw


def read_run(path: Path, formats: str = "auto", **terms: object) -> SimpleNamespace:
    """Read the log of one run like a sweep; return the fields of its record."""
    run, reading = importing.read_run(
        path,
        Terms(
            importing.check_rate_formats(formats),
            find_steady_state=steady_state.analyse,
            **terms,
        ),
    )
    record = run.record
    return SimpleNamespace(
        rate=record.throughput.items_per_second,
        seconds=record.batches.seconds,
        items=record.batches.items,
        loss=record.batches.loss,
        warmup=record.batches.warmup,
        rounding=record.log_rounding or 0.0,
        clock=record.log_clock or "",
        format=record.log_format,
        unit=record.unit,
        findings=record.log_findings or (),
        output=record.output,
        options=run.options,
        notes=importing.list_notes(reading),
    )


TF_CNN = read_raw("tf_cnn_benchmarks")


def parse(name: str, text: str, **terms: object) -> Reading:
    """Read a text as one format; raises LineError if it has nothing."""
    return FORMATS[name].read(text.splitlines(keepends=True), Terms(**terms))


def tf_cnn_horovod(ranks: int, per_rank: float, tag: str = "") -> str:
    """Return the mixed output of all ranks.

    Each line appears once per rank, in the order of ranks, behind `tag`, a format
    string with the rank as argument.
    """
    listed = ", ".join(f"'horovod/gpu:{rank}'" for rank in range(ranks))
    head = [
        "Model:       resnet101",
        f"Batch size:  {64 * ranks} global",
        "             64 per device",
    ]
    head += [
        f"Devices:     [{listed}]",
        "Variables:   horovod",
        "==========",
        "Step\tImg/sec\ttotal_loss",
    ]
    steps = [
        f"{step}\timages/sec: {per_rank:.1f} +/- 0.5 (jitter = 1.0)\t9.1"
        for step in (1, 10)
    ]
    lines = []
    for line in [*head, *steps]:
        lines += [tag.format(rank) + line for rank in range(ranks)]
    for rank in range(ranks):
        lines.append(
            tag.format(rank) + f"total images/sec: {ranks * per_rank - 0.01 * rank:.2f}"
        )
    return "\n".join(lines) + "\n"


def horovod_synthetic(ranks: int, rate: float = 100.0) -> str:
    """Rank 0's output of a run whose two iterations are `rate` -+ 1."""
    return f"""\
Model: resnet50
Batch size: 32
Number of GPUs: {ranks}
Running warmup...
Running benchmark...
Iter #0: {rate - 1:.1f} img/sec per GPU
Iter #1: {rate + 1:.1f} img/sec per GPU
Img/sec per GPU: {rate:.1f} +-2.0
Total img/sec on {ranks} GPU(s): {rate * ranks:.1f} +-{1.96 * ranks:.1f}
"""


HOROVOD_SYNTHETIC = horovod_synthetic(4)

# Tensor 1: negotiation 0..30 us (rank 1 is 20 us late), operation 40..100 with queue 10 and collective 40 us inside.
# Tensor 2: fused with it, the same operation.
HOROVOD_TIMELINE = read_raw("horovod_timeline")
NCCL_TESTS, NCCL_TESTS_JSON = read_raw("nccl_tests"), read_raw("nccl_tests_json")
RCCL_TESTS_JSON = read_raw("rccl_tests_json")
MLPERF = read_raw("mlperf")
BANDWIDTH_TEST, P2P, TOPO = (
    read_raw("bandwidth_test"),
    read_raw("p2p_bandwidth_latency"),
    read_raw("nvidia_smi_topo"),
)
SEED_TRAINER = read_raw("seed_trainer")


def mllog(key: str, ms: int, value: object = None, **metadata: object) -> str:
    """Return one line of an MLPerf log."""
    event = {
        "namespace": "",
        "time_ms": 1700000000000 + ms,
        "event_type": "POINT_IN_TIME",
        "key": key,
    }
    return ":::MLLOG " + json.dumps(
        {
            **event,
            "value": value,
            "metadata": {"file": "train.py", "lineno": 7, **metadata},
        }
    )


ALL = {
    "tf_cnn_benchmarks": TF_CNN,
    "horovod_synthetic": HOROVOD_SYNTHETIC,
    "horovod_timeline": HOROVOD_TIMELINE,
    "nccl_tests": NCCL_TESTS,
    "nccl_tests_json": NCCL_TESTS_JSON,
    "rccl_tests_json": RCCL_TESTS_JSON,
    "mlperf": MLPERF,
    "mlperf_system": real_logs.MLPERF_SYSTEM,
    "gnmt": real_logs.GNMT,
    "bandwidth_test": BANDWIDTH_TEST,
    "p2p_bandwidth_latency": P2P,
    "nvidia_smi_topo": TOPO,
    "seed_trainer": SEED_TRAINER,
    "hugging_face": read_raw("hugging_face")
    .rpartition("\r")[0]
    .rpartition("\r")[0]
    .rpartition("\r")[2],
    "keras": read_raw("keras"),
    "lightning": read_raw("lightning_rich"),
    "tqdm": read_raw("tqdm_slow"),
}
