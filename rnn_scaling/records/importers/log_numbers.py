"""Numbers in logs (12,345.6, 12.3k, 1.23e+04 or 12_345) and patterns that read them.

Numbers in the cells of tables have marks and footnotes: `records.cell_numbers`.
"""

import math
import re
import warnings

from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.importers import printed_units
from rnn_scaling.records.importers.printed_units import COUNTED, Kind, PrintedUnit

DEVICE_RATE = "(?P<device_rate>"  # begins a rate of one device in a pattern
_RATE = "(?P<rate>"
TOKEN = "{number}"  # part of a pattern that reads any of these numbers
_SEPARATOR = "[,_'\u2019\u00a0\u2009\u202f]"
_END = r"(?!\d)"  # The number of digits is bounded, so that no line takes long.
_DIGITS = (
    rf"(?<!\d)(?:\d{{1,3}}(?:{_SEPARATOR}\d{{2,3}}){{0,9}}{_SEPARATOR}\d{{3}}{_END}|"
    rf"\d{{1,40}}{_END})(?:\.\d{{0,40}}{_END})?|\.\d{{1,40}}{_END}"
)
# The first letter of MB, kbit or GFLOPS belongs to the unit and not to the number.
_PREFIX = (
    rf" ?(?:[kKMGT](?![\w-])|B(?![\w/-])|[kKMG](?=(?:{COUNTED})\b))|"
    r"k(?=[a-z])(?!ki?b|kflop|kops\b|khz)"
)
_EXPONENT = rf"[eE][-+]?\d{{1,9}}{_END}"
NUMBER = (
    rf"(?:[-+\u2212]?(?:(?:{_DIGITS})(?:{_EXPONENT})?(?:{_PREFIX})?|"
    r"(?i:nan|inf(?:inity)?)(?![A-Za-z])))"
)
_FULL_NUMBER = re.compile(rf"([-+\u2212]?)({_DIGITS})({_EXPONENT})?( ?[kKMGTB])?")
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_BEFORE = re.compile(
    rf"(?:\d|\d{_SEPARATOR}|\d\.|\d[eE][-+]?|(?:^|[\s=:(\[])(?:\.|[-\u2212]\.?))$"
)
_AFTER = re.compile(rf"{_SEPARATOR}?\d|\.\d|{_EXPONENT}|[xX][0-9a-fA-F]|{_PREFIX}")
# A plain space may separate thousands, as in "12 345,6", or two numbers: only the
# pattern can tell.
_BEFORE_SPACE = re.compile(r"(?:^|[\s=:(\[])[1-9]\d{0,2} $")
_AFTER_SPACE = re.compile(r" \d{3}(?!\d)")
# "step 50 400 tok/s" has two numbers, because the first one counts something.
_COUNTER_BEFORE = re.compile(
    r"(?i)(?<![a-z])(?:step|it|iter|iteration|epoch|batch|update|rank)"
    r"[\s:=#(\[]{0,3}\d{1,3} $"
)
_PREFIX_BEHIND = re.compile(rf" ?(?:[kKMGTB](?![\w-])|[kKMGT](?=(?:{COUNTED})\b))")
_UNIT_BEHIND = re.compile(r" ?[kKMGTB]\w")
_TIME_GROUPS = {"seconds": "seconds", "ms": "milliseconds"}
_GROUP = r"\(\?P<{}>(?:\[\^?\]?[^\]]*\]|\\.|[^()\\\[])*\)"


class TooLarge(ValueError):
    """A number that is too large for a float."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern, in which TOKEN reads any number.

    In a pattern without named groups, the first TOKEN is the group `rate`. The group
    `device_rate` is compiled as `rate`.

    Raises:
      re.error: If the pattern is not a regular expression.
    """
    if "(?P<" not in pattern:
        pattern = pattern.replace(TOKEN, f"{_RATE}{TOKEN})", 1)
    pattern = pattern.replace(DEVICE_RATE, _RATE)
    try:
        with warnings.catch_warnings():
            # Python warns that a later version may read "[[" as a set in a set.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern.replace(TOKEN, NUMBER))
    except (RecursionError, OverflowError, MemoryError) as e:
        raise re.error(f"too deeply nested or too large ({type(e).__name__})") from None


