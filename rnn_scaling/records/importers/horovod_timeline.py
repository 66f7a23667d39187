"""Horovod's timeline: time in negotiation, queues, copies and collective operations.

Format: horovod/horovod, docs/timeline.rst and horovod/common/timeline.cc; Chrome's
Trace Event Format, in which the closing bracket of the list is optional. A "process" is
a tensor; "B" and "E" events are nested; an "X" event is a rank that became ready.
"""

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rnn_scaling.records.importers.json_stream import JsonFault, read_items
from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    make_reading,
    read_finite_number,
)
from rnn_scaling.system.files.markdown import Table
from rnn_scaling.system.files.terminal import format_count

_NOTES = (
    "Only rank 0 writes the file, so all times are from rank 0. A NEGOTIATE "
    "time includes waiting for the last rank to reach the tensor, so it grows "
    "with late ranks rather than with the network.",
    "Tensors that are fused into one message each show the time of the whole message: "
    "the sum over tensors counts it more than once; 'wall' counts every moment once.",
    "ALLREDUCE, ALLGATHER, BROADCAST ... are whole operations; QUEUE, MEMCPY_*, "
    "NCCL_*, MPI_*, GLOO_* lie within them.",
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


class _Span(NamedTuple):
    """One activity of one tensor."""

    pid: int
    begin_us: float
    end_us: float

    @property
    def us(self) -> float:
        return self.end_us - self.begin_us


class HorovodTimeline(LogFormat):
    """The timeline of a run."""

    name = "horovod_timeline"
    needles = ("NEGOTIATE_", "start_time_since_epoch_in_micros")
    has_rates = False
    detected = r'\A\s*\[(?s:.*?)("NEGOTIATE_[A-Z]+"|"start_time_since_epoch_in_micros")'

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the sums of the events."""
        problems = Problems()
        timeline = _Timeline(problems)
        text = "".join(lines)
        notes = list(_NOTES)
        try:
            for line, event in read_items(text, text.find("[") + 1):
                timeline.add(event, line)
        except JsonFault as e:
            if e.is_between_values:
                notes.append(
                    "The closing bracket is missing because the job was "
                    "stopped or is still running; the events are complete."
                )
            else:
                problems.add(e.line, str(e))
        num_open = sum(map(bool, timeline.open.values()))
        if num_open:
            notes.append(
                f"At the end of the file, {format_count(num_open, 'tensor')} had an "
                "unfinished activity, which is not counted."
            )
        if timeline.num_cycles:
            notes.append(
                f"The timeline marks {format_count(timeline.num_cycles, 'cycle')} "
                "of Horovod's background thread."
            )
        return make_reading(
            self.name,
            problems,
            "this timeline contains no activity that began and ended in it",
            tables=timeline.tables(),
            notes=notes,
        )


@dataclasses.dataclass
class _Timeline:
    """The activities of all tensors, and the ranks that became ready for them."""

    problems: Problems
    # By process ID, which stands for a tensor.
    tensors: dict[int, str] = dataclasses.field(default_factory=dict)
    # Names and starts of the activities that have not ended, the innermost last.
    open: dict[int, list[tuple[str, float]]] = dataclasses.field(default_factory=dict)
    # Time and rank of each rank that became ready in the present negotiation.
    ready: dict[int, list[tuple[float, int]]] = dataclasses.field(default_factory=dict)
    num_operations: Counter[int] = dataclasses.field(default_factory=Counter)
    activities: dict[str, list[_Span]] = dataclasses.field(default_factory=dict)
    negotiations: list[list[tuple[float, int]]] = dataclasses.field(
        default_factory=list
    )
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
        pid = event.get("pid")
        if phase == "M":
            args = event.get("args")
            name = args.get("name") if isinstance(args, dict) else None
            if isinstance(pid, int) and isinstance(name, str):
                self.tensors[pid] = name
            return
        us = read_finite_number(event.get("ts"))
        if us is None or us < 0:
            text = repr(event.get("ts"))[:40]
            reason = f"expected 'ts' in microseconds of 0 or more, got {text}"
            self.problems.add(line, reason, "bad ts")
            return

        self.first_us = min(self.first_us, us)
        self.last_us = max(self.last_us, us)
        name = str(event.get("name", ""))
        if phase == "i":
            self.num_cycles += name == "CYCLE_START"
        if phase not in ("B", "E", "X"):
            return
        if not isinstance(pid, int):
            self.problems.add(line, f"expected a 'pid', got {pid!r}", "bad pid")
        elif phase == "B":
            self._begin(pid, name, us)
        elif phase == "E":
            self._end(pid, us, line)
        # str.isdecimal, because int() refuses other digits such as superscripts.
        elif name.isdecimal() and len(name) < 8:
            self.ready.setdefault(pid, []).append((us, int(name)))

    def _begin(self, pid: int, name: str, us: float) -> None:
        self.tensors.setdefault(pid, f"pid {pid}")
        self.activities.setdefault(name, [])
        self.open.setdefault(pid, []).append((name, us))
        if name.startswith("NEGOTIATE_"):
            self.ready[pid] = []

    def _end(self, pid: int, us: float, line: int) -> None:
        tensor = self.tensors.get(pid, f"pid {pid}")
        if not self.open.get(pid):
            reason = f"{tensor}: an activity ends without having begun"
            self.problems.add(line, reason, "end without begin")
            return
        name, begin_us = self.open[pid].pop()
        self.activities[name].append(_Span(pid, begin_us, max(begin_us, us)))
        if name.startswith("NEGOTIATE_"):
            self.negotiations.append(self.ready.pop(pid, []))
        elif not self.open[pid]:
            self.num_operations[pid] += 1

    def tables(self) -> list[Table]:
        """Return the sums by activity, by tensor and by rank."""
        ended_activities = {
            name: spans for name, spans in self.activities.items() if spans
        }
        span_us = self.last_us - self.first_us
        activity_rows = []
        for name, spans in ended_activities.items():
            total_us = sum(span.us for span in spans)
            longest_us = max(span.us for span in spans)
            wall_us = _find_wall_us(spans)
            times = (total_us / 1e3, total_us / len(spans), longest_us, wall_us / 1e3)
            share = wall_us / span_us if span_us else None
            activity_rows.append((name, len(spans), *times, share))
        activity_rows.sort(key=lambda row: -row[5])

        total_us_by_tensor: dict[int, dict[str, float]] = {}
        for name, spans in ended_activities.items():
            for span in spans:
                totals = total_us_by_tensor.setdefault(span.pid, {})
                totals[name] = totals.get(name, 0.0) + span.us
        pids = [pid for pid in self.tensors if pid in total_us_by_tensor]
        pids.sort(key=lambda pid: -sum(total_us_by_tensor[pid].values()))
        tensor_rows = []
        for pid in pids:
            totals = total_us_by_tensor[pid]
            cells = [
                totals[name] / 1e3 if name in totals else None
                for name in ended_activities
            ]
            tensor_rows.append((self.tensors[pid], self.num_operations[pid], *cells))
        tensor_columns = (
            "Tensor",
            "Operations",
            *(f"{name} (ms)" for name in ended_activities),
        )

        title = f"Activities in {span_us / 1e3:.3f} ms"
        return [
            Table(title, _ACTIVITY_COLUMNS, tuple(activity_rows)),
            Table("Tensors", tensor_columns, tuple(tensor_rows)),
            Table("Ranks in negotiation", _RANK_COLUMNS, tuple(self._list_rank_rows())),
        ]

    def _list_rank_rows(self) -> Iterator[tuple[int | float | None, ...]]:
        num_ready: Counter[int] = Counter()
        late_us: dict[int, list[float]] = {}
        for ready in self.negotiations:
            num_ready.update(rank for _, rank in ready)
            if len(ready) > 1:
                first_us, _ = min(ready)
                last_us, rank = max(ready)
                late_us.setdefault(rank, []).append(last_us - first_us)
        for rank, count in sorted(num_ready.items()):
            late_by_us = late_us.get(rank)
            yield (
                rank,
                count,
                len(late_by_us or ()),
                statistics.fmean(late_by_us) if late_by_us else None,
            )


def _find_wall_us(spans: Iterable[_Span]) -> float:
    """Return the time in which at least one of the spans lasted."""
    wall_us = 0.0
    end_us = -math.inf
    for span in sorted(spans, key=lambda span: span.begin_us):
        if span.end_us > end_us:
            wall_us += span.end_us - max(span.begin_us, end_us)
            end_us = span.end_us
    return wall_us
