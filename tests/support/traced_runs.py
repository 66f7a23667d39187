"""Handmade records of traced runs, whose steps have given durations."""

from __future__ import annotations

from typing import Any

from rnn_scaling.inspection import phases
from rnn_scaling.inspection.operators import HOST, KernelEvent, TracedStep
from rnn_scaling.records.record import RunRecord
from tests.support.records import make_record

MS = 1_000_000


def kernel(
    tower: int | None, phase: str, start_ms: float, end_ms: float
) -> KernelEvent:
    times = (round(start_ms * MS), round(end_ms * MS))
    return KernelEvent(
        f"{phase}/x", "MatMul", "/device:CPU:0", tower, phase, *times, "1", HOST
    )


def step(scale: float = 1.0) -> dict[str, Any]:
    """Two towers, 100 ms at scale 1; tower 1 computes longer and is last."""
    spans = [
        (0, "forward", 0, 20),
        (0, "backward", 20, 50),
        (1, "forward", 0, 25),
        (1, "backward", 25, 70),
        (None, "exchange", 40, 75),
        (0, "update", 75, 85),
        (1, "update", 75, 90),
    ]
    kernels = [
        kernel(tower, phase, scale * start, scale * end)
        for tower, phase, start, end in spans
    ]
    return phases.split(TracedStep(0, round(100 * MS * scale), kernels), 2)


def trace(*steps: dict[str, Any], untraced_s: float = 0.08) -> dict[str, Any]:
    counts = [
        (0, "forward", 500),
        (1, "forward", 500),
        (None, "exchange", 40),
        (None, "other", 7),
    ]
    return {
        "batches": len(steps),
        "words": 6000,
        "kernels": {
            "steps": [{"host": 1047, "device": 0, "copies": 0, "dispatched": 0}] * 2,
            "by_type": {"MatMul": 1047},
            "by_device": {"/device:CPU:0": 1047},
            "by_phase": [
                {"tower": tower, "phase": phase, "kernels": n}
                for tower, phase, n in counts
            ],
            "input_pipeline": 0.0,
        },
        "cost": {
            "untraced_s": untraced_s,
            "timed_s": [step["seconds"] for step in steps],
            "counted_s": [0.16, 0.16],
            "start_s": 0.25,
            "stop_s": 0.5,
        },
        "steps": list(steps),
        "files": [],
    }


GRAPH = {
    "python": {"operators": 900},
    "optimized": {"operators": 700},
    "partitions": {"operators": 720, "by_type": {"MatMul": 720}},
}


def make_traced_run(
    *steps: dict[str, Any], loss: float = 1.0, **config: Any
) -> RunRecord:
    """Return a record of two devices, traced only if there are steps."""
    return make_record(
        config={
            "device": "cpu",
            "num_devices": 2,
            "variable_update": "replicated",
            **config,
        },
        seconds=[0.5, 0.08, 0.08],
        items=[6000] * 3,
        warmup=1,
        batches={"loss": [loss] * 3},
        graph=GRAPH if steps else {},
        trace=trace(*steps) if steps else {},
    )