def parse_number(text: str) -> PrintedNumber:
    """Return a printed number with the unit of its last digit.

    Raises:
      TooLarge: If the number is too large for a float.
      ValueError: If the text is not a number.
    """
    match = _FULL_NUMBER.fullmatch(text.strip().rstrip(","))
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a number")
    sign, digits, exponent, prefix = match.groups("")
    digits = re.sub(_SEPARATOR, "", digits)
    factor = _FACTORS.get(prefix.strip().lower(), 1.0)
    power = int(exponent[1:] or 0)
    decimals = len(digits.partition(".")[2])
    value = float(f"{digits}e{power}") * factor
    step = float(f"1e{power - decimals}") * factor
    if not math.isfinite(value + step):
        raise TooLarge(f"{text[:40]!r} is too large")
    return PrintedNumber(-value if sign in ("-", "\u2212") else value, step, text)


def number_text(match: re.Match[str], name: str) -> str:
    """Return the text of a group, with the metric prefix that the pattern has behind it.

    The pattern "{number}K" reads "58.4K" as 58,400. In "{number} MB/s" and
    "{number} ktok/s" the letter belongs to the unit.
    """
    if _is_part_of_unit(match, name):
        return match[name]
    return match[name] + _literal_prefix(match, name)


def rate_unit(match: re.Match[str]) -> str:
    """Return the unit of the group `rate` if it has a prefix, such as "MB"; else ""."""
    unit = printed_units.find_unit(match.string, *match.span("rate"))
    if unit is None or unit.kind is not Kind.RATE or not unit.prefix:
        return ""
    is_factor = unit.is_behind and _literal_prefix(match, "rate")
    if is_factor and not _is_part_of_unit(match, "rate"):
        return ""
    return unit.items


def find_fault(match: re.Match[str], name: str, pattern: str, unit: str = "") -> str:
    """Return why the group of a match is wrong, or "" if it is right.

    A group is wrong if it has only a part of a number, or a number in another unit. A
    separator that the pattern itself contains, such as the comma between the columns of
    a CSV file, does not belong to a number.

    Args:
      match: A match of the pattern in a line.
      name: The name of the group.
      pattern: The pattern as the user wrote it.
      unit: The value of --unit, or "" if it is not set.
    """
    if not re.search(r"[\d.]$", match[name]):
        has_prefix = re.search(r"\d ?[kKMGTB]$", match[name])
        return _find_wrong_unit(match, name, pattern, unit) if has_prefix else ""
    before = _find_digits_before(match, name)
    after = _find_digits_after(match, name)
    if before is None and after is None:
        return _find_wrong_unit(match, name, pattern, unit)

    lost = after[0].strip() if after else ""
    without = f" without its {lost}" if re.fullmatch("[kKMGTB]", lost) else ""
    text = _text_around(match, name)
    if before and before[0].endswith(" "):
        text = f"{before[0].strip('=:([ ')} {text}"
    return (
        f"the group {name} reads only {match[name]!r} of {text.strip()!r}{without}; "
        f"{_suggest_pattern(match, name, pattern)}"
    )


def _find_digits_before(match: re.Match[str], name: str) -> re.Match[str] | None:
    """Return the part of the number that is before the group, or None."""
    text = match.string
    start = match.start(name)
    before = _BEFORE.search(text, max(0, start - 4), start)
    is_group_of_digits = re.match(r"\d{3}(?!\d)", match[name])
    has_counter = _COUNTER_BEFORE.search(text[max(0, start - 20) : start])
    if before is None and is_group_of_digits and not has_counter:
        before = _BEFORE_SPACE.search(text[max(0, start - 5) : start])
    if before and _is_separator(match, name, start - 1):
        return None
    return before


def _find_digits_after(match: re.Match[str], name: str) -> re.Match[str] | None:
    """Return the part of the number that is behind the group, or None."""
    end = match.end(name)
    after = _AFTER.match(match.string, end)
    if after is None and re.fullmatch(r"[-+\u2212]?[1-9]\d{0,2}", match[name]):
        after = _AFTER_SPACE.match(match.string, end)
    if after and (_is_separator(match, name, end) or _literal_prefix(match, name)):
        return None
    return after


def _text_around(match: re.Match[str], name: str) -> str:
    """Return the text of a group with the characters around it up to the next blanks."""
    start, end = match.span(name)
    left = re.search(r"\S*$", match.string[:start])
    right = re.match(r" ?\S*", match.string[end:])
    assert left is not None
    assert right is not None
    return f"{left[0]}{match[name]}{right[0]}"[:60]


