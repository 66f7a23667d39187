"""What the seconds per item of a run's lines say: start-up, two kinds of lines, averages.

A program that prints averages since its start prints n / T(n) after n steps. With a
start-up of b seconds and a constant rate r afterwards, T(n) = b + n / r, so 1 / rate is
a straight line in 1 / n. The rate between two lines is the difference of their n over
the difference of their T = n / rate.
"""

import dataclasses
import itertools
import math
import operator
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from rnn_scaling.records.importers.reading import Terms

USUAL_START = 1  # line that is left out in any case: compiling, reading the first data
FEWEST_LINES = 5  # lines below which no more are left out
SHORTEST_SEARCH = 30  # lines from which on a steady state is looked for
LONGER = math.log(1.05)  # smallest slow-down of a step of the start-up (logarithm)
DEVIATIONS = 3.0  # smallest slow-down in deviations of the later half
_TO_DEVIATION = 1.4826  # normal distribution: deviation / median absolute deviation

CLUSTER_FACTOR = 3.0  # smallest ratio of the medians of the two kinds of lines
CLUSTER_GAP = 2.0  # smallest ratio of the two values around the gap between the kinds
FEWEST_OF_KIND = 3  # lines that each kind must have
FEWEST_PLACES = 2  # stretches of the rarer kind; one alone may be a disturbance

FEWEST_AVERAGES = 4  # lines of one stretch
LEAST_RISE = 0.02  # smallest rise from the first line to the last, as a share
MOST_FALLS = 0.1  # share of lines that may be below the line before (inexact clocks)
RESTART = 0.1  # fall of an average that starts again, as a share of its rate
# The printed rates are this close to the straight line, as a share of their whole rise
# (logarithms). A program that really becomes faster step by step is further off.
MOST_RESIDUAL = 0.08
# Averages of a program whose rate approaches a limit would mean that it slows down: the
# rate between lines may be this many times as high in the first half as in the second.
MOST_SLOWING = 1.2
FEWEST_OF_HALVES = 8  # lines from which on the halves are compared


class StartUp(NamedTuple):
    """The lines at the start that are left out, and the trend of the other lines."""

    lines: int
    is_steady: bool = True
    slower_from: int = 0  # first line of a slower part; 0 without such a part


class Clusters(NamedTuple):
    """Two kinds of lines: indices of the kind that trains, and of the other."""

    training: list[int]
    others: list[int]


class PrintedAverage(NamedTuple):
    """A rate that may be an average since the start."""

    end: float  # steps since the start
    rate: float
    half: float  # half a unit of the last printed digit of the rate


@dataclasses.dataclass(frozen=True)
class RunningAverage:
    """The rate between lines if each printed rate is the mean since the start."""

    rate: float  # items/s between the first and the last line
    half: float  # half a unit of the last printed digits, in items/s
    is_certain: bool  # whether no start-up looks like this


