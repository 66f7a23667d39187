"""What the audit reports: places in a table, what would fit there, by which relation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from rnn_scaling.audit.numbers import Printed

IMPOSSIBLE = "impossible"  # contradicts other numbers of the table by more than their rounding
UNLIKELY = "unlikely"  # possible, but out of line, or the relation is not certain


@dataclasses.dataclass(frozen=True)
class Place:
    """A cell. printed: its text; low, high: bounds of what fits, in its unit; hint: what kind of slip it may be."""

    line: int
    row: str
    column: str
    printed: str
    low: float
    high: float
    hint: str = ""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One fault.

    kind: "number", "one-of", "exchange", "numbers", "column", "superlinear", "below", "copy" or "record".
    places: the cells that are wrong; of "one-of" each mends all by itself. relation: the formula that does not hold.
    bits: evidence for the relation in this table. excerpt: (line, texts) of the header and some rows of the table, of
    the columns that the relation connects.
    """

    kind: str
    strength: str
    source: str
    places: tuple[Place, ...]
    relation: str
    bits: float = 0.0
    excerpt: tuple[tuple[int, tuple[str, ...]], ...] = ()


def _swapped_digits(printed: Printed, low: float, high: float) -> bool:
    digits = printed.text
    for k in range(len(digits) - 1):
        if digits[k].isdigit() and digits[k + 1].isdigit():
            other = digits[:k] + digits[k + 1] + digits[k] + digits[k + 2 :]
            try:
                if low <= float(other.replace(",", "").rstrip("%x× ")) <= high:
                    return True
            except ValueError:
                return False
    return False


def _factor(of: float) -> Callable[[Printed, float, float], bool]:
    return lambda printed, low, high: low <= printed.value * of <= high


HINTS: tuple[tuple[str, Callable[[Printed, float, float], bool]], ...] = (
    ("digits exchanged", _swapped_digits),
    ("decimal point one place off", lambda p, low, high: _factor(10)(p, low, high) or _factor(0.1)(p, low, high)),
    ("percent and fraction mixed", lambda p, low, high: _factor(100)(p, low, high) or _factor(0.01)(p, low, high)),
    ("inverse", lambda p, low, high: p.value > 0 and low <= 1 / p.value <= high),
)


def hint(printed: Printed, low: float, high: float, devices: float | None) -> str:
    """The slip that turns a number that fits into the printed one, "" for none."""
    if not math.isfinite(low + high):
        return ""
    if devices and devices > 1:
        if _factor(devices)(printed, low, high):
            return "of one device, not of all"
        if _factor(1 / devices)(printed, low, high):
            return "not divided by the devices"
    return next((name for name, is_slip in HINTS if is_slip(printed, low, high)), "")
