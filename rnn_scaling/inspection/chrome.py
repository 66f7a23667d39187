"""Write traced steps as a Chrome trace for Perfetto (ui.perfetto.dev).

Each tower is a process with one track for the parts of its time (see `phases.split`)
and one track per thread or stream for its kernels. Another process has the steps and
the kernels that towers share.

Source of the format: "Trace Event Format", Google, 2016 (complete events X,
asynchronous events b and e, metadata M).

`observe` writes the file with `render`; nothing else reads these events.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.inspection import phases
from rnn_scaling.inspection.operators import COPY, WAIT, KernelEvent, TracedStep
from rnn_scaling.records.step_parts import EXPOSED, SHARED_OWN, STARVED, WAITS

# Distance between the numbers of two processes. Tracks use the numbers in between, so
# every number is unique.
PROCESS_SPACING = 10_000
TITLES = {
    EXPOSED: "exchange, exposed",
    STARVED: "waits for input",
    WAITS: "waits for other towers",
    **{f"shared_{phase}": f"{phase} of all towers" for phase in SHARED_OWN},
}


def render(steps: Sequence[TracedStep], num_towers: int) -> bytes:
    """Return the trace as gzipped JSON; equal events give equal bytes.

    Raises:
      ValueError: If `phases.split` refuses a step.
    """
    content = {"traceEvents": make_events(steps, num_towers), "displayTimeUnit": "ms"}
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)


def make_events(steps: Sequence[TracedStep], num_towers: int) -> list[dict[str, Any]]:
    """Return all events of the trace.

    Times are in microseconds from the start of the first step, with a resolution of a
    nanosecond.
    """
    tracks = _number_tracks(steps)
    events = list(_make_name_events(num_towers, tracks))
    zero_ns = steps[0].start_ns if steps else 0
    for number, step in enumerate(steps):
        events.append(_make_step_event(number, step, zero_ns))
        events += _make_part_events(number, step, num_towers, zero_ns)
        for index, kernel in enumerate(step.kernels):
            if kernel.kind == WAIT:
                wait_id = f"{number}.{index}"
                events += _make_wait_events(number, kernel, wait_id, zero_ns)
            else:
                events.append(_make_kernel_event(number, kernel, tracks, zero_ns))
    return events


def _make_step_event(number: int, step: TracedStep, zero_ns: int) -> dict[str, Any]:
    event = {"name": f"step {number}", "cat": "step", **_main_track(None)}
    return _complete_event(event, step.start_ns, step.end_ns, zero_ns)


def _make_part_events(
    number: int, step: TracedStep, num_towers: int, zero_ns: int
) -> Iterator[dict[str, Any]]:
    """Yield the parts of each tower's time."""
    for tower, parts in enumerate(phases.list_segments(step, num_towers)):
        track = {"cat": "part", **_main_track(tower)}
        for part, start_ns, end_ns in parts:
            name = TITLES.get(part, part)
            event = {"name": name, **track, "args": {"step": number}}
            yield _complete_event(event, start_ns, end_ns, zero_ns)


def _make_kernel_event(
    number: int,
    kernel: KernelEvent,
    tracks: Mapping[tuple[int, str], int],
    zero_ns: int,
) -> dict[str, Any]:
    """Return the event of a kernel that is not a wait."""
    args = _kernel_args(number, kernel)
    if kernel.kind == COPY:
        args["copy"] = True
    process = _process_number(kernel.tower)
    event = {
        "name": kernel.type,
        "cat": kernel.phase,
        "pid": process,
        "tid": tracks[process, _name_lane(kernel)],
        "args": args,
    }
    return _complete_event(event, kernel.start_ns, kernel.end_ns, zero_ns)


def _kernel_args(number: int, kernel: KernelEvent) -> dict[str, Any]:
    """Return the details that viewers show for a kernel of step `number`."""
    return {
        "operator": kernel.name,
        "device": kernel.device,
        "phase": kernel.phase,
        "step": number,
    }


def _number_tracks(steps: Sequence[TracedStep]) -> dict[tuple[int, str], int]:
    """Return the number of the track of each process and lane."""
    lanes = set()
    for step in steps:
        for kernel in step.kernels:
            if kernel.kind != WAIT:
                lanes.add((_process_number(kernel.tower), _name_lane(kernel)))
    tracks: dict[tuple[int, str], int] = {}
    last_track = 0
    for process, lane in sorted(lanes):
        # A new process starts after its own number.
        last_track = max(last_track, process) + 1
        tracks[process, lane] = last_track
    return tracks


def _complete_event(
    event: dict[str, Any], start_ns: int, end_ns: int, zero_ns: int
) -> dict[str, Any]:
    """Return an event with a start and a duration (phase X, "complete")."""
    times = {
        "ts": _convert_to_microseconds(start_ns - zero_ns),
        "dur": _convert_to_microseconds(end_ns - start_ns),
    }
    return {"ph": "X", **event, **times}


def _make_name_events(
    num_towers: int, tracks: dict[tuple[int, str], int]
) -> Iterator[dict[str, Any]]:
    """Yield names and positions of processes and tracks, shared ones last."""
    processes = [
        (_process_number(tower), f"tower {tower}", "parts of a step")
        for tower in range(num_towers)
    ]
    processes.append((_process_number(None), "all towers", "steps"))
    for index, (process, name, track_name) in enumerate(processes):
        yield _make_metadata_event("process_name", process, process, name=name)
        yield _make_metadata_event(
            "process_sort_index", process, process, sort_index=index
        )
        yield _make_metadata_event("thread_name", process, process, name=track_name)
        yield _make_metadata_event("thread_sort_index", process, process, sort_index=0)
    for (process, lane), track in tracks.items():
        yield _make_metadata_event("thread_name", process, track, name=lane)
        yield _make_metadata_event(
            "thread_sort_index", process, track, sort_index=track - process
        )


def _make_metadata_event(
    kind: str, process: int, track: int, **values: Any
) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": values}


def _process_number(tower: int | None) -> int:
    """Return the number of a tower's process; None for all towers together.

    All towers together have the first number, because 0 is not a process.
    """
    if tower is None:
        return PROCESS_SPACING
    return PROCESS_SPACING * (2 + tower)


def _main_track(tower: int | None) -> dict[str, int]:
    """Return the process and the main track of a tower, or of all towers together.

    Viewers put the track whose number is the number of its process first.
    """
    process = _process_number(tower)
    return {"pid": process, "tid": process}


def _name_lane(kernel: KernelEvent) -> str:
    """Return the name of a kernel's track: its device and its thread or stream."""
    # Streams of different GPUs have the same names.
    device = kernel.device.rpartition("/")[2].removeprefix("device:")
    launches = ", launches" if kernel.is_launch_only else ""
    return f"{device} {kernel.lane}{launches}"


def _make_wait_events(
    number: int, kernel: KernelEvent, wait_id: str, zero_ns: int
) -> Iterator[dict[str, Any]]:
    """Yield the two ends of a wait in step `number`.

    Complete events of a track must not overlap, but waits do, so they are asynchronous
    events.
    """
    wait = {
        "name": f"{kernel.type} (waits)",
        "cat": f"{kernel.phase}, waits",
        "id2": {"local": wait_id},
        **_main_track(kernel.tower),
    }
    yield {
        "ph": "b",
        **wait,
        "ts": _convert_to_microseconds(kernel.start_ns - zero_ns),
        "args": _kernel_args(number, kernel),
    }
    yield {"ph": "e", **wait, "ts": _convert_to_microseconds(kernel.end_ns - zero_ns)}


def _convert_to_microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1000
