"""The trace of one rank: its steps, and when it computed, copied and communicated.

Times are in ns since 1970 by the rank's own clock. Sources of the names:
pytorch/kineto, libkineto/src/output_json.cpp; torch/profiler/profiler.py
(`ProfilerStep#`); torch/csrc/distributed/c10d (`gloo:`, `nccl:`).

`read_trace` keeps no event, only the parts of steps and the collectives.
"""

import dataclasses
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rnn_scaling.inspection.kineto.event_stream import EventStream
from rnn_scaling.inspection.trace_databases.layouts import is_communication
from rnn_scaling.system.files.input_files import DoorError

OPERATOR = "operator"  # runs on the host
EXCHANGE_CALL = "exchange_call"  # starts an exchange, or waits for one
NCCL_CALL = "nccl_call"
KERNEL = "kernel"  # runs on the GPU
COPY = "copies"
INPUT = "waits_for_input"
_COLLECTIVE = "collective"
_STEP = "step"

_STEP_NAME = re.compile(r"ProfilerStep#(\d{1,15})")
_RANK_IN_NAME = re.compile(r"rank\D?(\d{1,6})")
# Beginnings of names; the first two are of threads that exchange tensors of CPUs.
_NAMES = {
    "gloo:": _COLLECTIVE,
    "mpi:": _COLLECTIVE,
    "nccl:": NCCL_CALL,
    "enumerate(DataLoader)": INPUT,
    "c10d::": EXCHANGE_CALL,
    "c10d_functional::": EXCHANGE_CALL,
    "_c10d_functional::": EXCHANGE_CALL,
    "record_param_comms": EXCHANGE_CALL,
}
_MAX_US = 2**52


class Collective(NamedTuple):
    """One call of a collective on one rank, from its arrival to its end.

    Attributes:
      start_ns: When the rank arrived.
      end_ns: When the collective ended on this rank.
      group: The process group, "" if the trace does not contain it.
      name: The name of the collective.
    """

    start_ns: int
    end_ns: int
    group: str
    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class RankTrace:
    """The trace of one rank.

    Attributes:
      file: The file of the trace.
      rank: The rank; None if neither the trace nor the file's name contains it.
      world_size: Number of ranks of the job; None if the trace does not contain it.
      steps: Start and end of each step in ns, by the number of the step.
      spans: Start and end of the events of each kind in ns, [N, 2]. The spans are in
        any order and may overlap.
      collectives: The calls of collectives, in the order of their arrival.
      num_left_out: The number of events that were left out because their times are
        not valid.
    """

    file: Path
    rank: int | None
    world_size: int | None
    steps: Mapping[int, tuple[int, int]]
    spans: Mapping[str, np.ndarray]
    collectives: tuple[Collective, ...]
    num_left_out: int

    @property
    def uses_gpu(self) -> bool:
        return len(self.spans[KERNEL]) > 0


def read_trace(file: Path) -> RankTrace:
    """Return the trace in a file.

    Raises:
      OSError: If it cannot be read, is not a trace, or has no steps.
    """
    stream = EventStream(file)
    steps: dict[int, tuple[int, int]] = {}
    times: dict[str, array] = defaultdict(lambda: array("q"))
    collectives = []
    num_left_out = 0
    for event in stream.read_events():
        kind = _classify_event(event)
        if kind is None:
            continue
        span = _read_span(event)
        if span is None:
            num_left_out += 1
        elif kind == _STEP:
            number = event["name"].partition("#")[2]
            steps[int(number)] = span
        elif kind == _COLLECTIVE:
            collectives.append(_make_collective(event, span))
        else:
            times[kind].extend(span)
    if not steps:
        raise DoorError(
            file,
            "has no ProfilerStep#; call step() of torch.profiler.profile after each "
            "batch",
        )
    base_ns = _keep_if_whole(stream.header.get("baseTimeNanoseconds")) or 0
    rank, world_size = _read_ranks(stream.header)
    if rank is None:
        rank = _find_rank_in_name(file)
    spans = {}
    for kind in (OPERATOR, EXCHANGE_CALL, NCCL_CALL, KERNEL, COPY, INPUT):
        spans[kind] = np.array(times[kind], np.int64).reshape(-1, 2) + base_ns
    for number, (start_ns, end_ns) in steps.items():
        steps[number] = (start_ns + base_ns, end_ns + base_ns)
    collectives.sort()
    return RankTrace(
        file=file,
        rank=rank,
        world_size=world_size,
        steps=steps,
        spans=spans,
        collectives=tuple(shift_call(call, base_ns) for call in collectives),
        num_left_out=num_left_out,
    )


def _read_ranks(header: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the rank and the number of ranks; None if the trace does not have them."""
    info = header.get("distributedInfo")
    if not isinstance(info, dict):
        return None, None
    return _keep_if_whole(info.get("rank")), _keep_if_whole(info.get("world_size"))


def _find_rank_in_name(file: Path) -> int | None:
    """Return the rank in the name of a file, such as 3 in "rank3.json"."""
    match = _RANK_IN_NAME.search(file.name)
    return int(match[1]) if match else None


def _make_collective(event: Mapping[str, Any], span: tuple[int, int]) -> Collective:
    args = event.get("args")
    group = args.get("Process Group Name", "") if isinstance(args, dict) else ""
    name = event["name"].partition("(")[0]
    start_ns, end_ns = span
    return Collective(start_ns, end_ns, str(group), name)


def shift_call(call: Collective, by_ns: int) -> Collective:
    """Return a call on another clock."""
    return Collective(call.start_ns + by_ns, call.end_ns + by_ns, *call[2:])


def _classify_event(event: Any) -> str | None:
    """Return what an event is, or None if it is not needed."""
    if not isinstance(event, dict):
        return None
    name = event.get("name")
    category = str(event.get("cat", "")).lower()
    if event.get("ph") != "X" or not isinstance(name, str):
        return None
    if category == "kernel":
        return _COLLECTIVE if is_communication(name) else KERNEL
    if category.endswith(("memcpy", "memset")):
        return COPY
    if category.startswith("gpu_"):  # repeats the annotations of the host
        return None
    if _STEP_NAME.fullmatch(name):
        return _STEP
    for beginning, kind in _NAMES.items():
        if name.startswith(beginning):
            return kind
    return OPERATOR if category in ("cpu_op", "operator") else None


def _read_span(event: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the start and the end in ns; None if they are not usable numbers."""
    times_ns = []
    for time_us in (event.get("ts"), event.get("dur", 0)):
        if not isinstance(time_us, (int, float)) or not math.isfinite(time_us):
            return None
        if abs(time_us) >= _MAX_US:
            return None
        times_ns.append(round(time_us * 1000))
    start_ns, length_ns = times_ns
    return (start_ns, start_ns + length_ns) if length_ns >= 0 else None


def _keep_if_whole(value: object) -> int | None:
    """Return a number of the header; None if it is not a usable whole number."""
    return value if type(value) is int and 0 <= value < 2**61 else None
