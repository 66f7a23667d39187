"""Horovod's timeline: time in negotiation, queues, copies and collective operations.

Format: horovod/horovod, docs/timeline.rst and horovod/common/timeline.cc; Chrome's Trace
Event Format, in which the closing bracket of the list is optional. A "process" is a
tensor; "B" and "E" events are nested; an "X" event is a rank that became ready.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rnn_scaling.records.importers.json_stream import JsonFault, items
from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    finite_number,
    make_reading,
)
from rnn_scaling.system.files.markdown import Table

MAX_TENSORS = 100_000
MAX_ACTIVITIES = 200  # kinds of activities
MAX_DEPTH = 20  # activities of one tensor that contain each other
_DETECT = re.compile(r'"NEGOTIATE_[A-Z]+"|"start_time_since_epoch_in_micros"')
NOTES = (
    "Rank 0 alone writes the file: times are rank 0's; a NEGOTIATE time includes "
    "waiting for the last rank to reach the tensor, so it grows with late ranks rather "
    "than with the network.",
    "Tensors that are fused into one message each show the time of the whole message: "
    "the sum over tensors counts it more than once; 'wall' counts every moment once.",
    "ALLREDUCE, ALLGATHER, BROADCAST ... are whole operations; QUEUE, MEMCPY_*, NCCL_*, "
    "MPI_*, GLOO_* lie within them.",
    "The timeline does not contain computation, so it does not show which of these "
    "times computation hides.",
)
_ACTIVITY_COLUMNS = (
    "Activity", "Count", "Sum over tensors (ms)", "Mean (us)", "Longest (us)",
    "Wall (ms)", "Wall share",
)  # fmt: skip
_RANK_COLUMNS = (
    "Rank", "Times ready", "Times the last one",
    "Mean time behind the first one when last (us)",
)  # fmt: skip


@dataclasses.dataclass
class _Activity:
    """Sums over all tensors of one kind of activity, in microseconds."""

    count: int = 0
    total_us: float = 0.0
    longest_us: float = 0.0
    wall_us: float = 0.0
    num_open: int = 0  # tensors that are in the activity now
    open_since_us: float = 0.0


@dataclasses.dataclass
class _Tensor:
    """The activities of one tensor."""

    name: str
    # Names and starts of the activities that have not ended, the innermost last.
    open: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    # Time and rank of each rank that became ready in this negotiation.
    ready: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    total_us: dict[str, float] = dataclasses.field(default_factory=dict)
    num_operations: int = 0


@dataclasses.dataclass
class _Rank:
    """The negotiations of one rank."""

    num_ready: int = 0
    num_last: int = 0
    late_us: float = 0.0  # sum of the times behind the first rank


class HorovodTimeline(LogFormat):
    """The timeline of a run."""

    name = "horovod_timeline"

    def detect(self, text: str) -> bool:
        """Return whether a text begins a list of events."""
        return text.lstrip()[:1] == "[" and _DETECT.search(text) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the sums of the events."""
        problems = Problems()
        trace = _Trace(problems)
        text = "".join(lines)
        notes = list(NOTES)
        try:
            for line, event in items(text, text.find("[") + 1):
                trace.add(event, line)
        except JsonFault as e:
            if e.between:
                notes.append(
                    "The closing bracket is missing: the job was stopped or still runs; "
                    "the events are whole."
                )
            else:
                problems.add(e.line, str(e))
        num_open = sum(bool(tensor.open) for tensor in trace.tensors.values())
        if num_open:
            notes.append(
                f"{num_open} tensors were in an activity at the end of the file; it is "
                "not counted."
            )
        if trace.num_cycles:
            notes.append(
                f"{trace.num_cycles} cycles of Horovod's background thread were marked."
            )
        return make_reading(
            self.name,
            problems,
            "no activity that began and ended in this timeline",
            tables=trace.tables() if trace.activities else [],
            notes=notes,
        )


