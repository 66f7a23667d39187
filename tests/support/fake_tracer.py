"""A trainer that traces nothing: counts and rates follow from the flags. `record_of` is what it writes.

python -m tests.support.fake_tracer --flags ... --result_file=FILE
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.inspection import phases
from rnn_scaling.inspection.operators import TracedStep
from rnn_scaling.records import record
from rnn_scaling.records.record import RunRecord
from tests.support.configs import resolve
from tests.support.records import make_record
from tests.support.stand_in_forks import as_subprocess

CELLS, BATCHES, WARMUP = 4, 6, 2
PER_ITERATION = {
    "Merge": 10,
    "Switch": 10,
    "NextIteration": 8,
    "MatMul": 1,
    "TensorListPushBack": 5,
}
FASTER_WITH = {1: 0.5, 2: 0.9, 3: 1.0, 4: 0.99}  # words/s by threads, of the fastest


def record_of(given: dict[str, Any], repeat: int = 1, **changes: Any) -> RunRecord:
    """Return the record of a run with these flags.

    `changes` replace the number of kernels of these types in the last counted step.
    """
    config = resolve({"device": "cpu", **given})
    flat = config.flat()
    loops = 8 if flat["encoder_type"] == "dynamic_rnn" else 4
    towers, iterations = (
        flat["num_devices"],
        loops // 4 * (flat["src_max_len"] + flat["tgt_max_len"]),
    )
    operators = {"LoopCond": loops, "Enter": loops, "Exit": loops, "Const": 100}
    operators |= {kind: loops * number for kind, number in PER_ITERATION.items()}
    kernels = {
        "LoopCond": loops + iterations,
        "Enter": loops,
        "Exit": loops,
        "_Send": 3,
    }
    kernels |= {kind: number * iterations for kind, number in PER_ITERATION.items()}
    by_type = {kind: number * towers for kind, number in kernels.items()} | changes
    total, first = (
        sum(by_type.values()),
        sum(number * towers for number in kernels.values()),
    )
    batches = _batches(flat, repeat)
    idle = phases.split(TracedStep(0, 100_000_000, []), towers)
    return make_record(
        config=flat,
        resolved={"encoder_kernel": "ABlock" if loops == 4 else "dynamic_rnn"},
        batches=batches,
        phases={"total": 10.0},
        graph={
            "python": {"operators": 2000 * towers},
            "optimized": {"operators": 900 * towers},
            "partitions": {
                "operators": sum(operators.values()) * towers,
                "by_type": {
                    kind: number * towers for kind, number in operators.items()
                },
                "by_device": {
                    f"device:CPU:{tower}": sum(operators.values())
                    for tower in range(towers)
                },
            },
            "placement": {"variables": []},
            "copies": [],
        },
        trace={
            "items": 60 * towers,
            "kernels": {
                "steps": [
                    {"host": n, "device": 0, "copies": 0, "dispatched": 0}
                    for n in (first, total)
                ],
                "by_type": by_type,
                "by_phase": [{"tower": 0, "phase": "forward", "kernels": total}],
                "input_pipeline": 0.0,
            },
            "cost": {
                "untraced_s": 0.1,
                "timed_s": [0.1] * 2,
                "counted_s": [0.1] * 2,
                "start_s": 0.0,
                "stop_s": 0.0,
            },
            "steps": [
                {
                    **idle,
                    "concurrency": float(
                        min(flat["inter_op_parallelism_threads"] or towers, towers)
                    ),
                }
            ]
            * 2,
        },
    )


def _batches(flat: dict[str, Any], repeat: int) -> dict[str, Any]:
    share = (
        FASTER_WITH.get(flat["inter_op_parallelism_threads"], 1.0)
        if flat["num_devices"] > 1
        else 1.0
    )
    seconds = [0.1 / share * (1 + 0.002 * repeat)] * (WARMUP + BATCHES)
    words = [60 * flat["num_devices"]] * len(seconds)
    return {
        "warmup": WARMUP,
        "measured": BATCHES,
        "seconds": seconds,
        "items": words,
        "loss": [1.0] * len(seconds),
    }


def main(words: list[str]) -> int:
    given = flags.parse(words, configs.OPTIONS)
    path = Path(given["result_file"])
    repeat = int(path.stem.rpartition(".r")[2]) if ".r" in path.stem else 1
    record.write(record_of(given, repeat), path)
    return 0


def forks() -> types.SimpleNamespace:
    """Return a replacement for `subprocess` in `process` that forks this trainer."""
    return as_subprocess(fake_tracer=main)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