def find_start(
    costs: Sequence[float], terms: Terms, already_left_out: int = 0
) -> StartUp:
    """Return the start-up of a run.

    Args:
      costs: Seconds per item of each line.
      terms: How many lines the user leaves out, and how a steady state is found.
      already_left_out: Lines before these without a usable number, which count as
        part of the start-up. One line always remains.
    """
    last = len(costs) - 1
    if terms.warmup is not None:
        return StartUp(min(max(0, terms.warmup - already_left_out), last))
    usual = min(max(0, USUAL_START - already_left_out), last)
    if len(costs) < FEWEST_LINES:
        return StartUp(usual)
    lines = max(usual, _leading_slow(costs))
    if len(costs) < SHORTEST_SEARCH or terms.find_steady_state is None:
        return StartUp(lines)
    state = terms.find_steady_state(costs, warmup=usual)
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
    slow = itertools.takewhile(lambda value: value > limit, logs[: len(logs) // 2])
    return len(list(slow))


def find_clusters(costs: Sequence[float]) -> Clusters | None:
    """Return the two kinds of lines that alternate in a log, None if it has one.

    They differ by at least `CLUSTER_FACTOR`, each is narrow, and both come back. The
    kind with more lines is training; if both have as many, the one of the first line.
    The first line may contain the start, and then belongs to no kind.
    """
    for first in (0, 1):
        clusters = _split(costs, first)
        if clusters is not None:
            return Clusters([*range(first), *clusters.training], clusters.others)
    return None


def _split(costs: Sequence[float], first: int) -> Clusters | None:
    logs = {index: math.log(cost) for index, cost in enumerate(costs) if index >= first}
    ordered = sorted(logs.values())
    gaps = [above - below for below, above in itertools.pairwise(ordered)]
    if not gaps or max(gaps) < math.log(CLUSTER_GAP):
        return None
    limit = ordered[gaps.index(max(gaps))]
    low = [index for index, value in logs.items() if value <= limit]
    high = [index for index, value in logs.items() if value > limit]
    low_logs = [logs[index] for index in low]
    high_logs = [logs[index] for index in high]
    distance = statistics.median(high_logs) - statistics.median(low_logs)
    if distance < math.log(CLUSTER_FACTOR):
        return None
    if min(len(low), len(high)) < FEWEST_OF_KIND:
        return None
    if max(_width(low_logs), _width(high_logs)) > distance / 2:
        return None
    training, others = sorted((low, high), key=lambda kind: (-len(kind), kind[0]))
    places = 1 + sum(after > before + 1 for before, after in itertools.pairwise(others))
    return Clusters(training, others) if places >= FEWEST_PLACES else None


def _width(values: Sequence[float]) -> float:
    """Return the distance of the ends without a tenth of the values at each."""
    ordered = sorted(values)
    left_out = len(ordered) // 10
    return ordered[len(ordered) - 1 - left_out] - ordered[left_out]


def find_running_average(
    rates: Sequence[float], halves: Sequence[float], steps: Sequence[float] | None
) -> RunningAverage | None:
    """Return what rates that rise from line to line mean as running averages.

    An average may start again, for example in each epoch.

    Args:
      rates: The printed rate of each line, items/s.
      halves: Half a unit of the last printed digit of each rate.
      steps: The printed step of each line; None if some line prints none.

    Returns:
      None if the rates do not rise, or if there are fewer than `FEWEST_AVERAGES`.
    """
    stretches = _stretches(rates, halves, steps)
    kept = [lines for lines in stretches if len(lines) >= FEWEST_AVERAGES]
    if not kept or len(kept) < len(stretches) - 1:  # the last one may be cut short
        return None
    if not all(rises([line.rate for line in lines]) for lines in kept):
        return None
    is_certain = all(is_straight(lines) for lines in kept)
    if len(stretches) > 1 and not is_certain:
        return None
    total_steps = 0.0
    total_s = 0.0
    off_s = 0.0
    for lines in kept:
        between = _between(lines)
        if between is None:
            return None
        total_steps += between[0]
        total_s += between[1]
        off_s += between[2]
    rate = total_steps / total_s
    return RunningAverage(rate, rate * off_s / total_s, is_certain)


def rises(rates: Sequence[float]) -> bool:
    """Return whether (nearly) every rate is higher than the one before."""
    falls = sum(after < before for before, after in itertools.pairwise(rates))
    ties = sum(after == before for before, after in itertools.pairwise(rates))
    pairs = max(1, len(rates) - 1)
    is_higher = rates[-1] > (1 + LEAST_RISE) * rates[0]
    return falls <= MOST_FALLS * pairs and ties <= pairs / 2 and is_higher


def is_straight(lines: Sequence[PrintedAverage]) -> bool:
    """Return whether 1 / rate is a straight, rising line in 1 / n.

    The line is that of the smallest squares of relative differences.
    """
    ends = [1 / line.end for line in lines]
    rates = [line.rate for line in lines]
    weights = [rate**2 for rate in rates]
    total = math.fsum(weights)
    mean_end = math.fsum(map(operator.mul, weights, ends)) / total
    mean_cost = math.fsum(rates) / total  # of 1 / rate
    moments = [
        (
            weight * (end - mean_end) * (1 / rate - mean_cost),
            weight * (end - mean_end) ** 2,
        )
        for weight, end, rate in zip(weights, ends, rates)
    ]
    scatter = math.fsum(square for _, square in moments)
    if not scatter:
        return False
    slope = math.fsum(product for product, _ in moments) / scatter
    level = mean_cost - slope * mean_end
    fitted = [level + slope * end for end in ends]
    if slope <= 0 or level <= 0 or min(fitted) <= 0:
        return False
    residual = max(abs(math.log(cost * rate)) for cost, rate in zip(fitted, rates))
    rise = math.log(max(rates) / min(rates))
    return residual <= MOST_RESIDUAL * rise and not _slows_down(lines)


def _slows_down(lines: Sequence[PrintedAverage]) -> bool:
    """Return whether averages mean clearly lower rates in the second half."""
    if len(lines) < FEWEST_OF_HALVES:
        return False
    first, middle, last = lines[0], lines[len(lines) // 2], lines[-1]
    first_s = middle.end / middle.rate - first.end / first.rate
    second_s = last.end / last.rate - middle.end / middle.rate
    first_steps = middle.end - first.end
    second_steps = last.end - middle.end
    return first_steps * second_s > MOST_SLOWING * second_steps * first_s


def _between(lines: Sequence[PrintedAverage]) -> tuple[float, float, float] | None:
    """Return steps and seconds between averages, and by how much digits leave them open.

    None if no time passed, or if too few digits show how much. The first rate may have
    too few of them, so the second line is tried, too.
    """
    last = lines[-1]
    for first in lines[:2]:
        steps = last.end - first.end
        seconds = last.end / last.rate - first.end / first.rate
        off_s = sum(line.end * line.half / line.rate**2 for line in (first, last))
        if steps > 0 and seconds > 4 * off_s:
            return steps, seconds, off_s
    return None


def _stretches(
    rates: Sequence[float], halves: Sequence[float], steps: Sequence[float] | None
) -> list[list[PrintedAverage]]:
    """Return the lines of each average, which starts again if steps or rates fall."""
    cuts = [0]
    for index in range(1, len(rates)):
        has_fallen = rates[index] < (1 - RESTART) * rates[index - 1]
        if has_fallen or (steps and steps[index] <= steps[index - 1]):
            cuts.append(index)
    stretches = []
    for first, end in itertools.pairwise([*cuts, len(rates)]):
        ends = _ends(steps, first, end)
        averages = zip(ends, rates[first:end], halves[first:end])
        stretches.append([PrintedAverage(*average) for average in averages])
    return stretches


def _ends(steps: Sequence[float] | None, first: int, end: int) -> Sequence[float]:
    """Return the number of steps that the average of each line contains.

    Without steps, the same number of them is assumed between any two lines.
    """
    if not steps:
        return range(1, end - first + 1)
    shown = steps[first:end]
    if first and steps[first - 1] < shown[0]:  # steps go on where an average ended
        return [step - steps[first - 1] for step in shown]
    interval = (shown[-1] - shown[0]) / max(1, len(shown) - 1)
    if shown[0] == 0:  # printed at the end of step 0
        return [step + 1 for step in shown]
    if shown[0] > 2 * interval > 0:  # a resumed run: it begins at the first line
        return [step - shown[0] + interval for step in shown]
    return shown
