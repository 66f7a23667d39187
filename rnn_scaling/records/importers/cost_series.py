"""Analyse the seconds per item of a run's lines: start-up, kinds of lines, averages.

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

from rnn_scaling.records.importers.outliers import robust_deviation
from rnn_scaling.records.importers.reading import Terms

USUAL_START = 1  # lines that are always left out: compilation, first data
FEWEST_LINES = 5  # with fewer lines, only the usual ones are left out
SHORTEST_SEARCH = 30  # lines from which on a steady state is looked for
LONGER = math.log(1.05)  # smallest slow-down of a step of the start-up (logarithm)
DEVIATIONS = 3.0  # smallest slow-down in deviations of the later half

CLUSTER_FACTOR = 3.0  # smallest ratio of the medians of the two kinds of lines
CLUSTER_GAP = 2.0  # smallest ratio of the two values around the gap between the kinds
FEWEST_OF_KIND = 3  # lines that each kind must have
FEWEST_PLACES = 2  # stretches of the rarer kind; a single one may be a disturbance

FEWEST_AVERAGES = 4  # lines of one stretch
LEAST_RISE = 0.02  # smallest relative rise from the first line to the last
MOST_FALLS = 0.1  # share of lines below the line before, because of inexact clocks
RESTART = 0.1  # relative fall of an average that starts again
# Largest distance of the printed rates from the straight line, relative to their whole
# rise (logarithms). A program that really becomes faster step by step is further off.
MOST_RESIDUAL = 0.08
# If the rate approaches a limit, the rates between lines would have to fall: they may be
# this many times as high in the first half as in the second.
MOST_SLOWING = 1.2
FEWEST_OF_HALVES = 8  # lines from which on the halves are compared


class StartUp(NamedTuple):
    """The lines at the start that are left out, and the trend of the other lines."""

    lines: int
    is_steady: bool = True
    slower_from: int = 0  # first line of a slower part; 0 without such a part


class Clusters(NamedTuple):
    """Two kinds of lines: indices of the training lines and of the others."""

    training: list[int]
    others: list[int]


class PrintedAverage(NamedTuple):
    """A rate that may be an average since the start."""

    end: float  # steps since the start
    rate: float
    half: float  # half a unit of the last printed digit of the rate

    @property
    def seconds(self) -> float:
        """Time since the start, if the rate is an average."""
        return self.end / self.rate


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
    last = len(costs) - 1
    if terms.warmup is not None:
        return StartUp(min(max(0, terms.warmup - num_unusable), last))
    usual = min(max(0, USUAL_START - num_unusable), last)
    if len(costs) < FEWEST_LINES:
        return StartUp(usual)

    lines = max(usual, _count_slow(costs))
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


def _count_slow(costs: Sequence[float]) -> int:
    """Return how many lines at the start take clearly longer than the later half."""
    logs = [math.log(cost) for cost in costs]
    half = len(logs) // 2
    later = logs[half:]
    margin = max(LONGER, DEVIATIONS * robust_deviation(later))
    limit = statistics.median(later) + margin
    slow = itertools.takewhile(lambda value: value > limit, logs[:half])
    return len(list(slow))


def find_clusters(costs: Sequence[float]) -> Clusters | None:
    """Return the two kinds of lines that alternate in a log, or None.

    They differ by at least `CLUSTER_FACTOR`, each is narrow, and both come back. The
    kind with more lines is training; if both have as many, the kind of the first line.
    The first line may contain the start, and then belongs to neither kind.
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
    if min(len(low), len(high)) < FEWEST_OF_KIND:
        return None
    low_logs = [logs[index] for index in low]
    high_logs = [logs[index] for index in high]
    distance = statistics.median(high_logs) - statistics.median(low_logs)
    if distance < math.log(CLUSTER_FACTOR):
        return None
    if max(_width(low_logs), _width(high_logs)) > distance / 2:
        return None
    training, others = sorted((low, high), key=lambda kind: (-len(kind), kind[0]))
    places = 1 + sum(after > before + 1 for before, after in itertools.pairwise(others))
    return Clusters(training, others) if places >= FEWEST_PLACES else None


def _width(values: Sequence[float]) -> float:
    """Return the range of the values without the lowest and the highest tenth."""
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return ordered[len(ordered) - 1 - tenth] - ordered[tenth]


