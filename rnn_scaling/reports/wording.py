"""The sentence of each statement: one template per kind, with lists, plurals and numbers.

A template is a line of a file of `templates`, "kind: template": a format string over
the statement's values and `subject`:

    {names:list}        "A", "A and B", "A, B and C"; after five names
                        "A, B, C, D, E and 4 more"
    {names:List}        the same at the start of a sentence
    {n:list_of device}  "1 device", "2 devices", "2 and 4 devices"; n is a list
    {n:count run}       "1 run", "3 runs"; `{n:count process|processes}` has an
                        irregular plural
    {n:of {all} run}    "2 of 6 runs", "all 6 runs", "both runs", or "the run" of one
    {n:Of {all} run}    the same at the start of a sentence
    {n:is|are}          the first word for one, else the second; n is a number or a list
    {rate:interval 1}   "120.3 ± 1.5"; without an interval, at most one decimal
    {rate:interval}     the same, with more decimals if it would be 0.0
    {rate:number}       20,125, 24.72, 0.0123: four significant digits, and the whole
                        part
    {rate:number 3}     the same with three significant digits
    {part:share}        0.052 as "5.2 %"
    {part:percent 2}    0.00013 as "0.013 %": significant digits, 2 if no number follows
    {apart:duration}    minutes as "14 minutes", "3 hours" or "5 days"
    {tied:rates}        a list of {"name", "rate", "unit"}:
                        "A (120.3 ± 1.5 words/s) and B (119 ± 2 words/s)"
    {rate:,.1f}         all others are Python's own formats
"""

import dataclasses
import functools
import math
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.confidence import MIN_BATCHES, Interval
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.interval_kinds import (
    INHERITED_NOTES,
    Basis,
    EnergySource,
    IntervalKind,
    Note,
)
from rnn_scaling.analysis.ranking import JOINT_COVERAGE
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records import cell_numbers
from rnn_scaling.system.files.terminal import format_count, format_three_digits

_WITHOUT_INTERVAL = 4  # significant digits
_OF_INTERVAL = 2  # significant digits of the number after ±
_MIN_DIGITS = 3  # significant digits of a number with a wide interval
# Both ends are printed if the shorter side is shorter by this share of the longer side.
_UNEVEN = 0.15
_ROUNDING = 1e-9  # relative half-width that is due to floating point only
_MORE_DECIMALS = 2  # decimals more than the metric has, if an interval is narrow
# Marks after a number; `sections` has the line that explains each.
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
    return f"{_remove_marks(interval, digits)}{format_marks(interval)}"


def format_marks(interval: Interval | None) -> str:
    """Return the marks of a number, such as "†"; "" for most numbers."""
    if interval is None:
        return ""
    return "".join(MARKS[note] for note in interval.kind.inherited_notes)


def _remove_marks(interval: Interval, digits: int | None) -> str:
    """Return a number with its 95 % interval."""
    value = interval.value
    if digits is None:
        digits = max(1, 1 - _find_first_digit_power(value))
    is_plain = not (interval.is_wide or has_interval(interval))
    if is_plain or interval.ends is None:
        return format_plain(value, digits)
    if interval.is_wide:
        known_digits = _WITHOUT_INTERVAL - 1 - _find_first_digit_power(value)
        decimals = max(0, min(digits, known_digits))
        return f"{_format_rounded(value, decimals)} ({format_spread(interval)})"

    low, high = interval.ends
    half_width = max(value - low, high - value)
    first_decimal = -_find_first_digit_power(half_width)
    decimals = min(
        first_decimal + _OF_INTERVAL - 1,
        max(digits, first_decimal),
        digits + _MORE_DECIMALS,
    )
    if not has_ends(interval):
        half = _format_rounded(half_width, decimals)
        return f"{_format_rounded(value, decimals)} ± {half}"

    # The first digit of the shorter side is shown too.
    shorter_side = min(value - low, high - value)
    needed = max(
        _MIN_DIGITS - 1 - _find_first_digit_power(value),
        -_find_first_digit_power(shorter_side),
    )
    decimals = max(decimals, min(digits, needed))
    ends = f"[{_format_rounded(low, decimals)}, {_format_rounded(high, decimals)}]"
    return f"{_format_rounded(value, decimals)} {ends}"


