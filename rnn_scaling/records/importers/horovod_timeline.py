"""Horovod's timeline: time in negotiation, queues, copies and collectives, in all and for each tensor.

Format: horovod/horovod, docs/timeline.rst and horovod/common/timeline.cc; Chrome's Trace Event Format, where a list
without its closing bracket is whole. A "process" is a tensor; "B" and "E" nest; "X" is a rank that became ready.
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

FORMAT = "horovod_timeline"
MAX_TENSORS = 100_000
_DETECT = re.compile(r'"NEGOTIATE_[A-Z]+"|"start_time_since_epoch_in_micros"')
NOTES = (
    "Rank 0 alone writes the file: times are rank 0's; a NEGOTIATE time includes waiting for the last rank to reach "
    "the tensor, so it grows with late ranks rather than with the network.",
    "Tensors that are fused into one message each show the time of the whole message: the sum over tensors counts it "
    "more than once; 'wall' counts every moment once.",
    "ALLREDUCE, ALLGATHER, BROADCAST ... are whole operations; QUEUE, MEMCPY_*, NCCL_*, MPI_*, GLOO_* lie within them.",
    "The timeline does not contain computation, so it does not show which of these times computation hides.",
)


@dataclasses.dataclass
class _Activity:
    """Sums of one kind of activity, in microseconds; `depth` is how many tensors are in it now."""

    count: int = 0
    total: float = 0.0
    longest: float = 0.0
    wall: float = 0.0
    depth: int = 0
    since: float = 0.0


@dataclasses.dataclass
class _Tensor:
    """One tensor: its open activities, its ranks' readiness, and microseconds by activity."""

    name: str
    open: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    ready: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    total: dict[str, float] = dataclasses.field(default_factory=dict)
    operations: int = 0


@dataclasses.dataclass
class _Rank:
    """How often a rank was the last one ready, and how much later than the first one, in microseconds."""

    ticks: int = 0
    last: int = 0
    late: float = 0.0


class HorovodTimeline(LogFormat):
    """The format; see `reading`."""

    name = FORMAT

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
        still_open = sum(bool(tensor.open) for tensor in trace.tensors.values())
        if still_open:
            notes.append(
                f"{still_open} tensors were in an activity at the end of the file; it is "
                "not counted."
            )
        if trace.cycles:
            notes.append(
                f"{trace.cycles} cycles of Horovod's background thread were marked."
            )
        tables = []
        if trace.by_activity:
            tables = [trace.activities(), trace.per_tensor(), trace.ranks_table()]
        nothing = "no activity that began and ended in this timeline"
        return make_reading(FORMAT, problems, nothing, tables=tables, notes=notes)


