"""Guesses why a printed number is not the expected one; each a pure function of numbers, tried in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell

CUT = "the last digits were cut off instead of rounded"
NO_CAUSE = "made from other numbers than those printed here, or mistyped"
_ENOUGH = 3  # digits, so that a slip of the finger is more likely than chance


def guess(stands: Cell, expected: Bounds, others: Mapping[str, Bounds] | None = None) -> str:
    """The likely cause in one sentence.

    Args:
      stands: the printed number.
      expected: what it should be.
      others: expected values of other places, by what they belong to; the number may have been put in the wrong one.
    """
    printed = Bounds(max(stands.low, 0.0), stands.high)
    if _is_cut(stands, expected):
        return CUT
    if stands.value < 0:
        return NO_CAUSE  # of a change: its digits are those of two numbers
    for factor, name in ((10.0, "ten"), (100.0, "a hundred"), (1000.0, "a thousand")):
        moved = (stands.value / factor, stands.value * factor)
        shifted = [Bounds(value - stands.half_ulp, value + stands.half_ulp) for value in moved]
        if any(expected.meets(value) for value in shifted):
            return f"off by a factor of {name}: a slipped decimal point or another unit"
    if _is_typed(stands, expected, _exchanged):
        return "two digits exchanged while typing"
    places = [place for place, value in (others or {}).items() if printed.meets(value)]
    if len(places) == 1:
        return f"this is the value of {places[0]}: copied or exchanged"
    if sum(c.isdigit() for c in stands.text) < _ENOUGH:  # of two digits one is always the mistyped one
        return NO_CAUSE
    if _is_typed(stands, expected, _one_more_or_less):
        return "a digit too few or too many"
    if _is_typed(stands, expected, _one_other):
        return "one digit mistyped"
    return NO_CAUSE


def _digits(cell: Cell, value: float) -> str:
    digits = min(cell.digits, 12)
    return f"{value:.{digits}f}" if digits >= 0 else str(round(value, digits))


def _is_cut(stands: Cell, expected: Bounds) -> bool:
    step = 10.0**-stands.digits
    cut = math.floor(expected.middle / step) * step
    return abs(cut - stands.value) < 0.01 * step and expected.low < stands.value + step


def _is_typed(stands: Cell, expected: Bounds, slips: Callable[[str], Iterable[str]]) -> bool:
    """Whether one of the texts that a slip of the fingers makes the printed number of is expected."""
    half, text = stands.half_ulp, _digits(stands, stands.value)
    meant = (float(other) for other in slips(text) if other != text)
    return any(expected.meets(Bounds(value - half, value + half)) for value in meant)


def _exchanged(text: str) -> list[str]:
    pairs = [k for k in range(len(text) - 1) if text[k].isdigit() and text[k + 1].isdigit()]
    return [text[:k] + text[k + 1] + text[k] + text[k + 2 :] for k in pairs]


def _one_more_or_less(text: str) -> list[str]:
    """Without a digit that was typed twice, or with one that was left out."""
    twice = [text[:k] + text[k + 1 :] for k in range(1, len(text)) if text[k].isdigit() and text[k] == text[k - 1]]
    places = [k for k in range(len(text) + 1) if text[:k].isdigit() or not text[:k]]
    return [*twice, *(text[:k] + digit + text[k:] for k in places for digit in "0123456789")]


def _one_other(text: str) -> list[str]:
    places = [k for k in range(len(text)) if text[k].isdigit()]
    return [text[:k] + digit + text[k + 1 :] for k in places for digit in "0123456789"]