def make_unit_heading(unit: str) -> str:
    """Return a unit as the start of a heading: "Words", but "MB" and "kB" unchanged.

    Only words get a capital letter. A unit with a capital letter keeps its spelling,
    because the case of a metric prefix has a meaning.
    """
    return unit.capitalize() if unit.islower() else unit


def format_spread(interval: Interval) -> str:
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

    The meaning of a mark is not repeated; see `sections.explain_numbers`.

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
    return group_by(shown, [_format_kind(value.kind) for _, value in shown])


def _format_kind(kind: IntervalKind) -> str:
    notes = tuple([note for note in kind.notes if note not in INHERITED_NOTES])
    return format_interval_kind(dataclasses.replace(kind, notes=notes))


def format_plain(value: float, digits: int) -> str:
    """Return a number without an interval: four significant digits, few decimals.

    Args:
      value: The number.
      digits: The most decimals.
    """
    return _format_rounded(
        value, min(digits, _WITHOUT_INTERVAL - 1 - _find_first_digit_power(value))
    )


def format_digits(value: float, significant: int) -> str:
    """Return a number with its whole part and at least the significant digits."""
    decimals = significant - 1 - _find_first_digit_power(value) if value else 0
    return f"{value:,.{max(0, decimals)}f}"


def format_share(value: float) -> str:
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


def _format_minutes(minutes: float) -> str:
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


def _find_first_digit_power(value: float) -> int:
    """Return the power of ten of the first digit; 0 for 0."""
    return math.floor(math.log10(abs(value))) if value else 0


def _format_rounded(value: float, decimals: int) -> str:
    """Return a rounded number, without the sign of a zero."""
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    is_zero = not float(text.replace(",", ""))
    return text.removeprefix("-") if is_zero else text


NUMBER_DIGITS = 4  # significant digits of {rate:number}
_MAX_NAMES = 5  # names of a list; the others are counted


def write_sentence(statement: Statement) -> str:
    """Return a statement in words; statements in its values are parts of the sentence."""
    values = {name: _put_in_words(value) for name, value in statement.values.items()}
    template = list_all_templates()[statement.kind]
    return _KIT.format(template, subject=statement.subject, **values)


def _put_in_words(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_put_in_words, value))
    return write_sentence(value) if isinstance(value, Statement) else value


def write_sentences(statements: Iterable[Statement]) -> str:
    """Return a paragraph.

    The second of two sentences about the same subject begins with "It", and the second
    of two equal sentences is left out.
    """
    texts: list[str] = []
    subject = ""
    for statement in statements:
        template = list_all_templates()[statement.kind]
        starts_with_subject = template.startswith("{subject} ")
        shown = statement
        if subject and statement.subject == subject and starts_with_subject:
            shown = dataclasses.replace(statement, subject="It")
        text = write_sentence(shown)
        if text not in texts[-1:]:
            texts.append(text)
        subject = statement.subject or subject
    return " ".join(texts)


