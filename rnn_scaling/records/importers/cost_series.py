"""Analyse the seconds per item of a run's lines: start-up, kinds of lines, averages.

A program that prints averages since its start prints n / T(n) after n steps. With a
start-up of b seconds and a constant rate r afterwards, T(n) = b + n / r, so 1 / rate is
a straight line in 1 / n. The rate between two lines is the difference of their n over
the difference of their T = n / rate.

`rates` and `regex_log` ask. Pure.
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnn_scaling.records.importers.reading import Terms

USUAL_START = 1  # lines that are always left out: compilation, first data
_MIN_LINES = 5  # with fewer lines, only the usual ones are left out
_SHORTEST_SEARCH = 30  # lines from which on a steady state is looked for
_LONGER = math.log(1.05)  # smallest slow-down of a step of the start-up (logarithm)
_DEVIATIONS = 3.0  # smallest slow-down in deviations of the later half

_CLUSTER_FACTOR = 3.0  # smallest ratio of the medians of the two kinds of lines
_CLUSTER_GAP = 2.0  # smallest ratio of the two values around the gap between the kinds
_MIN_LINES_OF_KIND = 3  # lines that each kind must have
_MIN_STRETCHES = 2  # stretches of the rarer kind; a single one may be a disturbance

_MIN_AVERAGES = 4  # lines of one stretch
_MIN_RISE = 0.02  # smallest relative rise from the first line to the last
_MAX_FALLS = 0.1  # share of lines below the line before, because of inexact clocks
_RESTART = 0.1  # relative fall of an average that starts again
# Largest distance of the printed rates from the straight line, relative to their whole
# rise (logarithms). A program that really becomes faster step by step is further off.
_MAX_RESIDUAL = 0.08
# If the rate approaches a limit, the rates between lines would have to fall: they may
# be this many times as high in the first half as in the second.
_MAX_SLOWING = 1.2
_MIN_LINES_FOR_HALVES = 8  # lines from which on the halves are compared


_TO_DEVIATION = 1.4826  # normal distribution: deviation / median absolute deviation


class StartUp(NamedTuple):
    """The lines at the start that are left out, and the trend of the other lines."""

    lines: int
    slower_from: int = 0  # first line of a slower part; 0 without such a part


class Kinds(NamedTuple):
    """The lines that train, and those of another kind, as indices."""

    training: Sequence[int]
    rarer: Sequence[int] = ()


class PrintedAverage(NamedTuple):
    """A rate that may be an average since the start."""

    end: float  # steps since the start, or the printed step
    rate: float
    half: float  # half a unit of the last printed digit of the rate

    @property
    def seconds(self) -> float:
        """Time since the start, if the rate is an average."""
        return self.end / self.rate


_BEGIN = PrintedAverage(end=0.0, rate=1.0, half=0.0)  # the begin of an average


@dataclasses.dataclass(frozen=True)
class RunningAverage:
    """The rate between lines if each printed rate is the mean since the start."""

    rate: float  # items/s between the first and the last line
    half: float  # half a unit of the last printed digits, in items/s
    is_certain: bool  # whether a start-up would look different


def find_start(costs: Sequence[float], terms: Terms, num_unusable: int = 0) -> StartUp:
    """Return the start-up of a run.

    Args:
      costs: Seconds per item of each line.
      terms: How many lines the user leaves out, and how a steady state is found.
      num_unusable: Number of earlier lines without a usable number, which are part of
        the start-up.

    Returns:
      A start-up after which at least one line remains.
    """
    warmup = USUAL_START if terms.warmup is None else terms.warmup
    usual_start = min(max(0, warmup - num_unusable), len(costs) - 1)
    if terms.warmup is not None or len(costs) < _MIN_LINES:
        return StartUp(usual_start)

    lines = max(usual_start, _count_slow(costs))
    if len(costs) < _SHORTEST_SEARCH or terms.find_steady_state is None:
        return StartUp(lines)
    state = terms.find_steady_state(costs, warmup=usual_start)
    if state.start is None:
        return StartUp(lines)
    if not state.start:
        return StartUp(lines)
    start_cost = statistics.median(costs[: state.start])
    if start_cost > statistics.median(costs[state.start :]):
        return StartUp(max(lines, state.start))
    # A run that becomes slower later has no start-up, and all of it counts.
    return StartUp(lines, slower_from=state.start)


def _count_slow(costs: Sequence[float]) -> int:
    """Return how many lines at the start take clearly longer than the later half."""
    logs = [math.log(cost) for cost in costs]
    half = len(logs) // 2
    later = logs[half:]
    margin = max(_LONGER, _DEVIATIONS * compute_robust_deviation(later))
    limit = statistics.median(later) + margin
    slow_steps = itertools.takewhile(lambda value: value > limit, logs[:half])
    return len(list(slow_steps))


def compute_robust_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation that the median absolute deviation implies."""
    middle = statistics.median(values)
    return _TO_DEVIATION * statistics.median(abs(value - middle) for value in values)


