"""Traced steps -> Chrome trace events: a file that Perfetto (ui.perfetto.dev) and chrome://tracing open. Pure.

A process for each tower holds one track with the parts of its time, the same as in phases.split, and a track for each
thread or stream with the kernels that the tower ran there. A further process holds the steps and what towers share.

Source of the format: "Trace Event Format", Google, 2016 (complete events X, asynchronous events b and e, metadata M).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import record
from rnn_scaling.inspection import phases
from rnn_scaling.inspection.events import COPY, WAIT, Kernel, TracedStep

SHARED_PROCESS = 1  # towers follow: their number + 2
PARTS_TRACK = 1  # of a tower; of the shared process: the steps
TITLES = {
    phases.EXPOSED: "exchange, exposed",
    phases.STARVED: "waits for input",
    phases.WAITS: "waits for other towers",
    **{f"shared_{phase}": f"{phase} of all towers" for phase in phases.SHARED},
}


def render(steps: Sequence[TracedStep], num_towers: int) -> bytes:
    """The trace as gzipped JSON; the same events give the same bytes.

    Raises:
      ValueError: what `phases.split` raises.
    """
    content = {"traceEvents": events(steps, num_towers), "displayTimeUnit": "ms"}
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)


def write(steps: Sequence[TracedStep], num_towers: int, path: Path) -> None:
    """Writes `render`'s bytes whole or not at all.

    Raises:
      OSError: if the folder cannot be written.
    """
    record.write_bytes(render(steps, num_towers), path)


def events(steps: Sequence[TracedStep], num_towers: int) -> list[dict[str, Any]]:
    """The events; times in microseconds from the start of the first step, to the nanosecond."""
    tracks: dict[tuple[int, str], int] = {}  # (process, lane) -> its number
    lanes = sorted(
        {(_process(kernel), _lane(kernel)) for step in steps for kernel in step.kernels if kernel.kind != WAIT}
    )
    for process, lane in lanes:
        tracks[process, lane] = PARTS_TRACK + 1 + sum(1 for other, _ in tracks if other == process)
    found = list(_names(num_towers, tracks))
    zero = steps[0].start_ns if steps else 0
    for number, step in enumerate(steps):
        times = _times(step.start_ns, step.end_ns, zero)
        found.append(
            {"ph": "X", "name": f"step {number}", "cat": "step", "pid": SHARED_PROCESS, "tid": PARTS_TRACK, **times}
        )
        for tower, parts in enumerate(phases.segments(step, num_towers)):
            where = {"ph": "X", "cat": "part", "pid": SHARED_PROCESS + 1 + tower, "tid": PARTS_TRACK}
            for part, start, end in parts:
                title = TITLES.get(part, part)
                found.append({"name": title, **where, **_times(start, end, zero), "args": {"step": number}})
        for index, kernel in enumerate(step.kernels):
            found += _kernel(kernel, number, f"{number}.{index}", tracks, zero)
    return found


def _names(num_towers: int, tracks: dict[tuple[int, str], int]) -> Iterator[dict[str, Any]]:
    processes = {SHARED_PROCESS: "shared by all towers"}
    processes.update({SHARED_PROCESS + 1 + tower: f"tower {tower}" for tower in range(num_towers)})
    for process, name in processes.items():
        first = "steps" if process == SHARED_PROCESS else "parts of a step"
        # Towers first, one below the other; what they share below them.
        place = num_towers if process == SHARED_PROCESS else process - SHARED_PROCESS - 1
        yield _named("process_name", process, 0, name=name)
        yield _named("process_sort_index", process, 0, sort_index=place)
        yield _named("thread_name", process, PARTS_TRACK, name=first)
        yield _named("thread_sort_index", process, PARTS_TRACK, sort_index=PARTS_TRACK)
    for (process, lane), track in tracks.items():
        yield _named("thread_name", process, track, name=lane)
        yield _named("thread_sort_index", process, track, sort_index=track)


def _named(what: str, process: int, track: int, **values: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": values}


def _process(kernel: Kernel) -> int:
    return SHARED_PROCESS if kernel.tower is None else SHARED_PROCESS + 1 + kernel.tower


def _lane(kernel: Kernel) -> str:
    # A GPU's streams have the same names as another one's.
    device = kernel.device.rpartition("/")[2].removeprefix("device:")
    return f"{device} {kernel.lane}" + (", launches" if kernel.dispatched else "")


def _kernel(
    kernel: Kernel, step: int, number: str, tracks: dict[tuple[int, str], int], zero: int
) -> Iterator[dict[str, Any]]:
    process = _process(kernel)
    args = {"operator": kernel.name, "device": kernel.device, "phase": kernel.phase, "step": step}
    event = {"name": kernel.type, "cat": kernel.phase, "pid": process, "args": args}
    if kernel.kind == WAIT:
        # These overlap on no thread, which complete events cannot; asynchronous ones get tracks of their own.
        common = {"name": f"{kernel.type} (waits)", "cat": f"{kernel.phase}, waits", "id": number, "pid": process}
        common["tid"] = PARTS_TRACK
        yield {"ph": "b", **common, "ts": _us(kernel.start_ns - zero), "args": args}
        yield {"ph": "e", **common, "ts": _us(kernel.end_ns - zero)}
        return
    if kernel.kind == COPY:
        args["copy"] = True
    times = _times(kernel.start_ns, kernel.end_ns, zero)
    yield {"ph": "X", **event, "tid": tracks[process, _lane(kernel)], **times}


def _times(start_ns: int, end_ns: int, zero: int) -> dict[str, float]:
    return {"ts": _us(start_ns - zero), "dur": _us(end_ns - start_ns)}


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000