@functools.cache
def list_all_templates() -> Mapping[str, str]:
    """Return the template of each kind of statement.

    Raises:
      ValueError: If a kind has several templates.
    """
    templates: dict[str, str] = {}
    for file in sorted(Path(__file__).with_name("templates").rglob("*.txt")):
        for line in file.read_text("utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            kind, template = line.split(": ", 1)
            if kind in templates:
                raise ValueError(f"several templates of a kind: {kind}")
            templates[kind] = template
    return templates


def join_names(values: Sequence[str | int]) -> str:
    """Return "A", "A and B", "A, B and C" or "A, B and 4 more"; "none" without names."""
    if not values:
        return "none"
    names = [f"{value:,}" if isinstance(value, int) else value for value in values]
    if len(names) > _MAX_NAMES:
        return f"{', '.join(names[:_MAX_NAMES])} and {len(names) - _MAX_NAMES} more"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _list_with_noun(values: Sequence[int], noun: str) -> str:
    """Return "1 device", "2 devices" or "2 and 4 devices"."""
    is_one = list(values) == [1]
    _, _, nouns = format_count(1 if is_one else 2, noun).partition(" ")
    return f"{join_names(values)} {nouns}"


def _format_share_of_runs(count: int, total_and_noun: str) -> str:
    """Return "2 of 6 runs", "all 6 runs", "both runs", or "the run" of a single one."""
    total_text, _, noun = total_and_noun.partition(" ")
    total = int(total_text)
    nouns = format_count(total, noun)
    if total == 1:
        return f"the {nouns.removeprefix('1 ')}"
    if count == total == 2:
        return f"both {nouns.removeprefix('2 ')}"
    if count == total:
        return f"all {nouns}"
    return f"{count:,} of {nouns}"


def _format_interval_value(value: Mapping[str, Any], digits: str) -> str:
    interval = Interval(**value, degrees=math.inf)
    return format_interval(interval, int(digits) if digits else None)


def _format_rates(rates: Iterable[Mapping[str, Any]]) -> str:
    template = "{name} ({rate:interval 1} {unit}/s)"
    return join_names([_KIT.format(template, **rate) for rate in rates])


def start_with_capital(text: str) -> str:
    """Return a text whose first letter is a capital."""
    return text[:1].upper() + text[1:]


# First word of a format -> function of the value and the other words.
_FORMATS: Mapping[str, Callable[[Any, str], str]] = {
    "list": lambda value, _: join_names(value),
    "list_of": _list_with_noun,
    "List": lambda value, _: start_with_capital(join_names(value)),
    "count": lambda value, noun: format_count(_count_of(value), noun),
    "of": _format_share_of_runs,
    "Of": lambda value, noun: start_with_capital(_format_share_of_runs(value, noun)),
    "interval": _format_interval_value,
    "rates": lambda value, _: _format_rates(value),
    "number": lambda value, digits: format_digits(value, int(digits or NUMBER_DIGITS)),
    "share": lambda value, _: format_share(value),
    "percent": lambda value, digits: format_percent(value, int(digits or 2)),
    "duration": lambda value, _: _format_minutes(value),
}


class _Kit(string.Formatter):
    """Python's format strings, with the formats that the head of this file lists."""

    def format_field(self, value: Any, format_spec: str) -> str:
        word, _, argument = format_spec.partition(" ")
        if word in _FORMATS:
            return _FORMATS[word](value, argument)
        if "|" in format_spec:
            singular, plural = format_spec.split("|")
            return singular if _count_of(value) == 1 else plural
        return str(super().format_field(value, format_spec))


_KIT = _Kit()


def _count_of(value: Any) -> int:
    return value if isinstance(value, int) else len(value)


@functools.lru_cache(maxsize=4096)  # the rows of a report have few kinds
def format_interval_kind(kind: IntervalKind) -> str:
    """Return the basis of an interval, or why it is missing; "" if unknown."""
    texts = [_format_basis(kind)]
    texts += map(format_note, kind.notes)
    if kind.energy is not None:
        texts += map(write_sentence, _state_energy(kind.energy))
    return "; ".join(texts)


def _format_basis(kind: IntervalKind) -> str:
    if kind.basis is Basis.UNKNOWN:
        return ""
    if kind.basis in (Basis.RUNS, Basis.PAIRS) and kind.counts == (1,):
        return write_sentence(state("interval-one-run"))
    counts = " and ".join(map(str, kind.counts))
    values = {"counts": counts, "joint": JOINT_COVERAGE, "fewest": MIN_BATCHES}
    return write_sentence(state(kind.basis.value, **values))


def format_note(note: Note) -> str:
    return write_sentence(state(note.value))


def _state_energy(source: EnergySource) -> Iterator[Statement]:
    if source.stated_power_w:
        yield state("interval-stated-power", watts=source.stated_power_w)
        return
    yield state("interval-counters", counters=", ".join(source.measured))
    for counter, reason in source.not_measured:
        yield state("interval-without-counter", counter=counter, reason=reason)
