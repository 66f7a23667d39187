"""Split each step of a rank into parts whose times sum to the time of the step.

At each instant a rank is in exactly one part, the first of PARTS that applies.

Shapes: S steps, K intervals between the starts and ends of all steps and spans.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.inspection.kineto import rank_trace
from rnn_scaling.inspection.kineto.alignment import Alignment, find_last_arrival
from rnn_scaling.inspection.kineto.rank_trace import RankTrace
from rnn_scaling.inspection.phases import find_covered

COMPUTE = "compute"
COPIES = rank_trace.COPY
TRANSFER = "transfer"
WAITS = "waits_for_ranks"
UNSPLIT = "exchange_not_split"
INPUT = rank_trace.INPUT
HOST = "host"
PARTS = (COMPUTE, COPIES, TRANSFER, WAITS, UNSPLIT, INPUT, HOST)
_EXPOSED = (TRANSFER, WAITS, UNSPLIT)


@dataclasses.dataclass(frozen=True)
class SplitStep:
    """A step of one rank, in seconds.

    Attributes:
      number: The number of the step.
      seconds: The duration of the step.
      parts: The time of each part in PARTS; they sum to `seconds`.
      exchange_s: The time in which a collective runs.
      exposed_s: The time in which a collective runs and the rank does nothing else.
    """

    number: int
    seconds: float
    parts: Mapping[str, float]
    exchange_s: float
    exposed_s: float


def split_steps(
    rank: int, trace: RankTrace, numbers: Sequence[int], alignment: Alignment
) -> list[SplitStep]:
    """Return the parts of some steps of a rank.

    Args:
      rank: The rank.
      trace: Its trace.
      numbers: The numbers of the steps, which the trace contains.
      alignment: The calls that ranks made together.
    """
    # Start and end of each step in ns, [S, 2].
    bounds = np.array([trace.steps[number] for number in numbers])
    spans = {}
    for name, times in _list_spans(rank, trace, alignment).items():
        pairs = np.array(times, np.int64).reshape(-1, 2)
        spans[name] = pairs.clip(bounds.min(), bounds.max())
    points = np.unique(np.concatenate([bounds, *spans.values()]))
    masks = {name: find_covered(points, pairs) for name, pairs in spans.items()}
    if not trace.uses_gpu:
        masks[COMPUTE] &= ~masks[rank_trace.EXCHANGE_CALL]
    parts = _choose_parts(masks, len(points) - 1)
    lengths_ns = np.diff(points)
    steps = []
    for number, (start_ns, end_ns) in zip(numbers, bounds.tolist()):
        window = slice(*np.searchsorted(points, (start_ns, end_ns)))
        step_lengths_ns = lengths_ns[window]
        seconds_by_part = {}
        for index, name in enumerate(PARTS):
            is_part = parts[window] == index
            seconds_by_part[name] = _sum_seconds(step_lengths_ns[is_part])
        step = SplitStep(
            number=number,
            seconds=(end_ns - start_ns) / 1e9,
            parts=seconds_by_part,
            exchange_s=_sum_seconds(step_lengths_ns[masks[UNSPLIT][window]]),
            exposed_s=sum(seconds_by_part[name] for name in _EXPOSED),
        )
        steps.append(step)
    return steps


def _list_spans(rank: int, trace: RankTrace, alignment: Alignment) -> dict[str, Any]:
    """Return (start, end) pairs in ns by the name of a part or the kind of an event.

    A call that ranks made together is split at the last arrival, into waiting and
    transfer.
    """
    waits = []
    transfers = []
    for call in alignment.calls:
        if rank in call:
            offset_ns = alignment.clocks[rank].offset_ns
            arrived_ns = find_last_arrival(call, rank) + offset_ns
            start_ns, end_ns = call[rank][:2]
            waits.append((start_ns + offset_ns, arrived_ns))
            transfers.append((arrived_ns, end_ns + offset_ns))
    # On GPUs the operators of the host only launch kernels.
    compute_kind = rank_trace.KERNEL if trace.uses_gpu else rank_trace.OPERATOR
    return {
        **trace.spans,
        COMPUTE: trace.spans[compute_kind],
        TRANSFER: transfers,
        WAITS: waits,
        UNSPLIT: [call[:2] for call in trace.collectives],
    }


def _choose_parts(masks: Mapping[str, np.ndarray], num_intervals: int) -> np.ndarray:
    """Return the index in PARTS of each interval, [K]: the first part that covers it."""
    parts = np.full(num_intervals, PARTS.index(HOST), np.int8)
    # The first part has priority, so it is written last.
    for index in reversed(range(PARTS.index(HOST))):
        parts[masks[PARTS[index]]] = index
    return parts


def _sum_seconds(lengths_ns: np.ndarray) -> float:
    return int(lengths_ns.sum()) / 1e9