@dataclasses.dataclass
class _Trace:
    """Sums over the events so far."""

    problems: Problems
    tensors: dict[int, _Tensor] = dataclasses.field(default_factory=dict)
    by_activity: dict[str, _Activity] = dataclasses.field(default_factory=dict)
    ranks: dict[int, _Rank] = dataclasses.field(default_factory=dict)
    cycles: int = 0
    first: float = math.inf
    end: float = -math.inf

    def add(self, event: Any, line: int) -> None:
        """Takes one event; what is no event is a problem."""
        if not isinstance(event, dict) or "ph" not in event:
            self.problems.add(
                line,
                f"expected an event with 'ph', got {str(event)[:40]!r}",
                "no event",
            )
            return
        phase, pid = event["ph"], event.get("pid")
        if phase == "M":
            self._name(pid, event)
            return
        ts = finite_number(event.get("ts"))
        if ts is None or ts < 0:
            shown = repr(event.get("ts"))[:40]
            self.problems.add(
                line,
                f"expected 'ts' in microseconds of 0 or more, got {shown}",
                "bad ts",
            )
            return
        self.first, self.end = min(self.first, ts), max(self.end, ts)
        if phase == "i":
            self.cycles += event.get("name") == "CYCLE_START"
        elif phase in ("B", "E", "X"):
            tensor = self._tensor(pid, line)
            if tensor is not None:
                take = {"B": self._begin, "E": self._finish, "X": self._ready}[phase]
                take(tensor, str(event.get("name", "")), ts, line)

    def _name(self, pid: Any, event: Mapping[str, Any]) -> None:
        args = event.get("args")
        name = args.get("name") if isinstance(args, dict) else None
        if (
            isinstance(pid, int)
            and isinstance(name, str)
            and len(self.tensors) < MAX_TENSORS
        ):
            self.tensors[pid] = _Tensor(name)

    def _tensor(self, pid: Any, line: int) -> _Tensor | None:
        if not isinstance(pid, int):
            self.problems.add(line, f"expected a 'pid', got {pid!r}", "bad pid")
            return None
        if pid not in self.tensors:
            if len(self.tensors) >= MAX_TENSORS:
                self.problems.add(
                    line, f"more than {MAX_TENSORS} tensors; the rest is left out"
                )
                return None
            self.tensors[pid] = _Tensor(f"pid {pid}")
        return self.tensors[pid]

    def _begin(self, tensor: _Tensor, name: str, ts: float, line: int) -> None:
        known = name in self.by_activity or len(self.by_activity) < 200
        activity = self.by_activity.setdefault(name, _Activity()) if known else None
        if activity is None or len(tensor.open) > 20:
            self.problems.add(
                line,
                "more than 200 kinds of activities, or 20 within each other; left out",
            )
            return
        if activity.depth == 0:
            activity.since = ts
        activity.depth += 1
        tensor.open.append((name, ts))
        if name.startswith("NEGOTIATE_"):
            tensor.ready = []

    def _finish(self, tensor: _Tensor, _: str, ts: float, line: int) -> None:
        if not tensor.open:
            self.problems.add(
                line,
                f"{tensor.name}: an activity ends that did not begin",
                "end without begin",
            )
            return
        name, began = tensor.open.pop()
        activity, spent = self.by_activity[name], ts - began
        activity.depth -= 1
        if spent < 0:
            self.problems.add(
                line,
                f"{tensor.name}: {name} ends {-spent:g} us before it began; left out",
                "negative",
            )
            return
        if activity.depth == 0:
            activity.wall += max(ts - activity.since, 0.0)
        activity.count += 1
        activity.total += spent
        activity.longest = max(activity.longest, spent)
        tensor.total[name] = tensor.total.get(name, 0.0) + spent
        if name.startswith("NEGOTIATE_"):
            self._lateness(tensor)
        elif not tensor.open:
            tensor.operations += 1

    def _ready(self, tensor: _Tensor, name: str, ts: float, line: int) -> None:
        # isdecimal, because int() refuses other digits such as superscripts.
        if name.isdecimal() and len(name) < 8:
            tensor.ready.append((ts, int(name)))

    def _lateness(self, tensor: _Tensor) -> None:
        for _, rank in tensor.ready:
            self.ranks.setdefault(rank, _Rank()).ticks += 1
        if len(tensor.ready) > 1:
            (first, _), (last, rank) = min(tensor.ready), max(tensor.ready)
            self.ranks[rank].last += 1
            self.ranks[rank].late += last - first
        tensor.ready = []

    def activities(self) -> Table:
        """Totals by activity, the largest wall time first."""
        columns = (
            "Activity",
            "Count",
            "Sum over tensors (ms)",
            "Mean (us)",
            "Longest (us)",
            "Wall (ms)",
            "Wall share",
        )
        span = self.end - self.first
        ended = [(name, a) for name, a in self.by_activity.items() if a.count]
        rows = [
            (
                name,
                a.count,
                a.total / 1e3,
                a.total / a.count,
                a.longest,
                a.wall / 1e3,
                a.wall / span if span else None,
            )
            for name, a in sorted(ended, key=lambda pair: -pair[1].wall)
        ]
        return Table(f"Activities in {span / 1e3:.3f} ms", columns, tuple(rows))

    def per_tensor(self) -> Table:
        """Milliseconds by tensor and activity, the largest sum first."""
        names = [name for name, activity in self.by_activity.items() if activity.count]
        tensors = sorted(
            (t for t in self.tensors.values() if t.total),
            key=lambda t: -sum(t.total.values()),
        )
        rows = []
        for tensor in tensors:
            times = (
                tensor.total[name] / 1e3 if name in tensor.total else None
                for name in names
            )
            rows.append((tensor.name, tensor.operations, *times))
        return Table(
            "Tensors",
            ("Tensor", "Operations", *(f"{name} (ms)" for name in names)),
            tuple(rows),
        )

    def ranks_table(self) -> Table:
        """Which ranks the others waited for."""
        rows = [
            (rank, r.ticks, r.last, r.late / r.last if r.last else None)
            for rank, r in sorted(self.ranks.items())
        ]
        columns = (
            "Rank",
            "Times ready",
            "Times the last one",
            "Mean time behind the first one when last (us)",
        )
        return Table("Ranks in negotiation", columns, tuple(rows))
