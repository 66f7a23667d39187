"""Guesses why a printed number is not the expected one; each a pure function of numbers, tried in order."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rnn_scaling.intervals import Interval
from rnn_scaling.scaling_table import Cell


def guess(stands: Cell, expected: Interval, others: Mapping[str, Interval] | None = None) -> str:
    """The likely cause in one sentence.

    Args:
      stands: the printed number.
      expected: what it should be.
      others: expected values of other places, by what they belong to; the number may have been put in the wrong one.
    """
    printed = Interval(max(stands.low, 0.0), stands.high)
    if _is_cut(stands, expected):
        return "the last digits were cut off instead of rounded"
    for place, value in (others or {}).items():
        if printed.meets(value):
            return f"this is the value of {place}: copied or exchanged"
    for factor, name in ((10.0, "ten"), (100.0, "a hundred"), (1000.0, "a thousand")):
        if printed.meets(expected * factor) or printed.meets(expected / factor):
            return f"off by a factor of {name}: a slipped decimal point or another unit"
    if _is_exchange(stands, expected):
        return "two digits exchanged while typing"
    if _is_one_digit(stands, expected):
        return "one digit mistyped"
    return "it was made from other numbers than those printed here (another run, or one changed later), or mistyped"


def _digits(cell: Cell, value: float) -> str:
    digits = min(cell.digits, 12)
    return f"{value:.{digits}f}" if digits >= 0 else str(round(value, digits))


def _is_cut(stands: Cell, expected: Interval) -> bool:
    step = 10.0**-stands.digits
    cut = math.floor(expected.middle / step) * step
    return abs(cut - stands.value) < 0.01 * step and expected.low < stands.value + step


def _is_exchange(stands: Cell, expected: Interval) -> bool:
    a, b = _digits(stands, stands.value), _digits(stands, expected.middle)
    where = [k for k in range(min(len(a), len(b))) if a[k] != b[k]]
    return len(a) == len(b) and len(where) == 2 and where[1] == where[0] + 1 and a[where[0]] == b[where[1]]


def _is_one_digit(stands: Cell, expected: Interval) -> bool:
    a = _digits(stands, stands.value)
    for value in (expected.low, expected.middle, expected.high):
        b = _digits(stands, value)
        if len(a) == len(b) and sum(x != y for x, y in zip(a, b)) == 1:
            return True
    return False
