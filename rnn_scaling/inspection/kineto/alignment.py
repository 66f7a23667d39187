"""Match the collectives of several ranks, and put their clocks on one scale.

The clocks of machines differ by more than a collective takes, so only the order of the
collectives is used: the n-th call of a name is the same call on every rank. A
synchronising collective ends on no rank before every rank has called it, and ends on
all ranks at nearly the same time.

`job` aligns the ranks once; all times are on its scale afterwards. Pure.
"""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rnn_scaling.inspection.kineto.rank_trace import Collective, RankTrace, shift_call

# Collectives that no rank leaves before the last one has arrived.
_SYNCHRONISING = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|sendrecv|barrier"
)
# Percentage of calls that may contradict the estimated clock, for example because their
# time is wrong.
_MAX_CONTRADICTING_PERCENT = 5
_MIN_SHORTEST = 3
Call = Mapping[int, Collective]
"""A collective on all traced ranks that called it."""
Pair = tuple[Collective, Collective]


@dataclasses.dataclass(frozen=True)
class Clock:
    """The clock of a rank, compared with the clock of the first rank.

    Attributes:
      offset_ns: How far this clock is ahead of the first rank's clock.
      scatter_ns: Median deviation of single collectives from this offset.
    """

    offset_ns: int
    scatter_ns: int


@dataclasses.dataclass(frozen=True)
class Alignment:
    """The clocks that could be aligned.

    Attributes:
      clocks: The clock of each aligned rank.
      calls: The calls that at least two of these ranks made, by the first rank's clock.
      num_unmatched: Calls that only one rank made.
    """

    clocks: Mapping[int, Clock]
    calls: Sequence[Call]
    num_unmatched: int


def find_last_arrival(call: Call, rank: int) -> int:
    """Return when the last rank arrived, in ns; at most the end of the call on `rank`."""
    own_call = call[rank]
    arrivals = [rank_call.start_ns for rank_call in call.values()]
    if not _is_synchronising(own_call):
        # Rank 0 of a broadcast may leave before the others arrive. The clocks may be
        # wrong by a part of a call.
        latest_ns = own_call.end_ns + (own_call.end_ns - own_call.start_ns) // 10
        arrivals = [arrival for arrival in arrivals if arrival <= latest_ns]
    return min(max(arrivals), own_call.end_ns)


def align(traces: Mapping[int, RankTrace]) -> Alignment:
    """Return the collectives that several ranks called, on one clock."""
    calls_by_key: dict[tuple[str, str, int], dict[int, Collective]] = defaultdict(dict)
    for rank, trace in traces.items():
        counts: Counter[tuple[str, str]] = Counter()
        for call in trace.collectives:
            kind = (call.group, call.name)
            calls_by_key[(*kind, counts[kind])][rank] = call
            counts[kind] += 1
    matched = [by_rank for by_rank in calls_by_key.values() if len(by_rank) > 1]

    clocks = {min(traces): Clock(0, 0)}
    unaligned = set(traces) - set(clocks)
    while next_pair := _find_next_pair(matched, unaligned, clocks):
        rank, aligned_rank, pairs = next_pair
        unaligned.remove(rank)
        if difference := _compare_clocks(pairs):
            offset_ns = clocks[aligned_rank].offset_ns + difference.offset_ns
            clocks[rank] = Clock(offset_ns, difference.scatter_ns)
    calls = []
    for by_rank in matched:
        on_one_clock = {}
        for rank, call in by_rank.items():
            if rank in clocks:
                on_one_clock[rank] = shift_call(call, -clocks[rank].offset_ns)
        if len(on_one_clock) > 1:
            calls.append(on_one_clock)
    return Alignment(clocks, calls, len(calls_by_key) - len(matched))


def _is_synchronising(call: Collective) -> bool:
    return _SYNCHRONISING.search(call.name.lower()) is not None


def _find_next_pair(
    calls: Sequence[Call], unaligned: set[int], aligned: Iterable[int]
) -> tuple[int, int, list[Pair]] | None:
    """Return a rank, an aligned one, if possible the first, and their common calls.

    A rank that shares no group with the first rank may share one with another.
    """
    for aligned_rank in aligned:
        for rank in sorted(unaligned):
            if pairs := _find_common_calls(calls, rank, aligned_rank):
                return rank, aligned_rank, pairs
    return None


def _find_common_calls(calls: Sequence[Call], rank: int, other_rank: int) -> list[Pair]:
    """Return the synchronising calls that both ranks made."""
    pairs = []
    for call in calls:
        if rank in call and other_rank in call and _is_synchronising(call[rank]):
            pairs.append((call[rank], call[other_rank]))
    return pairs


def _compare_clocks(pairs: Sequence[Pair]) -> Clock | None:
    """Return the clock of a rank compared with the clock of another.

    No rank leaves before the other arrives, which gives a lower and an upper limit.
    The ends of a call differ by less than it takes after the last arrival, so the
    shortest calls show the difference best.

    Returns:
      The clock; None if the limits contradict each other.
    """
    own_spans = np.array([call[:2] for call, _ in pairs])
    other_spans = np.array([call[:2] for _, call in pairs])
    # Times since 1970 have more digits than a float.
    base_ns = int(own_spans[0, 1] - other_spans[0, 1])
    own_spans -= base_ns
    low_ns = np.percentile(
        own_spans[:, 0] - other_spans[:, 1], 100 - _MAX_CONTRADICTING_PERCENT
    )
    high_ns = np.percentile(
        own_spans[:, 1] - other_spans[:, 0], _MAX_CONTRADICTING_PERCENT
    )
    if low_ns > high_ns:
        return None
    lengths_ns = np.minimum(np.ptp(own_spans, axis=1), np.ptp(other_spans, axis=1))
    num_shortest = max(len(pairs) // 3, _MIN_SHORTEST)
    shortest = np.argsort(lengths_ns)[:num_shortest]
    ends_ns = (own_spans[:, 1] - other_spans[:, 1])[shortest]
    offset_ns = float(np.clip(np.median(ends_ns), low_ns, high_ns))
    scatter_ns = float(np.median(np.abs(ends_ns - offset_ns)))
    return Clock(base_ns + round(offset_ns), round(scatter_ns))