def _find_wrong_unit(match: re.Match[str], name: str, pattern: str, unit: str) -> str:
    """Return why a group cannot hold a number in the printed unit, or ""."""
    if name != "rate" and name not in _TIME_GROUPS:
        return ""
    printed_unit = printed_units.find_unit(match.string, *match.span(name))
    if printed_unit is None:
        return ""
    fault = f"the group {name} reads {match[name]!r} in {_text_around(match, name)!r}"
    if name in _TIME_GROUPS:
        return _find_wrong_time(printed_unit, name, pattern, fault)
    if printed_unit.kind is Kind.TIME:
        remedy = _time_remedy(printed_unit, name, pattern)
        return f"{fault}, which is a time ({printed_unit.text}); {remedy}"
    if printed_unit.time_unit not in ("", "seconds"):
        return (
            f"{fault}, which is a rate per {printed_unit.time_unit.removesuffix('s')}; "
            "print a rate per second, or the seconds of a step, to read with "
            "(?P<seconds>...) and --items_per_step=PRODUCT"
        )
    items = rate_unit(match)
    if items and unit and not printed_units.carries_prefix(unit, printed_unit.prefix):
        return (
            f"{fault}, whose unit is {items}, but --unit={unit} lacks the prefix "
            f"{printed_unit.prefix}; use --unit={items}"
        )
    return ""


def _find_wrong_time(
    printed_unit: PrintedUnit, name: str, pattern: str, fault: str
) -> str:
    """Return why a group of seconds or milliseconds cannot hold a number, or ""."""
    if printed_unit.kind is Kind.RATE:
        if not printed_unit.is_behind:
            return ""
        rate = _rename_group(pattern, name, "rate")
        return f"{fault}, which is a rate; use --log_format='regex:{rate}'"
    if printed_unit.time_unit in ("", _TIME_GROUPS[name]):
        return ""
    remedy = _time_remedy(printed_unit, name, pattern)
    return f"{fault}, whose unit is {printed_unit.text}; {remedy}"


def _time_remedy(printed_unit: PrintedUnit, name: str, pattern: str) -> str:
    """Return a sentence with the patterns that read a time in this unit."""
    patterns = []
    units = []
    for group, unit in _TIME_GROUPS.items():
        if printed_unit.time_unit in ("", unit):
            patterns.append(f"'regex:{_rename_group(pattern, name, group)}'")
            units.append(unit)
    if not units:
        return "no group reads this unit; print seconds or milliseconds"
    items = " with --items_per_step=PRODUCT" if name == "rate" else ""
    choices = " or ".join(patterns)
    return f"to read {' or '.join(units)}, use --log_format={choices}{items}"


def _rename_group(pattern: str, name: str, new_name: str) -> str:
    if f"(?P<{name}>" in pattern:
        return pattern.replace(f"(?P<{name}>", f"(?P<{new_name}>", 1)
    return pattern.replace(TOKEN, f"(?P<{new_name}>{TOKEN})", 1)


def _literal_prefix(match: re.Match[str], name: str) -> str:
    """Return the metric prefix behind a group if the pattern contains it, else "".

    It is a separate letter ("58.4 K") or the first letter of a unit ("58.4 ktok/s").
    """
    prefix = _PREFIX_BEHIND.match(match.string, match.end(name))
    if prefix is None or not re.search(r"[\d.]$", match[name]):
        return ""
    return prefix[0].strip() if _is_literal(match, name, prefix.end() - 1) else ""


def _is_part_of_unit(match: re.Match[str], name: str) -> bool:
    """Return whether a pattern contains the letter behind a prefix, as "t" in "ktok"."""
    unit = _UNIT_BEHIND.match(match.string, match.end(name))
    return unit is not None and _is_literal(match, name, unit.end() - 1)


def _is_separator(match: re.Match[str], name: str, position: int) -> bool:
    """Return whether the pattern contains the separator at a position of the line."""
    if not re.match(rf"{_SEPARATOR}|\.| \d", match.string[position : position + 2]):
        return False
    return _is_literal(match, name, position)


def _is_literal(match: re.Match[str], name: str, position: int) -> bool:
    """Return whether the match needs the character at a position of the line."""
    text = match.string
    changed_match = match.re.search(f"{text[:position]}\0{text[position + 1 :]}")
    return changed_match is None or changed_match.span(name) != match.span(name)


def _suggest_pattern(match: re.Match[str], name: str, pattern: str) -> str:
    """Return a sentence with a pattern that reads the number of this line."""
    group = f"(?P<{name}>{TOKEN})"
    better = re.sub(_GROUP.format(name), lambda _: group, pattern, count=1)
    if better != pattern:
        better_match = compile_pattern(better).search(match.string)
        if (
            better_match is not None
            and better_match[name]
            and not find_fault(better_match, name, better)
        ):
            return f"--log_format='regex:{better}' reads it"
    ending = "the pattern must contain the character that ends it"
    if TOKEN in pattern:
        return f"{TOKEN} cannot read this number; {ending}"
    return f"{group} reads any number; {ending}"