@dataclasses.dataclass
class _Trace:
    """Sums over the events so far."""

    problems: Problems
    tensors: dict[int, _Tensor] = dataclasses.field(default_factory=dict)
    activities: dict[str, _Activity] = dataclasses.field(default_factory=dict)
    ranks: dict[int, _Rank] = dataclasses.field(default_factory=dict)
    num_cycles: int = 0
    first_us: float = math.inf
    last_us: float = -math.inf

    def add(self, event: Any, line: int) -> None:
        """Add one event, or report why it is not an event."""
        if not isinstance(event, dict) or "ph" not in event:
            reason = f"expected an event with 'ph', got {str(event)[:40]!r}"
            self.problems.add(line, reason, "no event")
            return
        phase = event["ph"]
        if phase == "M":
            self._name_tensor(event)
            return
        us = finite_number(event.get("ts"))
        if us is None or us < 0:
            shown = repr(event.get("ts"))[:40]
            reason = f"expected 'ts' in microseconds of 0 or more, got {shown}"
            self.problems.add(line, reason, "bad ts")
            return

        self.first_us = min(self.first_us, us)
        self.last_us = max(self.last_us, us)
        name = str(event.get("name", ""))
        if phase == "i":
            self.num_cycles += name == "CYCLE_START"
        if phase not in ("B", "E", "X"):
            return
        tensor = self._find_tensor(event.get("pid"), line)
        if tensor is None:
            return
        if phase == "B":
            self._begin(tensor, name, us, line)
        elif phase == "E":
            self._end(tensor, us, line)
        # str.isdecimal, because int() refuses other digits such as superscripts.
        elif name.isdecimal() and len(name) < 8:
            tensor.ready.append((us, int(name)))

    def _name_tensor(self, event: Mapping[str, Any]) -> None:
        pid = event.get("pid")
        args = event.get("args")
        name = args.get("name") if isinstance(args, dict) else None
        if not isinstance(pid, int) or not isinstance(name, str):
            return
        if len(self.tensors) < MAX_TENSORS:
            self.tensors[pid] = _Tensor(name)

    def _find_tensor(self, pid: Any, line: int) -> _Tensor | None:
        if not isinstance(pid, int):
            self.problems.add(line, f"expected a 'pid', got {pid!r}", "bad pid")
            return None
        if pid not in self.tensors:
            if len(self.tensors) >= MAX_TENSORS:
                reason = f"more than {MAX_TENSORS} tensors; the rest is left out"
                self.problems.add(line, reason)
                return None
            self.tensors[pid] = _Tensor(f"pid {pid}")
        return self.tensors[pid]

    def _begin(self, tensor: _Tensor, name: str, us: float, line: int) -> None:
        is_new = name not in self.activities
        has_room = not is_new or len(self.activities) < MAX_ACTIVITIES
        if not has_room or len(tensor.open) > MAX_DEPTH:
            reason = (
                f"more than {MAX_ACTIVITIES} kinds of activities, or {MAX_DEPTH} within "
                "each other; left out"
            )
            self.problems.add(line, reason)
            return
        activity = self.activities.setdefault(name, _Activity())
        if activity.num_open == 0:
            activity.open_since_us = us
        activity.num_open += 1
        tensor.open.append((name, us))
        if name.startswith("NEGOTIATE_"):
            tensor.ready = []

    def _end(self, tensor: _Tensor, us: float, line: int) -> None:
        if not tensor.open:
            reason = f"{tensor.name}: an activity ends that did not begin"
            self.problems.add(line, reason, "end without begin")
            return
        name, begin_us = tensor.open.pop()
        activity = self.activities[name]
        activity.num_open -= 1
        took_us = us - begin_us
        if took_us < 0:
            early = f"ends {-took_us:g} us before it began"
            reason = f"{tensor.name}: {name} {early}; left out"
            self.problems.add(line, reason, "negative")
            return

        if activity.num_open == 0:
            activity.wall_us += max(us - activity.open_since_us, 0.0)
        activity.count += 1
        activity.total_us += took_us
        activity.longest_us = max(activity.longest_us, took_us)
        tensor.total_us[name] = tensor.total_us.get(name, 0.0) + took_us
        if name.startswith("NEGOTIATE_"):
            self._end_negotiation(tensor)
        elif not tensor.open:
            tensor.num_operations += 1

    def _end_negotiation(self, tensor: _Tensor) -> None:
        """Add the ranks that became ready to the sums of the ranks."""
        for _, rank in tensor.ready:
            self.ranks.setdefault(rank, _Rank()).num_ready += 1
        if len(tensor.ready) > 1:
            first_us, _ = min(tensor.ready)
            last_us, rank = max(tensor.ready)
            self.ranks[rank].num_last += 1
            self.ranks[rank].late_us += last_us - first_us
        tensor.ready = []

    def tables(self) -> list[Table]:
        """Return the sums by activity, by tensor and by rank."""
        span_us = self.last_us - self.first_us
        ended = {name: each for name, each in self.activities.items() if each.count}
        activity_rows = []
        for name in sorted(ended, key=lambda name: -ended[name].wall_us):
            activity = ended[name]
            row = (
                name,
                activity.count,
                activity.total_us / 1e3,
                activity.total_us / activity.count,
                activity.longest_us,
                activity.wall_us / 1e3,
                activity.wall_us / span_us if span_us else None,
            )
            activity_rows.append(row)

        tensors = [tensor for tensor in self.tensors.values() if tensor.total_us]
        tensors.sort(key=lambda tensor: -sum(tensor.total_us.values()))
        tensor_rows = []
        for tensor in tensors:
            times = [_milliseconds(tensor.total_us.get(name)) for name in ended]
            tensor_rows.append((tensor.name, tensor.num_operations, *times))
        tensor_columns = ("Tensor", "Operations", *(f"{name} (ms)" for name in ended))

        rank_rows = []
        for number, rank in sorted(self.ranks.items()):
            mean_us = rank.late_us / rank.num_last if rank.num_last else None
            rank_rows.append((number, rank.num_ready, rank.num_last, mean_us))
        title = f"Activities in {span_us / 1e3:.3f} ms"
        return [
            Table(title, _ACTIVITY_COLUMNS, tuple(activity_rows)),
            Table("Tensors", tensor_columns, tuple(tensor_rows)),
            Table("Ranks in negotiation", _RANK_COLUMNS, tuple(rank_rows)),
        ]


def _milliseconds(us: float | None) -> float | None:
    return None if us is None else us / 1e3
