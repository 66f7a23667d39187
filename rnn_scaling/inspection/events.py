"""What a trace is made of, independent of where it came from."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

HOST, DEVICE, COPY, WAIT = "host", "device", "copy", "wait"
"""host: an operator's kernel that ran on a CPU device, or control flow of a loop wherever it is placed; device: a
kernel on a GPU; copy: a copy to, from or on a GPU, or a fill of its memory; wait: an asynchronous operator from its
start to its end, on no core (a collective, or a tensor to be received)."""


class KernelEvent(NamedTuple):
    """One execution of one kernel. Times are integer nanoseconds from the start of the trace."""

    name: str  # of the operator that it belongs to, "" where the trace does not say
    type: str  # of the operator; of the CUDA kernel where there is no operator
    device: str  # full name where it ran
    tower: int | None  # None: shared by all
    phase: str
    start_ns: int
    end_ns: int
    lane: str  # the thread or stream that it ran on
    kind: str
    dispatched: bool = False  # host time of launching a GPU operator: counted, but the tower's device does the work


@dataclasses.dataclass(frozen=True)
class TracedStep:
    start_ns: int
    end_ns: int
    kernels: Sequence[KernelEvent]  # that started within the step, by start
