"""Add up the busy time, overlaps and gaps of events, in the order of their starts.

The memory does not grow with the number of events: a union of sorted intervals needs
only the latest end so far, and an overlap is |A| + |B| - |A or B|.

`summary` uses a `DeviceSweep` for each device of a trace.
"""

import dataclasses
import heapq
from collections import Counter
from typing import Any

from rnn_scaling.inspection.trace_databases.layouts import COPY, KERNEL, MEMSET

_UNION_WITH_COMPUTE = "compute_or_communication"
# Overlaps follow from the lengths of unions: "work" is any kernel or copy.
# (kind of an event, whether it moves data between devices) -> its unions.
_UNIONS = {
    (KERNEL, False): ("any", "work", "kernel", "compute", _UNION_WITH_COMPUTE),
    (KERNEL, True): ("any", "work", "kernel", "communication", _UNION_WITH_COMPUTE),
    (COPY, False): ("any", "work", "copy"),
    (COPY, True): ("any", "work", "copy", "communication", _UNION_WITH_COMPUTE),
    (MEMSET, False): ("any",),
}


@dataclasses.dataclass(slots=True)
class Union:
    """The length of the union of intervals whose starts do not decrease.

    Attributes:
      length: Nanoseconds that at least one interval covers.
      end: The latest end, or None before the first interval.
    """

    length: int = 0
    end: int | None = None

    def add(self, start: int, end: int) -> None:
        """Add an interval, whose start is not before the start of the last one."""
        if self.end is None or start >= self.end:
            self.length += end - start
            self.end = end
        elif end > self.end:
            self.length += end - self.end
            self.end = end


@dataclasses.dataclass(frozen=True, order=True)
class Gap:
    """Time in which a device does nothing.

    The names of the attributes are keys of the summary's JSON.

    Attributes:
      ns: The length.
      start_ns: The start.
      before: The event that ended last before it.
      after: The event that starts after it.
    """

    ns: int
    start_ns: int
    before: str = dataclasses.field(compare=False)
    after: str = dataclasses.field(compare=False)


class _Gaps:
    """The gaps of one device: their sum, and a list of the largest.

    Attributes:
      count: Number of all gaps.
      sum_ns: Their length.
    """

    def __init__(self, max_listed: int) -> None:
        self.count = 0
        self.sum_ns = 0
        self._largest: list[Gap] = []
        self._max_listed = max_listed

    def add(self, gap: Gap) -> None:
        self.count += 1
        self.sum_ns += gap.ns
        heapq.heappush(self._largest, gap)
        if len(self._largest) > self._max_listed:
            heapq.heappop(self._largest)

    def list_largest(self) -> list[dict[str, Any]]:
        """Return the largest gaps as JSON objects, the largest first."""
        return [vars(gap) for gap in sorted(self._largest, reverse=True)]


class DeviceSweep:
    """Adds up the events of one device, which it gets in the order of their starts."""

    def __init__(self, largest_gaps: int = 10) -> None:
        """Create a sweep without events.

        Args:
          largest_gaps: Number of gaps that are listed.
        """
        names = set().union(*_UNIONS.values())
        self._unions = {name: Union() for name in names}
        self._count: Counter[str] = Counter()
        self._sum_ns: Counter[str] = Counter()
        self._communication: Counter[str] = Counter()
        self._communication_ns = 0
        self._gaps = _Gaps(largest_gaps)
        self._last = ""  # the event with the latest end

    def add(
        self,
        kind: str,
        start: int,
        end: int,
        label: str = "",
        communicates: bool = False,
    ) -> None:
        """Add an event, whose start is not before the start of the last one.

        Args:
          kind: KERNEL, COPY or MEMSET.
          start: Its start in ns.
          end: Its end in ns.
          label: Its name next to a gap.
          communicates: Whether it moves data between devices.
        """
        last_end = self._unions["any"].end
        if last_end is not None and start > last_end:
            self._gaps.add(Gap(start - last_end, last_end, self._last, label))
        if last_end is None or end >= last_end:
            self._last = label
        self._count[kind] += 1
        self._sum_ns[kind] += end - start
        if communicates:
            self._communication[kind] += 1
            self._communication_ns += end - start
        for name in _UNIONS[kind, communicates]:
            self._unions[name].add(start, end)

    def compute_sums(self, window_ns: int) -> dict[str, Any]:
        """Return all sums in ns.

        Args:
          window_ns: Length of the examined time.
        """
        ns = {name: union.length for name, union in self._unions.items()}
        return {
            "count": self._count,
            "sum_ns": self._sum_ns,
            "kernel_busy_ns": ns["kernel"],
            "copy_busy_ns": ns["copy"],
            "overlap_ns": ns["kernel"] + ns["copy"] - ns["work"],
            "exposed_copy_ns": ns["work"] - ns["kernel"],
            "compute_busy_ns": ns["compute"],
            "communication": {
                "kernels": self._communication[KERNEL],
                "copies": self._communication[COPY],
                "sum_ns": self._communication_ns,
                "busy_ns": ns["communication"],
                "overlapped_ns": ns["compute"]
                + ns["communication"]
                - ns[_UNION_WITH_COMPUTE],
                "exposed_ns": ns[_UNION_WITH_COMPUTE] - ns["compute"],
            },
            "busy_ns": ns["any"],
            "idle_ns": window_ns - ns["any"],
            "gaps": self._gaps.count,
            "gap_ns": self._gaps.sum_ns,
            "largest_gaps": self._gaps.list_largest(),
        }
