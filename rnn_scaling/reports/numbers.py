"""A number for a person, with the digits that its interval allows. CSV and JSON keep all.

13,800 ± 1,500 where the interval reaches about as far up as down, 110 [20, 600] where it does not, and how many times
the runs differ where its ends say nothing. A number without an interval has four digits. Ratios of printed numbers hold
within their rounding, so a number beside a wide interval keeps at least three digits.
"""

import math
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.system.files.terminal import three_digits

WITHOUT_INTERVAL = 4  # significant digits
OF_INTERVAL = 2  # significant digits of what stands after ±
LEAST = 3  # significant digits of a number beside a wide interval
UNEVEN = 0.15  # share of the longer side by which the other one is shorter, from which on both ends are printed
FURTHER = 2  # decimals beyond a metric's own, for an interval that is that narrow


def plus_minus(interval: Interval | None, digits: int | None) -> str:
    """The number with its 95 % interval, else with so many decimals at most (None: one, or two digits); or "n/a"."""
    if interval is None:
        return "n/a"
    digits = max(1, 1 - _magnitude(interval.value)) if digits is None else digits
    if not interval.half_width or interval.ends is None:
        return plain(interval.value, digits)
    if interval.is_wide:
        decimals = max(
            0, min(digits, WITHOUT_INTERVAL - 1 - _magnitude(interval.value))
        )
        return f"{_rounded(interval.value, decimals)} ({spread_text(interval)})"
    down, up = interval.value - interval.ends[0], interval.ends[1] - interval.value
    first = -_magnitude(
        max(down, up)
    )  # the decimal of the first digit of what stands after ±
    decimals = min(first + OF_INTERVAL - 1, max(digits, first), digits + FURTHER)
    if not has_ends(interval):
        return f"{_rounded(interval.value, decimals)} ± {_rounded(max(down, up), decimals)}"
    # A first digit of the shorter side is seen.
    decimals = max(
        decimals,
        min(
            digits,
            max(LEAST - 1 - _magnitude(interval.value), -_magnitude(min(down, up))),
        ),
    )
    value, low, high = (
        _rounded(number, decimals) for number in (interval.value, *interval.ends)
    )
    return f"{value} [{low}, {high}]"


def unit_heading(unit: str) -> str:
    """Return a unit as the start of a heading: "Words", but "MB" and "kB" unchanged.

    Only words get a capital letter. A unit with a capital letter keeps its spelling,
    because the case of a metric prefix has a meaning.
    """
    return unit.capitalize() if unit.islower() else unit


def spread_text(interval: Interval) -> str:
    """ "runs differ 3.7 times": what is said in the place of an interval whose ends say nothing."""
    return f"runs differ {three_digits(interval.spread)} times"


def has_interval(interval: Interval | None) -> bool:
    """Whether an interval is printed beside the number."""
    return interval is not None and bool(interval.half_width) and not interval.is_wide


def has_ends(interval: Interval) -> bool:
    """Whether both ends are printed, since ± would mislead: the interval reaches further to one side."""
    if not has_interval(interval) or interval.ends is None:
        return False
    sides = sorted(
        (interval.value - interval.ends[0], interval.ends[1] - interval.value)
    )
    return sides[0] < (1 - UNEVEN) * sides[1]


def plain(value: float, digits: int) -> str:
    """A number of which nothing is known: four significant digits, and `digits` decimals at most."""
    return _rounded(value, min(digits, WITHOUT_INTERVAL - 1 - _magnitude(value)))


def digits(value: float, significant: int) -> str:
    """Return a number with at least its whole part and so many significant digits."""
    decimals = significant - 1 - _magnitude(value) if value else 0
    return f"{value:,.{max(0, decimals)}f}"


def share(value: float) -> str:
    """A share as a whole per cent; with a decimal below ten: "58 %", "5.2 %"."""
    return f"{100 * value:.{0 if value >= 0.0995 else 1}f} %"


def rounded(value: float) -> float:
    """To 12 digits, for files: what follows depends on the platform's exp and log."""
    return float(f"{value:.12g}")


def interval_data(interval: Interval | None) -> dict[str, Any] | None:
    """For JSON; `low` and `high` are null where there is no interval, and `kind` says why."""
    if interval is None:
        return None
    numbers = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {
        **{name: None if n is None else rounded(n) for name, n in numbers.items()},
        "kind": interval.kind,
    }


def _magnitude(value: float) -> int:
    """Power of ten of the first digit."""
    return math.floor(math.log10(abs(value))) if value else 0


def _rounded(value: float, decimals: int) -> str:
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    return (
        text[1:] if text.startswith("-") and not float(text.replace(",", "")) else text
    )
