"""Find the lines at the start of a log that are start-up and belong to no rate."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from rnn_scaling.analysis import steady_state

USUAL = 1  # line that is left out in any case: compiling, reading the first data
FEWEST = 5  # lines below which no more are left out
LONGER = math.log(1.05)  # smallest slow-down of a step of the start-up (logarithm)
DEVIATIONS = 3.0  # smallest slow-down in deviations of the later half
_TO_DEVIATION = 1.4826  # normal distribution: deviation / median absolute deviation


class StartUp(NamedTuple):
    """The lines at the start that are left out, and the trend of the other lines."""

    lines: int
    is_steady: bool = True
    slower_from: int = (
        0  # first line of a slower part of the run; 0 if there is no such part
    )


def find(
    costs: Sequence[float], wanted: int | None, already_left_out: int = 0
) -> StartUp:
    """Return the start-up of a run.

    From 30 lines on, the search of `analysis.steady_state` finds the first steady line.
    In any log, the lines at the start are start-up that take clearly longer than the
    later half.

    Args:
      costs: Seconds per item of each line.
      wanted: Lines that the user leaves out; None to search. One line always remains.
      already_left_out: Lines before these without a usable number, which count as
        part of the start-up.
    """
    if wanted is not None:
        return StartUp(min(max(0, wanted - already_left_out), len(costs) - 1))
    usual = min(max(0, USUAL - already_left_out), len(costs) - 1)
    if len(costs) < FEWEST:
        return StartUp(usual)
    lines = max(usual, _leading_slow(costs))
    if len(costs) < steady_state.SHORTEST:
        return StartUp(lines)
    state = steady_state.analyse(costs, warmup=usual)
    if state.start is None:
        return StartUp(lines, is_steady=state.kind != "no steady state")
    if not state.start:
        return StartUp(lines)
    before = statistics.median(costs[: state.start])
    if before > statistics.median(costs[state.start :]):
        return StartUp(max(lines, state.start))
    # A run that becomes slower later has no start-up, and all of it counts.
    return StartUp(lines, slower_from=state.start)


def _leading_slow(costs: Sequence[float]) -> int:
    """Return how many lines at the start take clearly longer than the later half."""
    logs = [math.log(cost) for cost in costs]
    later = logs[len(logs) // 2 :]
    level = statistics.median(later)
    scatter = statistics.median(abs(value - level) for value in later)
    limit = level + max(LONGER, DEVIATIONS * _TO_DEVIATION * scatter)
    lines = 0
    while lines < len(logs) // 2 and logs[lines] > limit:
        lines += 1
    return lines
