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
from tests.support.stand_in_forks import make_subprocess_stand_in

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
    flat = resolve({"device": "cpu", **given}).flat()
    towers = flat["num_devices"]
    threads = flat["inter_op_parallelism_threads"]
    loops = 8 if flat["encoder_type"] == "dynamic_rnn" else 4
    iterations = loops // 4 * (flat["src_max_len"] + flat["tgt_max_len"])
    once = {"LoopCond": loops, "Enter": loops, "Exit": loops}
    operators = {**once, "Const": 100}
    kernels = {**once, "LoopCond": loops + iterations, "_Send": 3}
    for kind, number in PER_ITERATION.items():
        operators[kind] = loops * number
        kernels[kind] = number * iterations
    by_type = {**_times(towers, kernels), **changes}
    num_operators = sum(operators.values())
    first = sum(kernels.values()) * towers
    total = sum(by_type.values())
    plain = {"device": 0, "copies": 0, "dispatched": 0}
    idle = phases.split(TracedStep(0, 100_000_000, []), towers)
    idle["concurrency"] = float(min(threads or towers, towers))
    share = FASTER_WITH.get(threads, 1.0) if towers > 1 else 1.0
    num_batches = WARMUP + BATCHES
    return make_record(
        config=flat,
        resolved={"encoder_kernel": "ABlock" if loops == 4 else "dynamic_rnn"},
        seconds=[0.1 / share * (1 + 0.002 * repeat)] * num_batches,
        items=[60 * towers] * num_batches,
        warmup=WARMUP,
        batches={"loss": [1.0] * num_batches},
        phases={"total": 10.0},
        graph={
            "python": {"operators": 2000 * towers},
            "optimized": {"operators": 900 * towers},
            "partitions": {
                "operators": num_operators * towers,
                "by_type": _times(towers, operators),
                "by_device": {
                    f"device:CPU:{tower}": num_operators for tower in range(towers)
                },
            },
            "placement": {"variables": []},
            "copies": [],
        },
        trace={
            "items": 60 * towers,
            "kernels": {
                "steps": [{"host": first, **plain}, {"host": total, **plain}],
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
            "steps": [idle] * 2,
        },
    )


def _times(factor: int, numbers: dict[str, int]) -> dict[str, int]:
    return {name: factor * number for name, number in numbers.items()}


def repeat_of(path: Path) -> int:
    """Return the number of the repeat with this record."""
    return int(path.stem.rpartition(".r")[2]) if ".r" in path.stem else 1


def main(words: list[str]) -> int:
    given = flags.parse(words, configs.OPTIONS)
    path = Path(given["result_file"])
    record.write(record_of(given, repeat_of(path)), path)
    return 0


def forks() -> types.SimpleNamespace:
    """Return a replacement for `subprocess` in `process` that forks this trainer."""
    return make_subprocess_stand_in(fake_tracer=main)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
