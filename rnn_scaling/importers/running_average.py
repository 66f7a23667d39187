"""Recognise printed rates that are averages since the start of a program.

Such a program prints n / T(n) after n steps. With a start-up of b seconds and a constant
rate r afterwards, T(n) = b + n / r, so 1 / rate is a straight line in 1 / n. The rate
between two lines is the difference of their n over the difference of their T = n / rate.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

FEWEST_LINES = 4
FEWEST_RISE = 0.02  # smallest rise from the first line to the last, as a share
MOST_FALLS = 0.1  # share of lines that may be below the line before (inexact clocks)
# The printed rates are this close to the straight line, as a share of their whole rise
# (logarithms). A program that really becomes faster step by step is further off.
MOST_RESIDUAL = 0.08
# Averages of a program whose rate approaches a limit would mean that it slows down: the
# rate between lines may be this many times as high in the first half as in the second.
MOST_SLOWING = 1.2
FEWEST_OF_HALVES = 8  # lines from which on the halves are compared


@dataclasses.dataclass(frozen=True)
class RunningAverage:
    """The rate between lines if each printed rate is the mean since the start."""

    rate: float  # items/s between the first and the last line
    half: float  # half a unit of the last printed digits, in items/s
    is_certain: bool  # whether no start-up looks like this


def find(
    ends: Sequence[float], rates: Sequence[float], halves: Sequence[float]
) -> RunningAverage | None:
    """Return what rates that rise from line to line mean as running averages.

    Args:
      ends: Steps from the start of the program to each line, above 0 and growing.
      rates: The printed rate of each line, items/s.
      halves: Half a unit of the last printed digit of each rate.

    Returns:
      None if the rates do not rise, or if there are fewer than `FEWEST_LINES`.
    """
    if len(rates) < FEWEST_LINES or not rise(rates):
        return None
    last = (ends[-1], rates[-1], halves[-1])
    # The first rate may have too few digits.
    for index in (0, 1):
        between = between_ends((ends[index], rates[index], halves[index]), last)
        if between is not None:
            return RunningAverage(*between, is_certain=is_straight(ends, rates))
    return None


def rise(rates: Sequence[float]) -> bool:
    """Return whether (nearly) every rate is higher than the one before."""
    falls = sum(after < before for before, after in zip(rates, rates[1:]))
    ties = sum(after == before for before, after in zip(rates, rates[1:]))
    pairs = max(1, len(rates) - 1)
    return (
        falls <= MOST_FALLS * pairs
        and ties <= pairs / 2
        and rates[-1] > (1 + FEWEST_RISE) * rates[0]
    )


def is_straight(ends: Sequence[float], rates: Sequence[float]) -> bool:
    """Return whether 1 / rate is a straight, rising line in 1 / n."""
    inverse_ends = 1 / np.asarray(ends, float)
    inverse_rates = 1 / np.asarray(rates, float)
    slope, level = np.polyfit(inverse_ends, inverse_rates, 1, w=1 / inverse_rates)
    fitted = level + slope * inverse_ends
    if slope <= 0 or level <= 0 or fitted.min() <= 0:
        return False
    residual = float(np.abs(np.log(fitted / inverse_rates)).max())
    if residual > MOST_RESIDUAL * math.log(max(rates) / min(rates)):
        return False
    return not _slows_down(ends, rates)


def _slows_down(ends: Sequence[float], rates: Sequence[float]) -> bool:
    """Return whether averages mean clearly lower rates in the second half of the lines."""
    if len(rates) < FEWEST_OF_HALVES:
        return False
    half = len(rates) // 2
    seconds = [end / rate for end, rate in zip(ends, rates)]
    first_s = seconds[half] - seconds[0]
    second_s = seconds[-1] - seconds[half]
    first = ends[half] - ends[0]
    second = ends[-1] - ends[half]
    return first * second_s > MOST_SLOWING * second * first_s


def between_ends(
    first: tuple[float, float, float], last: tuple[float, float, float]
) -> tuple[float, float] | None:
    """Return the rate between two running averages, and its printed accuracy.

    Args:
      first: Steps from the start, rate and half a unit of the rate's last digit.
      last: The same of a later line.

    Returns:
      The rate in items/s and half a unit of its last digit; None if no time passed
      between the lines, or if too few digits show how much.
    """
    seconds = last[0] / last[1] - first[0] / first[1]
    steps = last[0] - first[0]
    off_s = sum(end * half / rate**2 for end, rate, half in (first, last))
    if steps <= 0 or seconds <= 4 * off_s:
        return None
    rate = steps / seconds
    return rate, rate * off_s / seconds


def ends_of_lines(steps: Sequence[float] | None, count: int) -> Sequence[float]:
    """Return the number of steps that the average of each line contains.

    Args:
      steps: The printed number of each line; None if none is printed: then the same
        number of steps is assumed between any two lines.
      count: The number of lines.
    """
    if not steps:
        return range(1, count + 1)
    interval = (steps[-1] - steps[0]) / max(1, count - 1)
    if steps[0] == 0:  # printed at the end of step 0
        return [step + 1 for step in steps]
    if steps[0] > 2 * interval:  # a resumed run: its average begins at the first line
        return [step - steps[0] + interval for step in steps]
    return steps
