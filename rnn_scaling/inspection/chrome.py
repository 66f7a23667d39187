"""Traced steps -> Chrome trace events: a file that Perfetto (ui.perfetto.dev) and chrome://tracing open. Pure.

A process for each tower holds one track with the parts of its time, the same as in phases.split, and a track for each
thread or stream with the kernels that the tower ran there. A further process holds the steps and what towers share.

Source of the format: "Trace Event Format", Google, 2016 (complete events X, asynchronous events b and e, metadata M).
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.inspection import phases
from rnn_scaling.inspection.operators import COPY, WAIT, KernelEvent, TracedStep
from rnn_scaling.records.step_parts import EXPOSED, SHARED_OWN, STARVED, WAITS

APART = 10_000  # between the numbers of processes; their tracks are numbered between them: no number occurs twice
TITLES = {
    EXPOSED: "exchange, exposed",
    STARVED: "waits for input",
    WAITS: "waits for other towers",
    **{f"shared_{phase}": f"{phase} of all towers" for phase in SHARED_OWN},
}


def render(steps: Sequence[TracedStep], num_towers: int) -> bytes:
    """The trace as gzipped JSON; the same events give the same bytes. Raises ValueError as `phases.split` does."""
    content = {"traceEvents": events(steps, num_towers), "displayTimeUnit": "ms"}
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)


def events(steps: Sequence[TracedStep], num_towers: int) -> list[dict[str, Any]]:
    """Return the events.

    Times are in microseconds from the start of the first step, to the nanosecond.
    """
    tracks = _tracks(steps)
    entries = list(_names(num_towers, tracks))
    zero = steps[0].start_ns if steps else 0
    for number, step in enumerate(steps):
        at_step = {"step": number}
        mark: dict[str, Any] = {
            "name": f"step {number}",
            "cat": "step",
            **_first_track(None),
        }
        entries.append(_complete(mark, step.start_ns, step.end_ns, zero))
        for tower, parts in enumerate(phases.segments(step, num_towers)):
            where = {"cat": "part", **_first_track(tower)}
            for part, start, end in parts:
                shown = {"name": TITLES.get(part, part), **where, "args": at_step}
                entries.append(_complete(shown, start, end, zero))
        for index, kernel in enumerate(step.kernels):
            args: dict[str, Any] = {
                "operator": kernel.name,
                "device": kernel.device,
            }
            args |= {"phase": kernel.phase, **at_step}
            if kernel.kind == WAIT:
                entries += _wait(kernel, args, f"{number}.{index}", zero)
                continue
            if kernel.kind == COPY:
                args["copy"] = True
            process = _process(kernel.tower)
            track = tracks[process, _lane(kernel)]
            where = {"cat": kernel.phase, "pid": process, "tid": track}
            shown = {"name": kernel.type, **where, "args": args}
            entries.append(_complete(shown, kernel.start_ns, kernel.end_ns, zero))
    return entries


def _tracks(steps: Sequence[TracedStep]) -> dict[tuple[int, str], int]:
    """Return the number of the track of each process and lane."""
    lanes = {
        (_process(kernel.tower), _lane(kernel))
        for step in steps
        for kernel in step.kernels
        if kernel.kind != WAIT
    }
    tracks: dict[tuple[int, str], int] = {}
    last = 0
    for process, lane in sorted(lanes):
        last = max(last, process) + 1
        tracks[process, lane] = last
    return tracks


def _complete(
    event: dict[str, Any], start_ns: int, end_ns: int, zero: int
) -> dict[str, Any]:
    """Return a complete event with its times."""
    times = {"ts": _us(start_ns - zero), "dur": _us(end_ns - start_ns)}
    return {"ph": "X", **event, **times}


def _names(
    num_towers: int, tracks: dict[tuple[int, str], int]
) -> Iterator[dict[str, Any]]:
    for tower in (*range(num_towers), None):
        process = _process(tower)
        # Towers one below the other, and what they share below them.
        place = num_towers if tower is None else tower
        yield _named(
            "process_name",
            process,
            process,
            name="all towers" if tower is None else f"tower {tower}",
        )
        yield _named("process_sort_index", process, process, sort_index=place)
        yield _named(
            "thread_name",
            process,
            process,
            name="steps" if tower is None else "parts of a step",
        )
        yield _named("thread_sort_index", process, process, sort_index=0)
    for (process, lane), track in tracks.items():
        yield _named("thread_name", process, track, name=lane)
        yield _named("thread_sort_index", process, track, sort_index=track - process)


def _named(what: str, process: int, track: int, **values: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": values}


def _process(tower: int | None) -> int:
    return APART if tower is None else APART * (tower + 2)


def _first_track(tower: int | None) -> dict[str, int]:
    """A process's own number is its main thread's, which viewers put on top."""
    return {"pid": _process(tower), "tid": _process(tower)}


def _lane(kernel: KernelEvent) -> str:
    # A GPU's streams have the same names as another one's.
    device = kernel.device.rpartition("/")[2].removeprefix("device:")
    return f"{device} {kernel.lane}" + (", launches" if kernel.dispatched else "")


def _wait(
    kernel: KernelEvent, args: dict[str, Any], number: str, zero: int
) -> Iterator[dict[str, Any]]:
    """Yield the two ends of a wait.

    Waits overlap each other, which complete events of a track must not: these get
    tracks of their own.
    """
    wait = {
        "name": f"{kernel.type} (waits)",
        "cat": f"{kernel.phase}, waits",
        "id2": {"local": number},
        **_first_track(kernel.tower),
    }
    yield {"ph": "b", **wait, "ts": _us(kernel.start_ns - zero), "args": args}
    yield {"ph": "e", **wait, "ts": _us(kernel.end_ns - zero)}


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000
