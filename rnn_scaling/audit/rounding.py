"""Bounds between which an unrounded number lay, their arithmetic, and the value that most of them share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from rnn_scaling.audit.scaling_table import FLOAT_SLACK, Cell


@dataclasses.dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`; operations assume positive numbers and give the widest result."""

    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Interval | float) -> Interval:
        other = other if isinstance(other, Interval) else Interval(other, other)
        return Interval(self.low * other.low, self.high * other.high)

    def __truediv__(self, other: Interval | float) -> Interval:
        other = other if isinstance(other, Interval) else Interval(other, other)
        return Interval(
            self.low / other.high if other.high > 0 else math.inf, self.high / other.low if other.low > 0 else math.inf
        )

    def widened(self, share: float) -> Interval:
        """Every number that is off by at most this share of itself."""
        return Interval(self.low * max(0.0, 1 - share), self.high * (1 + share))

    @property
    def middle(self) -> float:
        """The number in the middle."""
        return 0.5 * (self.low + self.high)

    def meets(self, other: Interval) -> bool:
        """Whether some number lies in both, but for the error of floating point."""
        slack = FLOAT_SLACK * max(abs(self.high), abs(other.high))
        return self.low <= other.high + slack and other.low <= self.high + slack

    def integers(self) -> range:
        """The whole numbers inside."""
        slack = FLOAT_SLACK * abs(self.high)
        return range(math.ceil(self.low - slack), math.floor(self.high + slack) + 1)


def of(cell: Cell) -> Interval:
    """What a printed number may have been before it was rounded; never below zero for a positive one."""
    low = max(cell.low, 0.0) if cell.value >= 0 else cell.low
    return Interval(low, cell.high)


def point(value: float) -> Interval:
    """A number that is known exactly."""
    return Interval(value, value)


def consensus(intervals: Sequence[Interval]) -> tuple[Interval, list[int]]:
    """Where most of the intervals overlap, and which ones do.

    Args:
      intervals: at least one.

    Returns:
      The common part of the largest group that shares a number, and the group's indices. Of groups of one size the one
      with the smallest numbers.
    """
    events = sorted(
        [(i.low - FLOAT_SLACK * abs(i.low), 0, k) for k, i in enumerate(intervals)]
        + [(i.high + FLOAT_SLACK * abs(i.high), 1, k) for k, i in enumerate(intervals)]
    )
    open_now, most, at = 0, 0, 0
    for place, (_, closes, _) in enumerate(events):
        open_now += -1 if closes else 1
        if open_now > most:
            most, at = open_now, place
    best: set[int] = set()
    for _, closes, k in events[: at + 1]:
        (best.discard if closes else best.add)(k)
    low, high = max(intervals[k].low for k in best), min(intervals[k].high for k in best)
    return Interval(min(low, high), max(low, high)), sorted(best)
