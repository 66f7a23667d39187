"""Kernels executed a step: counted from a trace that holds all of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rnn_scaling.inspection import operators
from rnn_scaling.inspection.events import COPY, DEVICE, TracedStep
from rnn_scaling.inspection.scopes import Owner


def tally(steps: Sequence[TracedStep]) -> dict[str, Any]:
    """Kernels of each step; by type, by tower and phase, and by device for the last one; JSON-ready.

    A step's "host" kernels are those that the executor ran on CPU devices, and control flow of loops, which it runs
    itself wherever it is placed; its "device" kernels those that ran on GPUs, "copies" the copies and fills of memory
    there, and "dispatched" the operators that the host launched on GPUs (device kernels belong to them, one or several
    each, or none).
    """
    last = steps[-1].kernels
    work = [kernel for kernel in last if kernel.kind != COPY and not kernel.dispatched]
    by_owner = Counter(Owner(kernel.tower, kernel.phase) for kernel in work)
    return {
        "steps": [_split(step) for step in steps],
        "by_type": operators.descending(Counter(kernel.type for kernel in work)),
        "by_device": dict(sorted(Counter(kernel.device for kernel in work).items())),
        "by_phase": operators.owners(by_owner, "kernels"),
    }


def _split(step: TracedStep) -> dict[str, int]:
    counts: Counter[str] = Counter(dict.fromkeys(("host", "device", "copies", "dispatched"), 0))
    for kernel in step.kernels:
        if kernel.dispatched:
            counts["dispatched"] += 1
        elif kernel.kind == COPY:
            counts["copies"] += 1
        else:
            counts["device" if kernel.kind == DEVICE else "host"] += 1
    return dict(counts)
