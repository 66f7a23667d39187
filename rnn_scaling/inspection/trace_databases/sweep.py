"""Busy time, overlap and gaps of events in the order of their starts, in memory that does not grow with them.

A union of sorted intervals needs only the latest end so far; an overlap is |A| + |B| - |A or B|.
"""

import dataclasses
import heapq
from collections import Counter
from typing import Any

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
        self.communication, self.compute, self.compute_or_communication = (
            Union(),
            Union(),
            Union(),
        )
        self.communication_count: Counter[str] = Counter()
        self.communication_sum_ns = 0
        self.count: Counter[str] = Counter()
        self.summed_ns: Counter[str] = Counter()
        self.gaps = 0
        self.gap_ns = 0
        self._largest: list[Gap] = []
        self._keep = largest_gaps
        self._last = ""  # what ends last so far

    def add(
        self,
        kind: str,
        start: int,
        end: int,
        label: str = "",
        communicates: bool = False,
    ) -> None:
        last_end = self.any.end
        if last_end is not None and start > last_end:
            self.gaps += 1
            self.gap_ns += start - last_end
            heapq.heappush(
                self._largest, Gap(start - last_end, last_end, self._last, label)
            )
            if len(self._largest) > self._keep:
                heapq.heappop(self._largest)
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
            unions += [
                self.kernels if kind == KERNEL else self.copies,
                self.kernels_or_copies,
            ]
        for union in unions:
            union.add(start, end)

    def numbers(self, window_ns: int) -> dict[str, Any]:
        """What was added up, in ns; `window_ns`: length of the time that was looked at."""
        kernels, copies, either = (
            self.kernels.length,
            self.copies.length,
            self.kernels_or_copies.length,
        )
        compute, communication = self.compute.length, self.communication.length
        both = self.compute_or_communication.length
        return {
            "count": self.count, "sum_ns": self.summed_ns, "kernel_busy_ns": kernels, "copy_busy_ns": copies,
            "overlap_ns": kernels + copies - either, "exposed_copy_ns": either - kernels, "compute_busy_ns": compute,
            "communication": {
                "kernels": self.communication_count[KERNEL], "copies": self.communication_count[COPY],
                "sum_ns": self.communication_sum_ns, "busy_ns": communication,
                "overlapped_ns": compute + communication - both, "exposed_ns": both - compute,
            },
            "busy_ns": self.any.length, "idle_ns": window_ns - self.any.length, "gaps": self.gaps,
            "gap_ns": self.gap_ns, "largest_gaps": [vars(gap) for gap in sorted(self._largest, reverse=True)],
        }  # fmt: skip