def find_running_average(
    rates: Sequence[float], halves: Sequence[float], steps: Sequence[float] | None
) -> RunningAverage | None:
    """Return the rate between lines whose rates rise like running averages.

    An average may start again, for example in each epoch.

    Args:
      rates: The printed rate of each line, items/s.
      halves: Half a unit of the last printed digit of each rate.
      steps: The printed step of each line; None if some line prints none.

    Returns:
      None if the rates do not rise, or if there are fewer than `FEWEST_AVERAGES`.
    """
    stretches = _split_averages(rates, halves, steps)
    long = [lines for lines in stretches if len(lines) >= FEWEST_AVERAGES]
    if not long or len(long) < len(stretches) - 1:  # The last one may be cut short.
        return None
    if not all(rises([line.rate for line in lines]) for lines in long):
        return None
    is_certain = all(is_straight(lines) for lines in long)
    if len(stretches) > 1 and not is_certain:
        return None
    total_steps = 0.0
    total_s = 0.0
    total_half_s = 0.0
    for lines in long:
        between = _between(lines)
        if between is None:
            return None
        steps_between, seconds, half_s = between
        total_steps += steps_between
        total_s += seconds
        total_half_s += half_s
    rate = total_steps / total_s
    return RunningAverage(rate, rate * total_half_s / total_s, is_certain)


def rises(rates: Sequence[float]) -> bool:
    """Return whether (nearly) every rate is higher than the one before."""
    falls = sum(after < before for before, after in itertools.pairwise(rates))
    ties = sum(after == before for before, after in itertools.pairwise(rates))
    pairs = max(1, len(rates) - 1)
    is_higher = rates[-1] > (1 + LEAST_RISE) * rates[0]
    return falls <= MOST_FALLS * pairs and ties <= pairs / 2 and is_higher


def is_straight(lines: Sequence[PrintedAverage]) -> bool:
    """Return whether 1 / rate is a straight, rising line in 1 / n.

    The line minimizes the squares of relative differences.
    """
    ends = [1 / line.end for line in lines]
    rates = [line.rate for line in lines]
    weights = [rate**2 for rate in rates]
    total = math.fsum(weights)
    mean_end = math.fsum(map(operator.mul, weights, ends)) / total
    mean_cost = math.fsum(rates) / total  # weighted mean of 1 / rate
    products = []
    squares = []
    for weight, end, rate in zip(weights, ends, rates):
        products.append(weight * (end - mean_end) * (1 / rate - mean_cost))
        squares.append(weight * (end - mean_end) ** 2)
    if not math.fsum(squares):
        return False

    slope = math.fsum(products) / math.fsum(squares)
    level = mean_cost - slope * mean_end
    fitted = [level + slope * end for end in ends]
    if slope <= 0 or level <= 0 or min(fitted) <= 0:
        return False
    residual = max(abs(math.log(cost * rate)) for cost, rate in zip(fitted, rates))
    rise = math.log(max(rates) / min(rates))
    return residual <= MOST_RESIDUAL * rise and not _slows_down(lines)


def _slows_down(lines: Sequence[PrintedAverage]) -> bool:
    """Return whether averages imply clearly lower rates in the second half."""
    if len(lines) < FEWEST_OF_HALVES:
        return False
    first = lines[0]
    middle = lines[len(lines) // 2]
    last = lines[-1]
    first_s = middle.seconds - first.seconds
    second_s = last.seconds - middle.seconds
    first_steps = middle.end - first.end
    second_steps = last.end - middle.end
    return first_steps * second_s > MOST_SLOWING * second_steps * first_s


def _between(lines: Sequence[PrintedAverage]) -> tuple[float, float, float] | None:
    """Return steps, seconds and half a unit of the seconds between averages.

    Returns:
      None if no time passed, or if too few digits were printed. The first rate may have
      too few digits, so the second line is also tried.
    """
    last = lines[-1]
    for first in lines[:2]:
        steps = last.end - first.end
        seconds = last.seconds - first.seconds
        half_s = sum(line.end * line.half / line.rate**2 for line in (first, last))
        if steps > 0 and seconds > 4 * half_s:
            return steps, seconds, half_s
    return None


def _split_averages(
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
        ends = _steps_of_averages(steps, first, end)
        averages = zip(ends, rates[first:end], halves[first:end])
        stretches.append([PrintedAverage(*average) for average in averages])
    return stretches


def _steps_of_averages(
    steps: Sequence[float] | None, first: int, end: int
) -> Sequence[float]:
    """Return the number of steps that the average of each line contains.

    Without printed steps, all lines have the same distance.
    """
    if not steps:
        return range(1, end - first + 1)
    printed = steps[first:end]
    if first and steps[first - 1] < printed[0]:  # Steps continue after an average.
        return [step - steps[first - 1] for step in printed]
    interval = (printed[-1] - printed[0]) / max(1, len(printed) - 1)
    if printed[0] == 0:  # Step 0 is printed at its end.
        return [step + 1 for step in printed]
    if printed[0] > 2 * interval > 0:  # A resumed run begins at its first line.
        return [step - printed[0] + interval for step in printed]
    return printed
