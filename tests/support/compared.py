"""Run records with a full environment, for tests of comparisons."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from rnn_scaling.config import run_config as configs
from rnn_scaling.records import record
from rnn_scaling.records.record import RunRecord
from tests.support.records import make_record

GPU = {
    "index": "0",
    "name": "NVIDIA H200",
    "uuid": "GPU-1",
    "driver_version": "570.10",
    "clocks.sm": "1980 MHz",
    "clocks.mem": "3201 MHz",
    "clocks.max.sm": "1980 MHz",
    "clocks.max.mem": "3201 MHz",
    "clocks_throttle_reasons.active": "0x0000000000000001",
    "power.limit": "700.00 W",
}
ENVIRONMENT: dict[str, Any] = {
    "python": "3.11.7",
    "packages": {"tensorflow": "2.21.0", "numpy": "2.4.6", "keras": "3.15.1"},
    "cuda": {"runtime": "12.5", "cudnn": "9.3", "cublas": "12.5", "nccl": "2.25"},
    "platform": "Linux-6.1-x86_64-with-glibc2.36",
    "cpu": "Processor A",
    "cpu_vector_units": ["avx", "avx2", "fma"],
    "cpu_cores": 8,
    "cpu_topology": {"sockets": 1, "cores": 4, "threads": 8, "numa_nodes": ["0-7"]},
    "cpu_mhz": [3000.0, 1200.0],
    "cpu_limit": None,
    "cpu_governor": "performance",
    "cpu_no_turbo": "0",
    "cpu_boost": None,
    "huge_pages": "always [madvise] never",
    "memory_bytes": 32 * 2**30,
    "gpus": [],
    "gpus_after": [],
    "topology": None,
    "variables": {},
    "commit": {"hash": "0123456789abcdef", "modified": False, "diff": None},
    "load": {"others": 0.01, "steal": 0.0, "seconds": 2.0},
}
RESOLVED: dict[str, Any] = {
    "device_type": "CPU",
    "logical_devices": False,
    "onednn": False,
    "operators": "stock",
    "encoder_kernel": "block_lstm",
    "decoder_kernel": "block_lstm",
    "all_reduce": [],
    "inter_op_parallelism_threads": 2,
    "intra_op_parallelism_threads": 1,
    "cpu_affinity": [0],
    "oversubscribed": False,
}


def run(
    rate: float = 1000.0,
    *,
    status: str = "ok",
    batches: int = 20,
    unit: str = "words",
    environment=(),
    resolved=(),
    **config: Any,
) -> RunRecord:
    """Return a run of `batches` equal batches of 100 words after one warm-up batch.

    Its environment is ENVIRONMENT with changes.
    """
    seconds = 100 / rate
    flat = configs.resolve({"device": "cpu", **config}, num_gpus=8, num_cores=8).flat()
    return make_record(
        status,
        error=None
        if status == "ok"
        else {
            "type": "ResourceExhaustedError",
            "message": "out of memory\nof the device",
        },
        config=flat,
        resolved={**copy.deepcopy(RESOLVED), **dict(resolved)},
        seconds=[9.0] + [seconds] * batches,
        warmup=1,
        unit=unit,
        environment={**copy.deepcopy(ENVIRONMENT), **dict(environment)},
    )


def gpu_run(gpu=(), after=(), **changes: Any) -> RunRecord:
    """Return a run on one GPU.

    `gpu` changes the GPU's description before and after the run, and `after` changes
    only the description after the run.
    """
    cards = {
        "gpus": [{**GPU, **dict(gpu)}],
        "gpus_after": [{**GPU, **dict(gpu), **dict(after)}],
        "topology": "GPU0 X",
    }
    environment = {**cards, **dict(changes.pop("environment", ()))}
    resolved = {
        "device_type": "GPU",
        "encoder_kernel": "cudnn",
        "decoder_kernel": "cudnn",
    }
    return run(
        environment=environment, resolved=resolved, **{"device": "gpu", **changes}
    )


def write(folder: Path, rates: list[float], name: str = "run", **changes: Any) -> None:
    """Write one record per rate, named like a sweep's repeats."""
    for number, rate in enumerate(rates, 1):
        label = name if number == 1 else f"{name}.r{number}"
        record.write(run(rate, **changes), folder / f"{label}.json")
