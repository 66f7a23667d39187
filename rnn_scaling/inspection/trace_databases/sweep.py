"""Busy time, overlap and gaps of events in the order of their starts, in memory that does not grow with them.

A union of sorted intervals needs only the latest end so far; an overlap is |A| + |B| - |A or B|.
"""

import dataclasses
import heapq
from collections import Counter

from rnn_scaling.inspection.trace_databases.layouts import COPY, KERNEL


class Union:
    """Length of the union of the intervals so far, whose starts do not decrease."""

    __slots__ = ("length", "end")

    def __init__(self) -> None:
        self.length = 0
        self.end: int | None = None  # the latest end

    def add(self, start: int, end: int) -> None:
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
    start_ns: int
    before: str = dataclasses.field(compare=False)
    after: str = dataclasses.field(compare=False)


class DeviceSweep:
    """The sweep over one device's kernels, copies and memsets; feed it in the order of their starts."""

    def __init__(self, largest_gaps: int = 10) -> None:
        self.kernels, self.copies = Union(), Union()
        self.kernels_or_copies, self.any = Union(), Union()
        # Kernels and copies that carry data between devices, the other kernels, and both.
        self.communication, self.compute, self.compute_or_communication = Union(), Union(), Union()
        self.communication_count: Counter[str] = Counter()
        self.communication_sum_ns = 0
        self.count: Counter[str] = Counter()
        self.summed_ns: Counter[str] = Counter()
        self.gaps = 0
        self.gap_ns = 0
        self._largest: list[Gap] = []
        self._keep = largest_gaps
        self._last = ""  # what ends last so far

    def add(self, kind: str, start: int, end: int, label: str = "", communicates: bool = False) -> None:
        last_end = self.any.end
        if last_end is not None and start > last_end:
            self._add_gap(Gap(start - last_end, last_end, self._last, label))
        if last_end is None or end >= last_end:
            self._last = label
        self.count[kind] += 1
        self.summed_ns[kind] += end - start
        unions = [self.any]
        if communicates:
            self.communication_count[kind] += 1
            self.communication_sum_ns += end - start
            unions += [self.communication, self.compute_or_communication]
        elif kind == KERNEL:
            unions += [self.compute, self.compute_or_communication]
        if kind in (KERNEL, COPY):
            unions += [self.kernels if kind == KERNEL else self.copies, self.kernels_or_copies]
        for union in unions:
            union.add(start, end)

    def _add_gap(self, gap: Gap) -> None:
        self.gaps += 1
        self.gap_ns += gap.ns
        heapq.heappush(self._largest, gap)
        if len(self._largest) > self._keep:
            heapq.heappop(self._largest)

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