def find_kinds(costs: Sequence[float]) -> Kinds:
    """Return the two kinds of lines that alternate in a log; all lines if they do not.

    They differ by at least `_CLUSTER_FACTOR`, each is narrow, and both come back. The
    kind with more lines is training; if both have as many, the kind of the first line.
    """
    everything = Kinds(range(len(costs)))
    logs = np.log(costs)
    ordered = np.sort(logs)
    gaps = np.diff(ordered)
    if not len(gaps) or gaps.max() < math.log(_CLUSTER_GAP):
        return everything
    is_low = logs <= ordered[gaps.argmax()]
    low = logs[is_low]
    high = logs[~is_low]
    distance = np.median(high) - np.median(low)
    is_far = distance >= math.log(_CLUSTER_FACTOR)
    is_narrow = max(np.ptp(low), np.ptp(high)) <= distance / 2
    if min(len(low), len(high)) < _MIN_LINES_OF_KIND or not (is_far and is_narrow):
        return everything
    kinds = [np.flatnonzero(kind).tolist() for kind in (is_low, ~is_low)]
    training, rarer = sorted(kinds, key=lambda kind: (-len(kind), kind[0]))
    num_cuts = sum(np.diff(rarer) > 1)
    is_alternating = num_cuts + 1 >= _MIN_STRETCHES
    return Kinds(training, rarer) if is_alternating else everything


def find_running_average(
    lines: Sequence[PrintedAverage], terms: Terms
) -> RunningAverage | None:
    """Return the rate between lines whose rates rise like running averages.

    An average may start again, for example in each epoch.

    Args:
      lines: Each line with its printed step, or its number if some line prints none.
      terms: How the start-up is found.

    Returns:
      None if the rates do not rise, or if there are fewer than `_MIN_AVERAGES`.
    """
    stretches = _split_averages(lines)
    long_stretches = [lines for lines in stretches if len(lines) >= _MIN_AVERAGES]
    if (
        not long_stretches or len(long_stretches) < len(stretches) - 1
    ):  # The last one may be cut short.
        return None
    for stretch in long_stretches:
        if not _is_rising([line.rate for line in stretch]):
            return None
    is_certain = all(map(_is_straight, long_stretches))
    if len(stretches) > 1 and not is_certain:
        return None
    total_steps = 0.0
    total_s = 0.0
    total_half_s = 0.0
    for index, stretch in enumerate(long_stretches):
        start = USUAL_START if index else _find_start_of_averages(stretch, terms)
        between = _measure_between_averages(stretch, start)
        if between is None:
            return None
        steps_between, seconds, half_s = between
        total_steps += steps_between
        total_s += seconds
        total_half_s += half_s
    rate = total_steps / total_s
    return RunningAverage(rate, rate * total_half_s / total_s, is_certain)


