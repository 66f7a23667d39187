"""A kept trace made ready for TensorBoard's tab Profile: its tools find the steps, its timeline names the towers. Pure.

TensorFlow says of every piece of an executor's work which iteration of a loop it belongs to. Where a step has loops,
the tab takes each iteration for a step of its own and then ignores the marked ones: it finds no step time at all
(xla/tsl/profiler/utils/group_events.cc, ProcessTensorFlowLoop). Without that statistic the marked steps are found.
A pool's thread serves all towers in turn, so that no thread is a tower's: towers get lines of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnn_scaling.inspection import phases
from rnn_scaling.inspection.chrome import TITLES
from rnn_scaling.inspection.events import WAIT, Kernel, TracedStep
from rnn_scaling.inspection.xplane import HOST_PLANE

ITERATION = "iter_num"  # the statistic that says which iteration of a loop a piece of work belongs to
TOWERS_PLANE = "/device:CUSTOM:towers"  # the viewer shows planes that begin like this, and no tool counts their events
PS = 1000  # picoseconds a nanosecond


def prepare(space: Any, steps: Sequence[TracedStep], devices: Sequence[str]) -> None:
    """Changes a trace for the tab.

    Args:
      steps: what `xplane.read` made of it.

    Raises:
      ValueError: what `phases.segments` raises.
    """
    for plane in space.planes:
        if plane.name == HOST_PLANE:
            _forget_iterations(plane)
    _Towers(space.planes.add(id=len(space.planes), name=TOWERS_PLANE), steps, devices).write()


def _line_name(tower: int, device: str) -> str:
    """ "tower 0 (/cpu:0)" of tower 0 on "/job:localhost/.../device:CPU:0"."""
    return f"tower {tower} (/{device.rpartition('/')[2].removeprefix('device:').lower()})"


def _forget_iterations(plane: Any) -> None:
    iterations = {number for number, metadata in plane.stat_metadata.items() if metadata.name == ITERATION}
    for line in plane.lines:
        for event in line.events:
            for i in reversed(range(len(event.stats))):
                if event.stats[i].metadata_id in iterations:
                    del event.stats[i]


class _Towers:
    """The lines of the towers: the parts of each one's time, and below them its kernels, a line for each thread."""

    def __init__(self, plane: Any, steps: Sequence[TracedStep], devices: Sequence[str]) -> None:
        self._plane, self._steps, self._devices = plane, steps, devices
        self._zero = min((step.start_ns for step in steps), default=0)
        self._numbers: dict[str, int] = {}  # of the names of events
        lanes = {each.lane for step in steps for each in step.kernels if each.kind != WAIT}
        self._threads = {lane: f"thread {k}" for k, lane in enumerate(sorted(lanes), start=1)}

    def write(self) -> None:
        parts = [phases.segments(step, len(self._devices)) for step in self._steps]
        for tower, device in enumerate(self._devices):
            name = _line_name(tower, device)
            line = self._line(name)
            for step in parts:
                for part, start, end in step[tower]:
                    self._event(line, TITLES.get(part, part), start, end)
            kernels = [each for step in self._steps for each in step.kernels if each.tower == tower]
            self._kernels(name, kernels)
        self._kernels("all towers", [each for step in self._steps for each in step.kernels if each.tower is None])

    def _kernels(self, name: str, kernels: Sequence[Kernel]) -> None:
        """A line for each thread or stream; waits are on none."""
        work = [each for each in kernels if each.kind != WAIT]
        for lane in sorted({each.lane for each in work}):
            line = self._line(f"{name}, {self._threads[lane]}")
            for each in work:
                if each.lane == lane:
                    self._event(line, f"{each.phase} {each.type}", each.start_ns, each.end_ns)

    def _line(self, name: str) -> Any:
        number = len(self._plane.lines) + 1
        return self._plane.lines.add(id=number, display_id=number, name=name, timestamp_ns=self._zero)

    def _event(self, line: Any, name: str, start_ns: int, end_ns: int) -> None:
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        self._plane.event_metadata[number].id, self._plane.event_metadata[number].name = number, name
        offset, duration = (start_ns - self._zero) * PS, (end_ns - start_ns) * PS
        line.events.add(metadata_id=number, offset_ps=offset, duration_ps=duration)
