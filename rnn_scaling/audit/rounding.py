"""Bounds between which an unrounded number lay, their arithmetic, and the value that most of them share."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

from rnn_scaling.audit.scaling_table import FLOAT_SLACK, Cell

_LARGEST = 1e18  # of whole numbers
# Numbers that are all off by one factor, by chance in fewer tables than this; nearer to 1 it is digits cut off.
_CHANCE, _APART = 1e-3, 1.04


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """All numbers from `low` to `high`; operations assume positive numbers and give the widest result."""

    low: float
    high: float

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Bounds | float) -> Bounds:
        other = other if isinstance(other, Bounds) else Bounds(other, other)
        return Bounds(self.low * other.low, self.high * other.high)

    def __truediv__(self, other: Bounds | float) -> Bounds:
        other = other if isinstance(other, Bounds) else Bounds(other, other)
        return Bounds(
            self.low / other.high if other.high > 0 else math.inf, self.high / other.low if other.low > 0 else math.inf
        )

    def widened(self, share: float) -> Bounds:
        """Every number that is off by at most this share of itself."""
        return Bounds(self.low * max(0.0, 1 - share), self.high * (1 + share))

    @property
    def middle(self) -> float:
        """The number in the middle."""
        return 0.5 * (self.low + self.high)

    def meets(self, other: Bounds) -> bool:
        """Whether some number lies in both, but for the error of floating point."""
        slack = FLOAT_SLACK * max(abs(self.high), abs(other.high))
        return self.low <= other.high + slack and other.low <= self.high + slack

    def integers(self) -> range:
        """The whole numbers inside."""
        low, high = (
            min(max(end, -_LARGEST), _LARGEST) for end in (self.low, self.high)
        )  # what is divided by almost nothing has no end
        slack = FLOAT_SLACK * abs(high)
        return range(math.ceil(low - slack), math.floor(high + slack) + 1)


def of(cell: Cell) -> Bounds:
    """What a printed number may have been before it was rounded; never below zero for a positive one."""
    value, half = cell.value, cell.half_ulp
    low = value - half
    return Bounds(0.0 if low < 0 <= value else low, value + half)


def twice(bounds: Bounds) -> Bounds:
    """What a number may have been that was rounded, multiplied and rounded again."""
    half = 0.5 * (bounds.high - bounds.low)
    return Bounds(max(0.0, bounds.low - half), bounds.high + half)


def point(value: float) -> Bounds:
    """A number that is known exactly."""
    return Bounds(value, value)


def one_factor(ratios: Sequence[Bounds], tried: int = 1) -> Bounds | None:
    """The factor, not 1, that all ratios may be; None where there is none, or by chance in `tried` attempts."""
    shared, members = consensus(ratios)
    chance = math.prod(min(1.0, ratio.high / ratio.low - 1) if ratio.low > 0 else 1.0 for ratio in ratios)
    is_apart = shared.low > _APART or shared.high < 1 / _APART
    return shared if is_apart and len(members) == len(ratios) and chance * tried <= _CHANCE else None


def common_whole(values: Sequence[Bounds]) -> int | None:
    """The whole number that most of the values, three at least, may be; the smallest where several are."""
    counts = Counter(n for value in values for n in value.integers()[:16])
    shared, number = max(((count, -n) for n, count in counts.items()), default=(0, 0))
    return -number if shared >= 3 and 2 * shared > len(values) else None


def consensus(ranges: Sequence[Bounds]) -> tuple[Bounds, list[int]]:
    """Where most of the ranges overlap, and which ones do.

    Args:
      ranges: at least one.

    Returns:
      The common part of the largest group that shares a number, and the group's indices. Of groups of one size the one
      with the smallest numbers.
    """
    events = sorted(
        [(i.low - FLOAT_SLACK * abs(i.low), 0, k) for k, i in enumerate(ranges)]
        + [(i.high + FLOAT_SLACK * abs(i.high), 1, k) for k, i in enumerate(ranges)]
    )
    open_now, most, at = 0, 0, 0
    for place, (_, closes, _) in enumerate(events):
        open_now += -1 if closes else 1
        if open_now > most:
            most, at = open_now, place
    best: set[int] = set()
    for _, closes, k in events[: at + 1]:
        (best.discard if closes else best.add)(k)
    low, high = max(ranges[k].low for k in best), min(ranges[k].high for k in best)
    return Bounds(min(low, high), max(low, high)), sorted(best)
