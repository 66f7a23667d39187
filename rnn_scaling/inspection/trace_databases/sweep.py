"""Busy time, overlap and gaps of intervals in the order of their starts, in memory that does not grow with them.

A union of sorted intervals needs only the latest end so far; an overlap is |A| + |B| - |A or B|.
"""

from __future__ import annotations

import dataclasses
import heapq

from rnn_scaling.inspection.trace_databases.layout import COPY, KERNEL

Label = tuple[str, object]  # a table and the name or kind of one of its events


class Union:
    """Length of the union of the intervals given so far, whose starts do not decrease."""

    __slots__ = ("length", "end")

    def __init__(self) -> None:
        self.length = 0
        self.end: int | None = None  # the latest end

    def add(self, start: int, end: int) -> None:
        """Adds [start, end)."""
        if self.end is None or start >= self.end:
            self.length += end - start
            self.end = end
        elif end > self.end:
            self.length += end - self.end
            self.end = end


@dataclasses.dataclass(frozen=True, order=True)
class Gap:
    """Time in which a device does nothing: length and start in ns, what ended last before it, what starts after."""

    ns: int
    start: int
    before: Label = dataclasses.field(compare=False)
    after: Label = dataclasses.field(compare=False)


class DeviceSweep:
    """The sweep over one device's kernels, copies and memsets; feed it in the order of their starts."""

    def __init__(self, largest_gaps: int = 10) -> None:
        self.kernels, self.copies = Union(), Union()
        self.kernels_or_copies, self.any = Union(), Union()
        # Kernels and copies that carry data between devices, the other kernels, and both.
        self.communication, self.compute, self.compute_or_communication = Union(), Union(), Union()
        self.communication_count: dict[str, int] = {}
        self.communication_sum_ns = 0
        self.count: dict[str, int] = {}
        self.summed_ns: dict[str, int] = {}
        self.gaps = 0
        self.gap_ns = 0
        self._largest: list[Gap] = []
        self._keep = largest_gaps
        self._last: Label = ("", None)  # what ends last so far

    def add(
        self,
        what: str,
        start: int,
        end: int,
        label: Label = ("", None),
        communicates: bool = False,
    ) -> None:
        """Adds one event."""
        last_end = self.any.end
        if last_end is not None and start > last_end:
            self._gap(Gap(start - last_end, last_end, self._last, label))
        if last_end is None or end >= last_end:
            self._last = label
        self.any.add(start, end)
        self.count[what] = self.count.get(what, 0) + 1
        self.summed_ns[what] = self.summed_ns.get(what, 0) + end - start
        if communicates:
            self.communication.add(start, end)
            self.compute_or_communication.add(start, end)
            self.communication_count[what] = self.communication_count.get(what, 0) + 1
            self.communication_sum_ns += end - start
        elif what == KERNEL:
            self.compute.add(start, end)
            self.compute_or_communication.add(start, end)
        if what == KERNEL:
            self.kernels.add(start, end)
            self.kernels_or_copies.add(start, end)
        elif what == COPY:
            self.copies.add(start, end)
            self.kernels_or_copies.add(start, end)

    def _gap(self, gap: Gap) -> None:
        self.gaps += 1
        self.gap_ns += gap.ns
        if len(self._largest) < self._keep:
            heapq.heappush(self._largest, gap)
        elif self._keep and gap > self._largest[0]:
            heapq.heapreplace(self._largest, gap)

    @property
    def overlap_ns(self) -> int:
        """Time in which a copy and a kernel run at once."""
        return self.kernels.length + self.copies.length - self.kernels_or_copies.length

    @property
    def exposed_copy_ns(self) -> int:
        """Time in which a copy runs and no kernel does."""
        return self.kernels_or_copies.length - self.kernels.length

    @property
    def overlapped_communication_ns(self) -> int:
        """Time in which communication and a kernel that computes run at once."""
        return self.compute.length + self.communication.length - self.compute_or_communication.length

    @property
    def exposed_communication_ns(self) -> int:
        """Time in which communication runs and no kernel computes."""
        return self.compute_or_communication.length - self.compute.length

    @property
    def largest_gaps(self) -> list[Gap]:
        """The longest gaps, longest first."""
        return sorted(self._largest, reverse=True)
