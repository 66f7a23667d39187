"""A number for a person, with the digits that its interval allows, and its mark.

Examples are 13,800 ± 1,500; 110 [20, 600] if the interval reaches much further to one
side; and how many times the runs differ if its ends are useless. A number without an
interval has four digits. A number with a wide interval keeps at least three digits, so
that ratios of printed numbers hold within their rounding. CSV and JSON keep all digits.

Every number that a report prints for people is formatted here.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.interval_kinds import (
    INHERITED_NOTES,
    IntervalKind,
    Note,
)
from rnn_scaling.records import cell_numbers
from rnn_scaling.reports.interval_texts import interval_text
from rnn_scaling.system.files.terminal import format_count, format_three_digits

_WITHOUT_INTERVAL = 4  # significant digits
_OF_INTERVAL = 2  # significant digits of the number after ±
_MIN_DIGITS = 3  # significant digits of a number with a wide interval
# Both ends are printed if the shorter side is shorter by this share of the longer side.
_UNEVEN = 0.15
_ROUNDING = 1e-9  # relative half-width that is due to floating point only
_MORE_DECIMALS = 2  # decimals more than the metric has, if an interval is narrow
# Marks after a number; `reports.marks` has the line that explains each below a table.
MARKS = {
    Note.CORRECTED: cell_numbers.CORRECTED_MARK,
    Note.ALL_BATCHES: cell_numbers.ALL_BATCHES_MARK,
    Note.DISTURBED: cell_numbers.DISTURBED_MARK,
}


def format_interval(interval: Interval | None, digits: int | None) -> str:
    """Return a number with its 95 % interval and its marks, or "n/a" for None.

    Args:
      interval: The number.
      digits: The most decimals of a number without an interval; None: one decimal, or
        two significant digits if these are more.
    """
    if interval is None:
        return "n/a"
    return f"{_unmarked(interval, digits)}{mark_text(interval)}"


def mark_text(interval: Interval | None) -> str:
    """Return the marks of a number, such as "†"; "" for most numbers."""
    if interval is None:
        return ""
    return "".join(MARKS[note] for note in interval.kind.inherited_notes)


def _unmarked(interval: Interval, digits: int | None) -> str:
    """Return a number with its 95 % interval."""
    value = interval.value
    if digits is None:
        digits = max(1, 1 - _first_digit_power(value))
    is_plain = not (interval.is_wide or has_interval(interval))
    if is_plain or interval.ends is None:
        return format_plain(value, digits)
    if interval.is_wide:
        known_digits = _WITHOUT_INTERVAL - 1 - _first_digit_power(value)
        decimals = max(0, min(digits, known_digits))
        return f"{_rounded_text(value, decimals)} ({spread_text(interval)})"

    low, high = interval.ends
    half_width = max(value - low, high - value)
    first_decimal = -_first_digit_power(half_width)
    decimals = min(
        first_decimal + _OF_INTERVAL - 1,
        max(digits, first_decimal),
        digits + _MORE_DECIMALS,
    )
    if not has_ends(interval):
        return (
            f"{_rounded_text(value, decimals)} ± {_rounded_text(half_width, decimals)}"
        )

    # The first digit of the shorter side is shown too.
    shorter_side = min(value - low, high - value)
    needed = max(
        _MIN_DIGITS - 1 - _first_digit_power(value), -_first_digit_power(shorter_side)
    )
    decimals = max(decimals, min(digits, needed))
    ends = f"[{_rounded_text(low, decimals)}, {_rounded_text(high, decimals)}]"
    return f"{_rounded_text(value, decimals)} {ends}"


def unit_heading(unit: str) -> str:
    """Return a unit as the start of a heading: "Words", but "MB" and "kB" unchanged.

    Only words get a capital letter. A unit with a capital letter keeps its spelling,
    because the case of a metric prefix has a meaning.
    """
    return unit.capitalize() if unit.islower() else unit


def spread_text(interval: Interval) -> str:
    """Return "runs differ 3.7 times", which replaces an interval that is too wide."""
    return f"runs differ {format_three_digits(interval.spread)} times"


def has_interval(interval: Interval | None) -> bool:
    """Return whether an interval is printed with the number."""
    if interval is None or interval.half_width is None or interval.is_wide:
        return False
    return interval.half_width > _ROUNDING * abs(interval.value)


def has_ends(interval: Interval) -> bool:
    """Return whether both ends are printed, because the sides differ too much for ±."""
    if not has_interval(interval) or interval.ends is None:
        return False
    low, high = interval.ends
    shorter, longer = sorted((interval.value - low, high - interval.value))
    return shorter < (1 - _UNEVEN) * longer


def make_interval_notes(
    named_intervals: Iterable[tuple[str, Interval | None]],
) -> Iterator[str]:
    """Yield a line for each kind of interval: its signs, its numbers and its meaning.

    The meaning of a mark is not repeated; see `reports.marks`.

    Args:
      named_intervals: The name of each number, such as the title of its column.
    """
    for kind, pairs in group_by_kind(named_intervals).items():
        signs = {"[low, high]" if has_ends(value) else "±" for _, value in pairs}
        names = dict.fromkeys(name for name, _ in pairs)
        sign_text = " and ".join(sorted(signs, reverse=True))
        yield f"{sign_text} {', '.join(names)}: {kind}."


def group_by_kind(
    named_intervals: Iterable[tuple[str, Interval | None]],
) -> dict[str, list[tuple[str, Interval]]]:
    """Return the numbers with an interval by the kind of their intervals.

    Kinds have no notes that a mark shows.
    """
    shown = [
        (name, value)
        for name, value in named_intervals
        if value is not None and has_interval(value)
    ]
    return group_by(shown, [_kind_text(value.kind) for _, value in shown])


def _kind_text(kind: IntervalKind) -> str:
    notes = tuple([note for note in kind.notes if note not in INHERITED_NOTES])
    return interval_text(dataclasses.replace(kind, notes=notes))


def format_plain(value: float, digits: int) -> str:
    """Return a number without an interval: four significant digits, few decimals.

    Args:
      value: The number.
      digits: The most decimals.
    """
    return _rounded_text(
        value, min(digits, _WITHOUT_INTERVAL - 1 - _first_digit_power(value))
    )


def format_digits(value: float, significant: int) -> str:
    """Return a number with its whole part and at least the significant digits."""
    decimals = significant - 1 - _first_digit_power(value) if value else 0
    return f"{value:,.{max(0, decimals)}f}"


def share(value: float) -> str:
    """Return a share in per cent, with a decimal below ten: "58 %", "5.2 %"."""
    decimals = 0 if value >= 0.0995 else 1
    return f"{100 * value:.{decimals}f} %"


def format_percent(value: float, significant: int) -> str:
    """Return a share in per cent with significant digits, so that it is not "0.0 %".

    >>> percent(0.00013, 2), percent(0.25, 2)
    ('0.013 %', '25 %')
    """
    return f"{format_digits(100 * value, significant)} %"


def format_signed_percent(ratio: float) -> str:
    """Return the change to a multiple in per cent, such as "+3.0 %" of 1.03."""
    return f"{100 * (ratio - 1):+.1f} %"


def format_minutes(minutes: float) -> str:
    """Return minutes as text.

    >>> duration(0.4), duration(119), duration(180), duration(2900)
    ('1 minute', '119 minutes', '3 hours', '2 days')
    """
    if minutes < 2 * 60:
        return format_count(max(1, round(minutes)), "minute")
    hours = minutes / 60
    if hours < 2 * 24:
        return format_count(round(hours), "hour")
    return format_count(round(hours / 24), "day")


def round_for_files(value: float) -> float:
    """Return a number with 12 digits for files.

    Further digits depend on the platform's exp and log.
    """
    return float(f"{value:.12g}")


def _first_digit_power(value: float) -> int:
    """Return the power of ten of the first digit; 0 for 0."""
    return math.floor(math.log10(abs(value))) if value else 0


def _rounded_text(value: float, decimals: int) -> str:
    """Return a rounded number, without the sign of a zero."""
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    is_zero = not float(text.replace(",", ""))
    return text.removeprefix("-") if is_zero else text