def _is_rising(rates: Sequence[float]) -> bool:
    """Return whether (nearly) every rate is higher than the one before."""
    falls = sum(rate < previous for previous, rate in itertools.pairwise(rates))
    ties = sum(rate == previous for previous, rate in itertools.pairwise(rates))
    pairs = max(1, len(rates) - 1)
    is_higher = rates[-1] > (1 + _MIN_RISE) * rates[0]
    return falls <= _MAX_FALLS * pairs and ties <= pairs / 2 and is_higher


def _is_straight(lines: Sequence[PrintedAverage]) -> bool:
    """Return whether 1 / rate is a straight, rising line in 1 / n.

    The line minimizes the squares of relative differences.
    """
    ends = np.array([1 / line.end for line in lines])
    rates = np.array([line.rate for line in lines])
    if not np.ptp(ends):
        return False
    slope, level = np.polyfit(ends, 1 / rates, 1, w=rates)
    fitted_costs = level + slope * ends
    if slope <= 0 or level <= 0 or fitted_costs.min() <= 0:
        return False
    residual = np.abs(np.log(fitted_costs * rates)).max()
    rise = math.log(rates.max() / rates.min())
    return bool(residual <= _MAX_RESIDUAL * rise) and not _slows_down(lines)


def _slows_down(lines: Sequence[PrintedAverage]) -> bool:
    """Return whether averages imply clearly lower rates in the second half."""
    if len(lines) < _MIN_LINES_FOR_HALVES:
        return False
    first = lines[0]
    middle = lines[len(lines) // 2]
    last = lines[-1]
    first_s = middle.seconds - first.seconds
    second_s = last.seconds - middle.seconds
    first_steps = middle.end - first.end
    second_steps = last.end - middle.end
    return first_steps * second_s > _MAX_SLOWING * second_steps * first_s


def _find_start_of_averages(lines: Sequence[PrintedAverage], terms: Terms) -> int:
    """Return how many lines are the start-up, by the time since the line before."""
    with_begin = [_BEGIN, *lines]
    costs = []
    for previous, line in itertools.pairwise(with_begin):
        seconds = line.seconds - previous.seconds
        steps = line.end - previous.end
        if min(steps, seconds) <= 0:  # Too few digits were printed.
            warmup = USUAL_START if terms.warmup is None else terms.warmup
            return min(warmup, len(lines) - 1)
        costs.append(seconds / steps)
    return find_start(costs, terms).lines


def _measure_between_averages(
    lines: Sequence[PrintedAverage], start: int
) -> tuple[float, float, float] | None:
    """Return steps, seconds and half a unit of the seconds after the start-up.

    Args:
      lines: The averages.
      start: Number of lines that are the start-up.

    Returns:
      None if no time passed, or if too few digits were printed. The rate at the end of
      the start-up may have too few digits, so the next line is also tried.
    """
    last = lines[-1]
    for first in [_BEGIN, *lines][start : start + 2]:
        steps = last.end - first.end
        seconds = last.seconds - first.seconds
        half_s = sum(line.end * line.half / line.rate**2 for line in (first, last))
        if steps > 0 and seconds > 4 * half_s:
            return steps, seconds, half_s
    return None


def _split_averages(lines: Sequence[PrintedAverage]) -> list[list[PrintedAverage]]:
    """Return the lines of each average, which starts again if steps or rates fall.

    Their ends are the numbers of steps that each average contains.
    """
    stretches: list[list[PrintedAverage]] = []
    last: PrintedAverage | None = None
    start = 0.0
    for line in lines:
        if last is None or line.end <= last.end:
            start = -1.0 if line.end == 0 else 0.0  # Step 0 is printed at its end.
            stretches.append([])
        elif line.rate < (1 - _RESTART) * last.rate:
            start = last.end  # Steps continue after an average.
            stretches.append([])
        stretches[-1].append(line._replace(end=line.end - start))
        last = line
    return stretches
